//! Rules and their keys.

use std::net::IpAddr;

use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, RuleKey, TickPrefix},
    segment::IpVersion,
};
use proto::lb::v1::{self, key::Key as KeyKind, member::Action, rule::Rule as RuleKind};

use super::{FieldError, MessageError};

type Result<T> = std::result::Result<T, MessageError>;

/// Reads a rule from a message. The tables check later if the rule is valid.
///
/// # Errors
/// Fails with the first field that is missing or out of range.
pub fn rule(message: &v1::Rule) -> Result<Rule> {
    let kind = message.rule.as_ref().ok_or_else(|| MessageError::new("rule", FieldError::Missing))?;
    Ok(match kind {
        RuleKind::Destination(it) => Rule::Destination {
            address: address("destination.address", &it.address)?,
            lb: lb("destination.lb", it.lb)?,
        },
        RuleKind::Source(it) => {
            Rule::Source { lb: lb("source.lb", it.lb)?, address: address("source.address", &it.address)? }
        }
        RuleKind::Epoch(it) => Rule::Epoch {
            lb: lb("epoch.lb", it.lb)?,
            ticks: ticks(it.tick, it.prefix_length)?,
            epoch: Epoch {
                id: it.epoch,
                slot_bits: narrow("epoch.slot_bits", it.slot_bits, Epoch::MOST_BITS)?,
                xor: narrow("epoch.xor", it.xor, u16::MAX)?,
            },
        },
        RuleKind::Slot(it) => Rule::Slot {
            lb: lb("slot.lb", it.lb)?,
            epoch: it.epoch,
            slot: narrow("slot.slot", it.slot, Rule::MOST_SLOT)?,
            member: narrow("slot.member", it.member, u16::MAX)?,
        },
        RuleKind::Member(it) => Rule::Member {
            lb: lb("member.lb", it.lb)?,
            ip: ip(it.ip)?,
            id: narrow("member.id", it.id, u16::MAX)?,
            member: member(it)?,
        },
    })
}

/// Reads the key of a rule from a message.
///
/// # Errors
/// Fails with the first field that is missing or out of range.
pub fn key(message: &v1::Key) -> Result<RuleKey> {
    let kind = message.key.as_ref().ok_or_else(|| MessageError::new("key", FieldError::Missing))?;
    Ok(match kind {
        KeyKind::Destination(it) => {
            RuleKey::Destination { address: address("destination.address", &it.address)? }
        }
        KeyKind::Source(it) => {
            RuleKey::Source { lb: lb("source.lb", it.lb)?, address: address("source.address", &it.address)? }
        }
        KeyKind::Epoch(it) => {
            RuleKey::Epoch { lb: lb("epoch.lb", it.lb)?, ticks: ticks(it.tick, it.prefix_length)? }
        }
        KeyKind::Slot(it) => RuleKey::Slot {
            lb: lb("slot.lb", it.lb)?,
            epoch: it.epoch,
            slot: narrow("slot.slot", it.slot, Rule::MOST_SLOT)?,
        },
        KeyKind::Member(it) => RuleKey::Member {
            lb: lb("member.lb", it.lb)?,
            ip: ip(it.ip)?,
            id: narrow("member.id", it.id, u16::MAX)?,
        },
    })
}

fn narrow<T: TryFrom<u32> + Into<u32> + Copy>(field: &str, value: u32, most: T) -> Result<T> {
    let fits = T::try_from(value).ok().filter(|_| value <= most.into());
    fits.ok_or_else(|| MessageError::new(field, FieldError::TooHigh { value, most: most.into() }))
}

/// Reads the number of a load balancer. `field` is the name of the field, for the error.
///
/// # Errors
/// Fails with [`FieldError::TooHigh`] if there is no load balancer with the number `value`.
pub fn lb(field: &str, value: u32) -> Result<LbId> {
    let id = narrow(field, value, (LbId::COUNT - 1) as u8)?;
    LbId::new(id).map_err(|error| MessageError::new(field, error))
}

fn address(field: &str, octets: &[u8]) -> Result<IpAddr> {
    let v4 = || Some(<[u8; 4]>::try_from(octets).ok()?.into());
    let v6 = || Some(<[u8; 16]>::try_from(octets).ok()?.into());
    v4().or_else(v6).ok_or_else(|| MessageError::new(field, FieldError::Address(octets.len())))
}

fn ticks(first: u64, length: u32) -> Result<TickPrefix> {
    let length = narrow("epoch.prefix_length", length, 64)?;
    TickPrefix::new(first, length).map_err(|error| MessageError::new("epoch.tick", error))
}

