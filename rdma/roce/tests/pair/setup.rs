//! The settings of the two connected ends of a test's [`Pair`](super::Pair).

use std::net::SocketAddr;

use roce::{Config, QpAttr};
use verbs::QpCap;

use super::{MTU, PSN_A, PSN_B};

/// The settings of both ends of a [`Pair`](super::Pair). A test changes the default settings by the closure that it
/// passes to [`Pair::with`](super::Pair::with).
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) cap: QpCap,
    pub(crate) cq_depth: u32,
    pub(crate) psn: [u32; 2],
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) embedded: bool,
    /// True if A tells B from its first packet on that it takes carried acknowledgements.
    pub(crate) offers_carried_acks: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            config: Config::default(),
            cap: QpCap::default(),
            cq_depth: 512,
            psn: [PSN_A, PSN_B],
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout: 14,
            responder_resources: 4,
            initiator_depth: 4,
            embedded: true,
            offers_carried_acks: false,
        }
    }
}

impl Setup {
    /// Returns the parameters of a connection to the queue pair `remote_qpn` at the address `peer`.
    pub(crate) fn attr(&self, peer: SocketAddr, remote_qpn: u32, [send_psn, recv_psn]: [u32; 2]) -> QpAttr {
        QpAttr {
            peer,
            remote_qpn,
            path_mtu: MTU,
            send_psn,
            recv_psn,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            ack_timeout: self.ack_timeout,
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            embedded_peer: self.embedded,
            offers_carried_acks: self.offers_carried_acks,
        }
    }
}
