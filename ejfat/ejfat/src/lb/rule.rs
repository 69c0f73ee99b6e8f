//! The rules in the tables of the data plane.

use std::{fmt, net::IpAddr};

use super::{LbId, RuleError, TickPrefix};
use crate::segment::IpVersion;

named! {
    /// A table of the data plane.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Table {
        /// The addresses of the load balancers, to which senders send packets.
        Destination = "ip_dst_filter_table",
        /// The IPv4 addresses from which load balancers take packets.
        SourceV4 = "ipv4_src_filter_table",
        /// The IPv6 addresses from which load balancers take packets.
        SourceV6 = "ipv6_src_filter_table",
        /// The prefixes of ticks, each with its epoch.
        Epoch = "epoch_assign_table",
        /// The slots of all calendars, each with its member.
        Calendar = "load_balance_calendar_table",
        /// The states and destinations of the members.
        Member = "member_info_lookup_table",
    }

    /// All tables, in the order in which [`Rules::iter`](super::Rules::iter) returns their rules.
    ALL;
    /// Returns the name of the table in the P4 data plane.
    name;
}

impl Table {
    /// Returns the maximum number of rules that this table can have on our own data planes, for all load balancers
    /// together.
    pub const fn limit(self) -> usize {
        match self {
            Self::Destination => 2 * LbId::COUNT,
            Self::SourceV4 | Self::SourceV6 => 256,
            Self::Epoch => 1024,
            Self::Member => 2048,
            // The limit is enough for one epoch of 512 slots for each load balancer.
            Self::Calendar => 512 * LbId::COUNT,
        }
    }

    /// Returns the maximum number of rules that this table can have on ESnet's P4 data plane, for all load balancers
    /// together.
    pub const fn p4_limit(self) -> usize {
        match self {
            Self::Destination => 64,
            Self::SourceV4 | Self::SourceV6 => 256,
            Self::Epoch | Self::Member => 1024,
            // The limit is enough for four epochs of 512 slots for each load balancer.
            Self::Calendar => 4 * 512 * LbId::P4_COUNT,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An epoch, with the numbers by which a packet's slot in the epoch's calendar is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    /// The number of the epoch, by which slot rules name the epoch's calendar.
    pub id: u32,
    /// The number of bits of a slot number: the epoch's calendar has 2^`slot_bits` slots.
    pub slot_bits: u8,
    /// A number from which the calendar slot of a packet is computed. It is combined with the packet's
    /// [`LbHeader::slot_select`](crate::wire::LbHeader::slot_select) by exclusive or. The lowest `slot_bits` bits of
    /// the result are the slot number.
    pub xor: u16,
}

impl Epoch {
    /// The maximum of [`Epoch::slot_bits`]. The calendar table of ESnet's P4 data plane has room for 2^14
    /// slots.
    pub const MOST_BITS: u8 = 14;

    /// Creates an epoch with 512 slots, the default.
    pub fn new(id: u32) -> Self {
        Self { id, slot_bits: 9, xor: 0 }
    }
}

/// The destination of a member's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forward {
    /// The MAC address of the next hop, or `None` if the rule has no MAC address.
    pub mac: Option<[u8; 6]>,
    /// The IP address of the member.
    pub address: IpAddr,
    /// The first of the member's 2^`port_bits` UDP ports.
    pub port: u16,
    /// The number of bits that choose one of the member's UDP ports for a packet. They are the lowest bits of the
    /// packet's entropy or port select. The packet is sent to the UDP port `port` plus the number in these bits.
    pub port_bits: u8,
    /// True if the LB header stays in the packets that are sent to the member.
    pub keep_lb_header: bool,
}

impl Forward {
    /// The maximum of [`Forward::port_bits`], with which a member has 2^14 UDP ports.
    pub const MOST_BITS: u8 = 14;

    fn check(&self, ip: IpVersion) -> Result<(), RuleError> {
        if IpVersion::of(self.address) != ip {
            return Err(RuleError::Family(self.address));
        }
        if self.port == 0 {
            return Err(RuleError::PortBase);
        }
        if self.port_bits > Self::MOST_BITS {
            return Err(RuleError::PortBits(self.port_bits));
        }
        check_unicast(self.address)
    }
}

/// The state of a member, which decides whether packets are sent to the member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Member {
    /// Packets to the member are sent to this destination.
    Forward(Forward),
    /// The member is soft-evicted. Packets to a soft-evicted member are dropped and counted as
    /// [`DropCause::MbrDropSoftEvicted`](super::DropCause::MbrDropSoftEvicted).
    SoftEvicted,
    /// The member is deregistered. Packets to a deregistered member are dropped and counted as
    /// [`DropCause::MbrDropDeregistered`](super::DropCause::MbrDropDeregistered).
    Deregistered,
}

