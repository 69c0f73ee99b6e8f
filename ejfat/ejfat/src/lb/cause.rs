//! The causes for which packets are dropped.

use crate::wire::Malformed;

/// The cause for which a packet was dropped. The causes are in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropCause {
    /// The packet is neither IPv4 nor IPv6, or its length differs from the length in its IP header.
    NotIp,
    /// The destination address belongs to no load balancer.
    BadIp,
    /// The load balancer does not allow the source address.
    BlockedSrc,
    /// The packet is a fragment, is not UDP, has a wrong length in its UDP header, is not for a data port, or has no
    /// whole LB header.
    NoUdplbHdr,
    /// The LB header has a version other than 2 and 3.
    BadUdplbVersion,
    /// The TTL or hop limit is 1 or 0.
    TtlExpired,
    /// No epoch has the packet's tick.
    EpochAssignMiss,
    /// The slot of the packet has no member in the epoch's calendar.
    LbCalendarMiss,
    /// The member has no rule for the packet's IP version.
    MbrInfoMiss,
    /// The member is soft-evicted, so nothing is sent to the member.
    MbrDropSoftEvicted,
    /// The member is deregistered, so nothing is sent to the member.
    MbrDropDeregistered,
}

impl DropCause {
    /// All causes, in the order in which a packet is checked for them.
    pub const ALL: [Self; 11] = [
        Self::NotIp,
        Self::BadIp,
        Self::BlockedSrc,
        Self::NoUdplbHdr,
        Self::BadUdplbVersion,
        Self::TtlExpired,
        Self::EpochAssignMiss,
        Self::LbCalendarMiss,
        Self::MbrInfoMiss,
        Self::MbrDropSoftEvicted,
        Self::MbrDropDeregistered,
    ];

    /// Returns the name of the counter in the P4 data plane.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotIp => "not_ip",
            Self::BadIp => "bad_ip",
            Self::BlockedSrc => "blocked_src",
            Self::NoUdplbHdr => "no_udplb_hdr",
            Self::BadUdplbVersion => "bad_udplb_version",
            Self::TtlExpired => "ttl_expired",
            Self::EpochAssignMiss => "epoch_assign_miss",
            Self::LbCalendarMiss => "lb_calendar_miss",
            Self::MbrInfoMiss => "mbr_info_miss",
            Self::MbrDropSoftEvicted => "mbr_drop_soft_evicted",
            Self::MbrDropDeregistered => "mbr_drop_deregistered",
        }
    }
}

impl From<Malformed> for DropCause {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short(_) | Malformed::Magic(_) => Self::NoUdplbHdr,
            Malformed::Version(_) => Self::BadUdplbVersion,
        }
    }
}
