//! The reasons why a rule is refused.

use std::net::IpAddr;

use super::{
    LbId,
    rule::{Epoch, Forward, Rule, Table},
};

/// The reason why a table refuses a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("{table} is full, it takes {limit} rules; remove some first")]
    Full { table: Table, limit: usize },
    #[error("{0} has a rule for this key already; replace it, or remove it first")]
    Exists(Table),
    #[error("there is no load balancer {0}; they are 0 to {most}", most = LbId::COUNT - 1)]
    LbId(u8),
    #[error("a tick has 64 bits, so a prefix of {0} is none; give 0 to 64")]
    PrefixLength(u8),
    #[error("tick {value:#x} has bits beyond a prefix of {length}; clear them, or lengthen the prefix")]
    PrefixBits { value: u64, length: u8 },
    #[error("{0} slot bits are too many for {table}; give 0 to {most}", table = Table::Calendar, most = Epoch::MOST_BITS)]
    SlotBits(u8),
    #[error("slot {0} is too high for {table}; the highest is {most}", table = Table::Calendar, most = Rule::MOST_SLOT)]
    Slot(u16),
    #[error("a member listens on UDP port 0, which is none; give its first port")]
    PortBase,
    #[error("{0} port bits are too many; give 0 to {most}", most = Forward::MOST_BITS)]
    PortBits(u8),
    #[error("{0} is of the other IP version than the packets of its rule; give an address of the same")]
    Family(IpAddr),
    #[error("{0} is not the address of one host; give a unicast address")]
    NotUnicast(IpAddr),
}
