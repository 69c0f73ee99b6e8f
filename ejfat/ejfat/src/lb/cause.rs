//! The causes for which packets are dropped.

use crate::wire::Malformed;

named! {
    /// The cause for which a packet was dropped. The causes are in the order in which they are checked.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum DropCause {
        /// The packet is neither IPv4 nor IPv6, or its length differs from the length in its IP header.
        NotIp = "not_ip",
        /// The destination address belongs to no load balancer.
        BadIp = "bad_ip",
        /// The load balancer does not allow the source address.
        BlockedSrc = "blocked_src",
        /// The packet is a fragment, is not UDP, has a wrong length in its UDP header, is not for a data port, or has
        /// no whole LB header.
        NoUdplbHdr = "no_udplb_hdr",
        /// The LB header has a version other than 2 and 3.
        BadUdplbVersion = "bad_udplb_version",
        /// The TTL or hop limit is 1 or 0.
        TtlExpired = "ttl_expired",
        /// No epoch contains the packet's tick.
        EpochAssignMiss = "epoch_assign_miss",
        /// The packet's calendar slot has no member in the epoch's calendar.
        LbCalendarMiss = "lb_calendar_miss",
        /// The member has no rule for the packet's IP version.
        MbrInfoMiss = "mbr_info_miss",
        /// The member is soft-evicted, so nothing is sent to the member.
        MbrDropSoftEvicted = "mbr_drop_soft_evicted",
        /// The member is deregistered, so nothing is sent to the member.
        MbrDropDeregistered = "mbr_drop_deregistered",
    }

    /// All causes, in the order in which a packet is checked for them.
    ALL;
    /// Returns the name of the counter in the P4 data plane.
    name;
}

impl From<Malformed> for DropCause {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Short(_) | Malformed::Long(_) | Malformed::Magic(_) => Self::NoUdplbHdr,
            Malformed::Version(_) => Self::BadUdplbVersion,
        }
    }
}
