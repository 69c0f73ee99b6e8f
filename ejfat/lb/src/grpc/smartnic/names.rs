//! What the P4 data plane calls its actions, and how its keys tell protocols apart. What is encoded and what is decoded
//! both take the names from here.

pub(super) const SET_MAC: &str = "set_mac_sa";
pub(super) const SET_IP: &str = "set_ip_sa";
pub(super) const ALLOW_SOURCE: &str = "allow_ip_src";
pub(super) const ASSIGN_EPOCH: &str = "do_assign_epoch";
pub(super) const ASSIGN_EPOCH_AND_SLOTS: &str = "do_assign_epoch_with_slot_sel_opts";
pub(super) const ASSIGN_MEMBER: &str = "do_assign_member";
pub(super) const REWRITE_V4: &str = "do_ipv4_member_rewrite";
pub(super) const REWRITE_V6: &str = "do_ipv6_member_rewrite";
pub(super) const DROP_SOFT_EVICTED: &str = "drop_soft_evicted";
pub(super) const DROP_DEREGISTERED: &str = "drop_deregistered";
/// The older name of what is told apart now. udplbd2 sends it for members that are gone.
pub(super) const DROP: &str = "drop";

/// EtherTypes.
pub(super) const IPV4: u128 = 0x0800;
pub(super) const ARP: u128 = 0x0806;
pub(super) const IPV6: u128 = 0x86dd;

pub(super) const RECEIVED_PACKETS: &str = "lb_ctx_rx_pkt_counter";
pub(super) const RECEIVED_BYTES: &str = "lb_ctx_rx_byte_counter";
pub(super) const RECEIVED_V2: &str = "lb_ctx_rx_v2_counter";
pub(super) const RECEIVED_V3: &str = "lb_ctx_rx_v3_counter";
pub(super) const SENT_PACKETS: &str = "lb_mbr_tx_pkt_counter";
pub(super) const SENT_BYTES: &str = "lb_mbr_tx_byte_counter";

/// Drop counters of members, which a card has and our data plane does not.
pub(super) const SOFT_EVICTED: &str = "lb_mbr_drop_soft_evicted_counter";
pub(super) const DEREGISTERED: &str = "lb_mbr_drop_deregistered_counter";

/// The counter of packets that load balancers dropped for a cause.
pub(super) fn dropped(cause: ejfat::lb::DropCause) -> String {
    format!("lb_ctx_drop_{}_pkt_counter", cause.name().trim_start_matches("mbr_drop_"))
}