fn ip(value: i32) -> Result<IpVersion> {
    match v1::IpVersion::try_from(value) {
        Ok(v1::IpVersion::IpVersion4) => Ok(IpVersion::V4),
        Ok(v1::IpVersion::IpVersion6) => Ok(IpVersion::V6),
        Ok(v1::IpVersion::Unspecified) | Err(_) => {
            Err(MessageError::new("member.ip", FieldError::Value(value)))
        }
    }
}

fn member(message: &v1::Member) -> Result<Member> {
    match &message.action {
        None => Err(MessageError::new("member.action", FieldError::Missing)),
        Some(Action::Forward(it)) => Ok(Member::Forward(Forward {
            mac: mac(&it.mac)?,
            address: address("member.forward.address", &it.address)?,
            port: narrow("member.forward.port", it.port, u16::MAX)?,
            port_bits: narrow("member.forward.port_bits", it.port_bits, Forward::MOST_BITS)?,
            keep_lb_header: it.keep_lb_header,
        })),
        Some(Action::Drop(cause)) => match v1::Drop::try_from(*cause) {
            Ok(v1::Drop::SoftEvicted) => Ok(Member::SoftEvicted),
            Ok(v1::Drop::Deregistered) => Ok(Member::Deregistered),
            Ok(v1::Drop::Unspecified) | Err(_) => {
                Err(MessageError::new("member.drop", FieldError::Value(*cause)))
            }
        },
    }
}

fn mac(octets: &[u8]) -> Result<Option<[u8; 6]>> {
    if octets.is_empty() {
        return Ok(None);
    }
    let mac =
        octets.try_into().map_err(|_| MessageError::new("member.forward.mac", FieldError::Mac(octets.len())));
    mac.map(Some)
}

/// Returns the message of a rule.
pub fn of_rule(rule: &Rule) -> v1::Rule {
    let kind = match *rule {
        Rule::Destination { address, lb } => {
            RuleKind::Destination(v1::Destination { address: octets(address), lb: lb.get().into() })
        }
        Rule::Source { lb, address } => RuleKind::Source(of_source(lb, address)),
        Rule::Epoch { lb, ticks, epoch } => RuleKind::Epoch(v1::Epoch {
            lb: lb.get().into(),
            tick: ticks.first(),
            prefix_length: ticks.length().into(),
            epoch: epoch.id,
            slot_bits: epoch.slot_bits.into(),
            xor: epoch.xor.into(),
        }),
        Rule::Slot { lb, epoch, slot, member } => {
            RuleKind::Slot(v1::Slot { lb: lb.get().into(), epoch, slot: slot.into(), member: member.into() })
        }
        Rule::Member { lb, ip, id, member } => RuleKind::Member(v1::Member {
            lb: lb.get().into(),
            ip: of_ip(ip).into(),
            id: id.into(),
            action: Some(of_member(&member)),
        }),
    };
    v1::Rule { rule: Some(kind) }
}

/// Returns the message of a rule's key.
pub fn of_key(key: &RuleKey) -> v1::Key {
    let kind = match *key {
        RuleKey::Destination { address } => {
            KeyKind::Destination(v1::DestinationKey { address: octets(address) })
        }
        RuleKey::Source { lb, address } => KeyKind::Source(of_source(lb, address)),
        RuleKey::Epoch { lb, ticks } => KeyKind::Epoch(v1::EpochKey {
            lb: lb.get().into(),
            tick: ticks.first(),
            prefix_length: ticks.length().into(),
        }),
        RuleKey::Slot { lb, epoch, slot } => {
            KeyKind::Slot(v1::SlotKey { lb: lb.get().into(), epoch, slot: slot.into() })
        }
        RuleKey::Member { lb, ip, id } => {
            KeyKind::Member(v1::MemberKey { lb: lb.get().into(), ip: of_ip(ip).into(), id: id.into() })
        }
    };
    v1::Key { key: Some(kind) }
}

fn of_source(lb: LbId, address: IpAddr) -> v1::Source {
    v1::Source { lb: lb.get().into(), address: octets(address) }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn of_ip(ip: IpVersion) -> v1::IpVersion {
    match ip {
        IpVersion::V4 => v1::IpVersion::IpVersion4,
        IpVersion::V6 => v1::IpVersion::IpVersion6,
    }
}

fn of_member(member: &Member) -> Action {
    match *member {
        Member::Forward(Forward { mac, address, port, port_bits, keep_lb_header }) => {
            Action::Forward(v1::Forward {
                mac: mac.map(Vec::from).unwrap_or_default(),
                address: octets(address),
                port: port.into(),
                port_bits: port_bits.into(),
                keep_lb_header,
            })
        }
        Member::SoftEvicted => Action::Drop(v1::Drop::SoftEvicted.into()),
        Member::Deregistered => Action::Drop(v1::Drop::Deregistered.into()),
    }
}
