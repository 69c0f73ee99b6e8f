//! Our rules as those of the P4 data plane's tables: the other direction of [`super::rule`].
//!
//! # Source
//! What udplbd2 sends: numbers in lower-case hexadecimal without leading zeros, IPv4 addresses in 32 bits, and the priority
//! of the prefix that all ticks have.

use std::net::IpAddr;

use ejfat::{
    lb::{Epoch, LbId, Member, Rule, RuleKey, Table, TickPrefix},
    segment::IpVersion,
};
use proto::sn_p4::v2::{
    Action, ActionParameter, Match, MatchKeyMask, MatchKeyOnly, MatchKeyPrefix, TableRule, r#match::Type,
};

use super::names;

/// The lowest priority that udplbd2 gives: every other prefix comes before it.
const PRIORITY_OF_ALL_TICKS: u32 = 63;

/// A rule with its action, to be inserted; `replace`: in the place of the one with its key.
pub(super) fn rule(rule: &Rule, replace: bool) -> TableRule {
    let priority = match rule {
        Rule::Epoch { ticks: TickPrefix::ALL, .. } => PRIORITY_OF_ALL_TICKS,
        _ => 0,
    };
    TableRule { priority, replace, action: Some(action(rule)), ..key(&rule.key()) }
}

/// A rule without an action, to be deleted.
pub(super) fn key(key: &RuleKey) -> TableRule {
    let matches = match *key {
        RuleKey::Destination { address } => vec![any_port(), ether_type(IpVersion::of(address)), ip(address)],
        RuleKey::Source { lb, address } => vec![of_lb(lb), ip(address)],
        RuleKey::Epoch { lb, ticks } => vec![of_lb(lb), prefix(ticks)],
        RuleKey::Slot { lb, epoch, slot } => vec![of_lb(lb), exact(epoch), exact(slot)],
        RuleKey::Member { lb, ip, id } => vec![of_lb(lb), ether_type(ip), exact(id)],
    };
    TableRule { table_name: key.table().name().into(), matches, ..TableRule::default() }
}

fn action(rule: &Rule) -> Action {
    let (name, parameters) = match *rule {
        Rule::Destination { address, lb } => return sent_from(address, lb),
        Rule::Source { .. } => (names::ALLOW_SOURCE, vec![]),
        // Data planes that cannot select slots otherwise know this one only.
        Rule::Epoch { epoch, .. } if epoch == Epoch::new(epoch.id) => {
            (names::ASSIGN_EPOCH, vec![epoch.id.into()])
        }
        Rule::Epoch { epoch: Epoch { id, slot_bits, xor }, .. } => {
            (names::ASSIGN_EPOCH_AND_SLOTS, vec![id.into(), slot_bits.into(), xor.into()])
        }
        Rule::Slot { member, .. } => (names::ASSIGN_MEMBER, vec![member.into()]),
        Rule::Member { member: Member::SoftEvicted, .. } => (names::DROP_SOFT_EVICTED, vec![]),
        Rule::Member { member: Member::Deregistered, .. } => (names::DROP_DEREGISTERED, vec![]),
        Rule::Member { member: Member::Forward(to), .. } => {
            let name = match to.address {
                IpAddr::V4(_) => names::REWRITE_V4,
                IpAddr::V6(_) => names::REWRITE_V6,
            };
            let mac = mac(to.mac.unwrap_or_default());
            let parameters =
                [mac, bits(to.address), to.port.into(), to.port_bits.into(), to.keep_lb_header.into()];
            (name, parameters.to_vec())
        }
    };
    called(name, &parameters)
}

/// An action.
pub(super) fn called(name: &str, parameters: &[u128]) -> Action {
    let parameters = parameters.iter().map(|&value| ActionParameter { value: hex(value) });
    Action { name: name.into(), parameters: parameters.collect() }
}

/// What is answered is sent from an address, which is a load balancer's.
fn sent_from(address: IpAddr, lb: LbId) -> Action {
    called(names::SET_IP, &[bits(address), lb.get().into()])
}

/// A rule for packets to an address that are not the load balancer's to forward.
pub(super) fn destination(ether_type: u128, to: IpAddr, from: IpAddr, lb: LbId) -> TableRule {
    let matches = vec![any_port(), exact(ether_type), ip(to)];
    let action = Some(sent_from(from, lb));
    TableRule { table_name: Table::Destination.name().into(), matches, action, ..TableRule::default() }
}

pub(super) fn mac(address: [u8; 6]) -> u128 {
    address.into_iter().fold(0, |bits, byte| bits << 8 | u128::from(byte))
}

fn hex(value: u128) -> String {
    format!("{value:#x}")
}

