//! Rules of the P4 data plane's tables as those of ours.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ejfat::{
    lb::{Epoch, Forward, LbId, Member, Rule, RuleError, RuleKey, Table, TickPrefix},
    segment::IpVersion,
};
use proto::sn_p4::v2::{ErrorCode, Match, TableRule, r#match::Type};

use super::{
    encode::bits,
    inert::{InertKey, MAC_TABLE},
    names::{self, ARP, IPV4, IPV6},
    values::{KEY, MASK, PARAMETER, Result, RuleRefusal, number},
};

/// What a table has one rule for.
#[derive(Debug)]
pub(super) enum Key {
    Plane(RuleKey),
    Inert(InertKey),
}

#[derive(Debug)]
pub(super) enum Entry {
    Plane(Rule),
    Inert(InertKey, Vec<u128>),
}

/// `None` is the table of MAC addresses, which is the host's business here.
pub(super) fn table(name: &str) -> Result<Option<Table>> {
    match Table::ALL.into_iter().find(|table| table.name() == name) {
        Some(table) => Ok(Some(table)),
        None if name == MAC_TABLE => Ok(None),
        None => {
            let shown: String = name.chars().take(40).collect();
            Err(RuleRefusal::new(ErrorCode::EcInvalidTableName, format!("there is no table {shown:?}")))
        }
    }
}

pub(super) fn key(rule: &TableRule) -> Result<Key> {
    let key = match table(&rule.table_name)? {
        None => {
            let [port, mac] = matches(rule)?;
            let (port, mask) = masked(port)?;
            return Ok(Key::Inert(InertKey::Mac { port, mask, mac: exact(mac, 48)? }));
        }
        Some(Table::Destination) => {
            let [port, ether_type, address] = matches(rule)?;
            any_port(port)?;
            return destination(exact(ether_type, 16)?, exact(address, 128)?);
        }
        Some(Table::SourceV4) => {
            let [lb, address] = matches(rule)?;
            let address = Ipv4Addr::from_bits(exact(address, 32)? as u32);
            RuleKey::Source { lb: lb_key(lb)?, address: address.into() }
        }
        Some(Table::SourceV6) => {
            let [lb, address] = matches(rule)?;
            let address = Ipv6Addr::from_bits(exact(address, 128)?);
            RuleKey::Source { lb: lb_key(lb)?, address: address.into() }
        }
        Some(Table::Epoch) => {
            let [lb, tick] = matches(rule)?;
            RuleKey::Epoch { lb: lb_key(lb)?, ticks: prefix(tick)? }
        }
        Some(Table::Calendar) => {
            let [lb, epoch, slot] = matches(rule)?;
            RuleKey::Slot {
                lb: lb_key(lb)?,
                epoch: exact(epoch, 32)? as u32,
                slot: exact(slot, Epoch::MOST_BITS.into())? as u16,
            }
        }
        Some(Table::Member) => {
            let [lb, ether_type, id] = matches(rule)?;
            RuleKey::Member { lb: lb_key(lb)?, ip: ip(exact(ether_type, 16)?)?, id: exact(id, 16)? as u16 }
        }
    };
    Ok(Key::Plane(key))
}

pub(super) fn entry(rule: &TableRule) -> Result<Entry> {
    let key = key(rule)?;
    let action = P4Action::of(rule)?;
    let entry = match key {
        Key::Inert(key @ InertKey::Mac { .. }) => {
            let [mac] = action.parameters(names::SET_MAC, [48])?;
            return Ok(Entry::Inert(key, vec![mac]));
        }
        Key::Inert(key @ InertKey::Destination { .. }) => {
            let [address, lb] = action.parameters(names::SET_IP, [128, 3])?;
            return Ok(Entry::Inert(key, vec![address, lb]));
        }
        Key::Plane(RuleKey::Destination { address }) => {
            let [from, lb] = action.parameters(names::SET_IP, [128, 3])?;
            if from != bits(address) {
                let why = "packets leave from the address that they came to; set this one";
                return Err(RuleRefusal::new(ErrorCode::EcTableRuleParamInvalidFormat, why));
            }
            Rule::Destination { address, lb: lb_id(lb)? }
        }
        Key::Plane(RuleKey::Source { lb, address }) => {
            action.parameters(names::ALLOW_SOURCE, [])?;
            Rule::Source { lb, address }
        }
        Key::Plane(RuleKey::Epoch { lb, ticks }) => Rule::Epoch { lb, ticks, epoch: epoch(&action)? },
        Key::Plane(RuleKey::Slot { lb, epoch, slot }) => {
            let [member] = action.parameters(names::ASSIGN_MEMBER, [16])?;
            Rule::Slot { lb, epoch, slot, member: member as u16 }
        }
        Key::Plane(RuleKey::Member { lb, ip, id }) => Rule::Member { lb, ip, id, member: member(&action)? },
    };
    Ok(Entry::Plane(entry))
}

fn matches<const N: usize>(rule: &TableRule) -> Result<&[Match; N]> {
    let given = rule.matches.len();
    rule.matches.as_slice().try_into().map_err(|_| {
        let few = ErrorCode::EcTableRuleTooFewMatches;
        let code = if given < N { few } else { ErrorCode::EcTableRuleTooManyMatches };
        RuleRefusal::new(code, format!("{given} matches; {} takes {N}", rule.table_name))
    })
}

fn other_form(given: &Match, wanted: &str) -> RuleRefusal {
    let code = match given.r#type {
        None => ErrorCode::EcUnknownTableRuleMatchType,
        Some(_) => ErrorCode::EcTableRuleMatchInvalidFormat,
    };
    RuleRefusal::new(code, format!("a match of another form; give {wanted}"))
}

