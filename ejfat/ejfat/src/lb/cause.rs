//! Why packets are dropped.

use crate::wire::Malformed;

/// In the order in which they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum DropCause {
    /// Neither an IPv4 nor an IPv6 packet, or not as long as it says.
    NotIp,
    /// To an address of no load balancer.
    BadIp,
    /// From an address that the load balancer does not allow.
    BlockedSrc,
    /// Not UDP to a data port with a whole LB header, or a fragment.
    NoUdplbHdr,
    /// An LB header of a version other than 2 and 3.
    BadUdplbVersion,
    /// TTL or hop limit of 1 or 0.
    TtlExpired,
    /// No epoch has the tick.
    EpochAssignMiss,
    /// The epoch's calendar has no such slot.
    LbCalendarMiss,
    /// The member has no entry for the packet's IP version.
    MbrInfoMiss,
    MbrDropSoftEvicted,
    MbrDropDeregistered,
}

impl DropCause {
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

    /// As the P4 data plane's counters call it.
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
