//! The reasons why a rule is refused.

use std::net::IpAddr;

use super::{
    LbId,
    rule::{Epoch, Forward, Rule, Table},
};

/// The reason why a table refuses a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// The table has as many rules as it can have.
    #[error("{table} is full, it takes {limit} rules; remove some first")]
    Full {
        /// The table that is full.
        table: Table,
        /// The maximum number of rules of the table, for all load balancers together.
        limit: usize,
    },
    /// The table has another rule with the same key, and the caller did not allow a replacement.
    #[error("{0} has a rule for this key already; replace it, or remove it first")]
    Exists(Table),
    /// The number is not the id of a load balancer, because it is not below [`LbId::COUNT`].
    #[error("there is no load balancer {0}; they are 0 to {most}", most = LbId::COUNT - 1)]
    LbId(u8),
    /// The length of a tick prefix is above 64 bits.
    #[error("a tick has 64 bits, so a prefix of {0} is none; give 0 to 64")]
    PrefixLength(u8),
    /// A tick prefix has a bit that is not 0 behind its `length` leading bits.
    #[error("tick {value:#x} has bits beyond a prefix of {length}; clear them, or lengthen the prefix")]
    PrefixBits {
        /// The value of the tick prefix.
        value: u64,
        /// The length of the tick prefix in bits.
        length: u8,
    },
    /// An epoch has more than [`Epoch::MOST_BITS`] slot bits. The calendar of an epoch with n slot bits has
    /// 2^n slots.
    #[error("{0} slot bits are too many for {table}; give 0 to {most}", table = Table::Calendar, most = Epoch::MOST_BITS)]
    SlotBits(u8),
    /// The number of a calendar slot is above [`Rule::MOST_SLOT`].
    #[error("slot {0} is too high for {table}; the highest is {most}", table = Table::Calendar, most = Rule::MOST_SLOT)]
    Slot(u16),
    /// The first UDP port of a member is 0.
    #[error("a member listens on UDP port 0, which is none; give its first port")]
    PortBase,
    /// The number of port bits of a member is above [`Forward::MOST_BITS`].
    #[error("{0} port bits are too many; give 0 to {most}", most = Forward::MOST_BITS)]
    PortBits(u8),
    /// A rule is for packets of one IP version, but the address of the rule's member has the other IP version.
    #[error("{0} is of the other IP version than the packets of its rule; give an address of the same")]
    Family(IpAddr),
    /// The address is unspecified, multicast or broadcast, so it is not the address of one machine.
    #[error("{0} is not the address of one host; give a unicast address")]
    NotUnicast(IpAddr),
}