/// A rule of the data plane, which is one entry of one of its tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Packets to this address belong to the load balancer.
    Destination {
        /// The address of the load balancer.
        address: IpAddr,
        /// The load balancer to which packets to `address` belong.
        lb: LbId,
    },
    /// The load balancer takes packets from this address.
    Source {
        /// The load balancer that takes packets from `address`.
        lb: LbId,
        /// The source address whose packets the load balancer takes.
        address: IpAddr,
    },
    /// The ticks with the prefix `ticks` belong to the epoch `epoch`. If a tick matches the prefixes of several rules,
    /// the rule with the longest prefix applies.
    Epoch {
        /// The load balancer to which the epoch belongs.
        lb: LbId,
        /// The ticks that belong to the epoch.
        ticks: TickPrefix,
        /// The epoch, which also says how a packet's calendar slot is selected.
        epoch: Epoch,
    },
    /// A slot of an epoch's calendar is assigned to a member, which gets the packets of this slot.
    Slot {
        /// The load balancer to which the epoch belongs.
        lb: LbId,
        /// The number of the epoch.
        epoch: u32,
        /// The number of the slot in the epoch's calendar.
        slot: u16,
        /// The number of the member that gets the packets of the slot.
        member: u16,
    },
    /// The state and destination of a member, for packets of one IP version.
    Member {
        /// The load balancer to which the member belongs.
        lb: LbId,
        /// The IP version of the packets for which the rule holds.
        ip: IpVersion,
        /// The number of the member.
        id: u16,
        /// The state and destination of the member.
        member: Member,
    },
}

/// The key of a rule, which identifies the rule in its table. A table has at most one rule with each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKey {
    /// The key of [`Rule::Destination`].
    Destination {
        /// The address of the load balancer.
        address: IpAddr,
    },
    /// The key of [`Rule::Source`].
    Source {
        /// The load balancer that takes packets from `address`.
        lb: LbId,
        /// The source address whose packets the load balancer takes.
        address: IpAddr,
    },
    /// The key of [`Rule::Epoch`].
    Epoch {
        /// The load balancer to which the epoch belongs.
        lb: LbId,
        /// The ticks that belong to the epoch.
        ticks: TickPrefix,
    },
    /// The key of [`Rule::Slot`].
    Slot {
        /// The load balancer to which the epoch belongs.
        lb: LbId,
        /// The number of the epoch.
        epoch: u32,
        /// The number of the slot in the epoch's calendar.
        slot: u16,
    },
    /// The key of [`Rule::Member`].
    Member {
        /// The load balancer to which the member belongs.
        lb: LbId,
        /// The IP version of the packets for which the rule holds.
        ip: IpVersion,
        /// The number of the member.
        id: u16,
    },
}

impl Rule {
    /// The highest number of a calendar slot, which is the last slot of a calendar with [`Epoch::MOST_BITS`] slot bits.
    pub const MOST_SLOT: u16 = (1 << Epoch::MOST_BITS) - 1;

    /// Returns the key of the rule, which consists of the fields that identify the rule in its table.
    pub fn key(&self) -> RuleKey {
        match *self {
            Self::Destination { address, .. } => RuleKey::Destination { address },
            Self::Source { lb, address } => RuleKey::Source { lb, address },
            Self::Epoch { lb, ticks, .. } => RuleKey::Epoch { lb, ticks },
            Self::Slot { lb, epoch, slot, .. } => RuleKey::Slot { lb, epoch, slot },
            Self::Member { lb, ip, id, .. } => RuleKey::Member { lb, ip, id },
        }
    }

    pub(super) fn check(&self) -> Result<(), RuleError> {
        match *self {
            Self::Destination { address, .. } | Self::Source { address, .. } => check_unicast(address),
            Self::Epoch { epoch: Epoch { slot_bits, .. }, .. } if slot_bits > Epoch::MOST_BITS => {
                Err(RuleError::SlotBits(slot_bits))
            }
            Self::Slot { slot, .. } if slot > Self::MOST_SLOT => Err(RuleError::Slot(slot)),
            Self::Member { ip, member: Member::Forward(forward), .. } => forward.check(ip),
            _ => Ok(()),
        }
    }
}

fn check_unicast(address: IpAddr) -> Result<(), RuleError> {
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || broadcast {
        return Err(RuleError::NotUnicast(address));
    }
    Ok(())
}

impl RuleKey {
    /// Returns the table in which a rule with this key is stored.
    pub fn table(&self) -> Table {
        match self {
            Self::Destination { .. } => Table::Destination,
            Self::Source { address: IpAddr::V4(_), .. } => Table::SourceV4,
            Self::Source { address: IpAddr::V6(_), .. } => Table::SourceV6,
            Self::Epoch { .. } => Table::Epoch,
            Self::Slot { .. } => Table::Calendar,
            Self::Member { .. } => Table::Member,
        }
    }
}

/// Returns the rules of a calendar with 512 slots. The slots are assigned to `members` in turn. A member that `members`
/// lists several times gets more slots than a member that is listed once. If `members` is empty, no rules are returned.
pub fn calendar(lb: LbId, epoch: u32, members: &[u16]) -> Vec<Rule> {
    let slots = (0..512).zip(members.iter().cycle());
    slots.map(|(slot, &member)| Rule::Slot { lb, epoch, slot, member }).collect()
}