fn exact(given: &Match, bits: u32) -> Result<u128> {
    match &given.r#type {
        Some(Type::KeyOnly(it)) => number(&it.key, bits, KEY),
        _ => Err(other_form(given, "a key only")),
    }
}

/// A key and its mask.
fn masked(given: &Match) -> Result<(u128, u128)> {
    match &given.r#type {
        Some(Type::KeyMask(it)) => Ok((number(&it.key, 128, KEY)?, number(&it.mask, 128, MASK)?)),
        Some(Type::Unused(_)) => Ok((0, 0)),
        _ => Err(other_form(given, "a key with mask")),
    }
}

/// Sockets are not bound to ports of a card.
fn any_port(given: &Match) -> Result<()> {
    match masked(given)? {
        (_, 0) => Ok(()),
        _ => Err(RuleRefusal::new(
            ErrorCode::EcTableRuleMatchInvalidBitfieldMask,
            "there are no ingress ports to choose from; give mask 0",
        )),
    }
}

fn prefix(given: &Match) -> Result<TickPrefix> {
    let Some(Type::KeyPrefix(it)) = &given.r#type else {
        return Err(other_form(given, "a key with prefix"));
    };
    let tick = number(&it.key, 64, KEY)? as u64;
    let length = u8::try_from(it.prefix_length).unwrap_or(u8::MAX);
    TickPrefix::new(tick, length).map_err(|error| {
        let code = match error {
            RuleError::PrefixLength(_) => ErrorCode::EcTableRuleMatchInvalidPrefixLength,
            _ => ErrorCode::EcTableRuleMatchInvalidPrefixMask,
        };
        RuleRefusal::new(code, error.to_string())
    })
}

fn lb_key(given: &Match) -> Result<LbId> {
    lb_id(exact(given, 3)?)
}

fn lb_id(id: u128) -> Result<LbId> {
    LbId::new(id as u8).map_err(|error| refused(&error))
}

fn ip(ether_type: u128) -> Result<IpVersion> {
    match ether_type {
        IPV4 => Ok(IpVersion::V4),
        IPV6 => Ok(IpVersion::V6),
        _ => Err(no_ip(ether_type)),
    }
}

fn no_ip(ether_type: u128) -> RuleRefusal {
    let why = format!("EtherType {ether_type:#06x} is neither IPv4 nor IPv6");
    RuleRefusal::new(ErrorCode::EcTableRuleMatchInvalidKeyFormat, why)
}