pub(super) fn exact(value: impl Into<u128>) -> Match {
    Match { r#type: Some(Type::KeyOnly(MatchKeyOnly { key: hex(value.into()) })) }
}

/// Ports of a card are not told apart.
pub(super) fn any_port() -> Match {
    Match { r#type: Some(Type::KeyMask(MatchKeyMask { key: hex(0), mask: hex(0) })) }
}

fn prefix(ticks: TickPrefix) -> Match {
    let prefix_length = ticks.length().into();
    let key = hex(ticks.first().into());
    Match { r#type: Some(Type::KeyPrefix(MatchKeyPrefix { key, prefix_length })) }
}

fn of_lb(lb: LbId) -> Match {
    exact(lb.get())
}

fn ip(address: IpAddr) -> Match {
    exact(bits(address))
}

fn ether_type(ip: IpVersion) -> Match {
    exact(match ip {
        IpVersion::V4 => names::IPV4,
        IpVersion::V6 => names::IPV6,
    })
}

pub(super) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use ejfat::lb::Forward;
    use prost::Message;
    use simnet::Random;

    use super::*;
    use crate::grpc::smartnic::rule as decode;

    fn lb(random: &mut Random) -> LbId {
        LbId::new(random.below(8) as u8).unwrap()
    }

    fn address(random: &mut Random, ip: IpVersion) -> IpAddr {
        match ip {
            // Neither multicast nor unspecified.
            IpVersion::V4 => Ipv4Addr::from_bits(random.below(0xe000_0000 - 1) as u32 + 1).into(),
            IpVersion::V6 => {
                let low = u128::from(random.below(u64::MAX));
                Ipv6Addr::from_bits(u128::from(random.below(0xff00 << 48)) << 64 | low | 1).into()
            }
        }
    }

    fn version_of(random: &mut Random) -> IpVersion {
        if random.below(2) == 0 { IpVersion::V4 } else { IpVersion::V6 }
    }

    fn forward(random: &mut Random, ip: IpVersion) -> Forward {
        let mac = (random.below(1 << 48) | 1).to_be_bytes();
        Forward {
            mac: (random.below(4) > 0).then(|| [mac[2], mac[3], mac[4], mac[5], mac[6], mac[7]]),
            address: address(random, ip),
            port: random.below(65_535) as u16 + 1,
            port_bits: random.below(15) as u8,
            keep_lb_header: random.below(2) == 1,
        }
    }

    fn epoch(random: &mut Random) -> Epoch {
        let id = random.below(1 << 32) as u32;
        match random.below(2) {
            0 => Epoch::new(id),
            _ => Epoch { id, slot_bits: random.below(15) as u8, xor: random.below(1 << 16) as u16 },
        }
    }

    fn ticks(random: &mut Random, length: u8) -> TickPrefix {
        let value = random.below(u64::MAX);
        let kept = value.checked_shr(64 - u32::from(length)).unwrap_or(0);
        TickPrefix::new(kept.checked_shl(64 - u32::from(length)).unwrap_or(0), length).unwrap()
    }

    fn any(random: &mut Random, seed: u64) -> Rule {
        let lb = lb(random);
        let ip = version_of(random);
        match random.below(7) {
            0 => Rule::Destination { address: address(random, ip), lb },
            1 => Rule::Source { lb, address: address(random, ip) },
            2 => Rule::Epoch { lb, ticks: ticks(random, (seed % 65) as u8), epoch: epoch(random) },
            3 => Rule::Slot {
                lb,
                epoch: random.below(1 << 32) as u32,
                slot: random.below(1 << 14) as u16,
                member: random.below(1 << 16) as u16,
            },
            action => {
                let member = match action {
                    4 => Member::SoftEvicted,
                    5 => Member::Deregistered,
                    _ => Member::Forward(forward(random, ip)),
                };
                Rule::Member { lb, ip, id: random.below(1 << 16) as u16, member }
            }
        }
    }

    fn comes_back(rule: &Rule) {
        for replace in [false, true] {
            let sent = super::rule(rule, replace);
            let received = TableRule::decode(sent.encode_to_vec().as_slice()).unwrap();
            assert_eq!(received.replace, replace);
            let decode::Entry::Plane(decoded) = decode::entry(&received).unwrap() else {
                panic!("{rule:?} became one of the host");
            };
            assert_eq!(decoded, *rule);
        }
        let sent = key(&rule.key());
        assert_eq!((sent.action.as_ref(), sent.replace, sent.priority), (None, false, 0));
        let decode::Key::Plane(decoded) = decode::key(&sent).unwrap() else {
            panic!("{rule:?} became one of the host");
        };
        assert_eq!(decoded, rule.key());
    }

    #[test]
    fn random_rules_are_decoded_as_they_were() {
        for seed in 0..20_000 {
            let random = &mut Random::new(seed, 0);
            comes_back(&any(random, seed));
        }
    }

    #[test]
    fn every_length_of_a_prefix_is_decoded_as_it_was() {
        let random = &mut Random::new(1, 0);
        for length in 0..=64 {
            for _ in 0..8 {
                let ticks = ticks(random, length);
                let rule = Rule::Epoch { lb: lb(random), ticks, epoch: epoch(random) };
                comes_back(&rule);
                let last = super::rule(&rule, false).priority == PRIORITY_OF_ALL_TICKS;
                assert_eq!(last, length == 0, "{rule:?}");
            }
        }
    }

    #[test]
    fn members_of_both_versions_keep_the_header_or_not() {
        let random = &mut Random::new(2, 0);
        for ip in [IpVersion::V4, IpVersion::V6] {
            for keep_lb_header in [false, true] {
                let to = Forward { keep_lb_header, ..forward(random, ip) };
                comes_back(&Rule::Member { lb: lb(random), ip, id: 65_535, member: Member::Forward(to) });
            }
        }
    }
}