fn destination(ether_type: u128, address: u128) -> Result<Key> {
    let v4 = |bits| {
        let address = u32::try_from(bits).map(Ipv4Addr::from_bits);
        let why = "an IPv4 address has 32 bits";
        address.map_err(|_| RuleRefusal::new(ErrorCode::EcTableRuleMatchKeyTooBig, why))
    };
    let unicast: IpAddr = match ether_type {
        IPV4 => v4(address)?.into(),
        // A multicast address is that of neighbour solicitations, which the host answers.
        IPV6 if Ipv6Addr::from_bits(address).is_multicast() => {
            return Ok(Key::Inert(InertKey::Destination { ether_type, address }));
        }
        IPV6 => Ipv6Addr::from_bits(address).into(),
        ARP => {
            v4(address)?;
            return Ok(Key::Inert(InertKey::Destination { ether_type, address }));
        }
        _ => return Err(no_ip(ether_type)),
    };
    Ok(Key::Plane(RuleKey::Destination { address: unicast }))
}

/// An action and its parameters.
struct P4Action<'a> {
    table: &'a str,
    name: &'a str,
    values: Vec<&'a str>,
}

impl<'a> P4Action<'a> {
    fn of(rule: &'a TableRule) -> Result<Self> {
        let missing = || RuleRefusal::new(ErrorCode::EcInvalidActionName, "the rule has no action");
        let action = rule.action.as_ref().ok_or_else(missing)?;
        let values = action.parameters.iter().map(|parameter| parameter.value.as_str()).collect();
        Ok(Self { table: &rule.table_name, name: &action.name, values })
    }

    fn unknown(&self) -> RuleRefusal {
        let shown: String = self.name.chars().take(40).collect();
        RuleRefusal::new(ErrorCode::EcInvalidActionName, format!("{} has no action {shown:?}", self.table))
    }

    /// Its parameters, of so many bits each, if this is its name.
    fn parameters<const N: usize>(&self, name: &str, bits: [u32; N]) -> Result<[u128; N]> {
        if self.name != name {
            return Err(self.unknown());
        }
        let given = self.values.len();
        if given != N {
            let few = ErrorCode::EcTableRuleTooFewActionParameters;
            let code = if given < N { few } else { ErrorCode::EcTableRuleTooManyActionParameters };
            return Err(RuleRefusal::new(code, format!("{given} parameters; {name} takes {N}")));
        }
        let mut parameters = [0; N];
        for ((parameter, value), bits) in parameters.iter_mut().zip(&self.values).zip(bits) {
            *parameter = number(value, bits, PARAMETER)?;
        }
        Ok(parameters)
    }
}

fn epoch(action: &P4Action<'_>) -> Result<Epoch> {
    if action.name == names::ASSIGN_EPOCH {
        let [id] = action.parameters(action.name, [32])?;
        return Ok(Epoch::new(id as u32));
    }
    let [id, slot_bits, xor] = action.parameters(names::ASSIGN_EPOCH_AND_SLOTS, [32, 5, 16])?;
    Ok(Epoch { id: id as u32, slot_bits: slot_bits as u8, xor: xor as u16 })
}

fn member(action: &P4Action<'_>) -> Result<Member> {
    let address_bits = match action.name {
        names::REWRITE_V4 => 32,
        names::REWRITE_V6 => 128,
        names::DROP | names::DROP_DEREGISTERED => {
            action.parameters(action.name, [])?;
            return Ok(Member::Deregistered);
        }
        _ => {
            action.parameters(names::DROP_SOFT_EVICTED, [])?;
            return Ok(Member::SoftEvicted);
        }
    };
    let [mac, address, port, port_bits, keep] =
        action.parameters(action.name, [48, address_bits, 16, 5, 1])?;
    let [_, _, mac @ ..] = (mac as u64).to_be_bytes();
    let address: IpAddr = match address_bits {
        32 => Ipv4Addr::from_bits(address as u32).into(),
        _ => Ipv6Addr::from_bits(address).into(),
    };
    Ok(Member::Forward(Forward {
        mac: (mac != [0; 6]).then_some(mac),
        address,
        port: port as u16,
        port_bits: port_bits as u8,
        keep_lb_header: keep == 1,
    }))
}

/// Why one of our tables does not take a rule.
pub(super) fn refused(error: &RuleError) -> RuleRefusal {
    let code = match error {
        RuleError::Full { .. } | RuleError::Exists(_) => ErrorCode::EcFailedInsertTableRule,
        RuleError::Slot(_) => ErrorCode::EcTableRuleMatchKeyTooBig,
        RuleError::SlotBits(_) | RuleError::PortBits(_) => ErrorCode::EcTableRuleParamTooBig,
        _ => ErrorCode::EcTableRuleParamInvalidFormat,
    };
    RuleRefusal::new(code, error.to_string())
}
