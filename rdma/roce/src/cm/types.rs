//! The inputs and outputs of the connection manager.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmEvent, CmId, ConnParam};

use crate::psn::Psn;

/// The limits and the identity of a device's connection manager.
#[derive(Clone, Debug)]
pub struct CmConfig {
    /// The GUID of the device, made by [`embedded_guid`].
    pub ca_guid: u64,
    /// The largest path MTU in bytes that the link carries; requests with a larger one are rejected (reason 26).
    pub max_path_mtu: u32,
    /// The local ACK timeout if `ConnParam` sets none. The code 17 is 0.54 s, so a dead peer is found after 4.3 s with
    /// 7 retries; with rdma_cm's 19 that takes 17 s. Kernel peers take the value over.
    pub ack_timeout: u8,
    /// The time limit of a connection attempt if `ConnParam` sets none.
    pub connect_timeout: Duration,
    /// The time limit for the peer to confirm an accepted request.
    pub confirm_timeout: Duration,
    /// The time limit for the application to answer a request.
    pub answer_timeout: Duration,
    /// The most connections in all states.
    pub max_connections: usize,
    /// The most requests that are received and not yet established, of all listeners together.
    pub max_half_open: usize,
    /// The most connections that have ended but still answer repetitions; the oldest is forgotten first.
    pub max_lingering: usize,
}

impl CmConfig {
    pub fn new(ca_guid: u64, max_path_mtu: u32) -> Self {
        Self {
            ca_guid,
            max_path_mtu,
            ack_timeout: 17,
            connect_timeout: Duration::from_secs(10),
            confirm_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(30),
            max_connections: 16_384,
            max_half_open: 256,
            max_lingering: 1024,
        }
    }
}

/// The upper half of the GUID: "naa" behind the locally-administered bit of an EUI-64, so that no vendor's adapter has
/// such a GUID.
const EMBEDDED_MARK: u32 = 0x026e_6161;

/// The CA GUID of an embedded device, by which embedded peers recognise each other in REQ and REP.
pub const fn embedded_guid(random: u32) -> u64 {
    (EMBEDDED_MARK as u64) << 32 | random as u64
}

/// Whether a peer with this GUID runs the embedded provider: it then receives at the UDP port from which it sends.
pub const fn is_embedded(ca_guid: u64) -> bool {
    (ca_guid >> 32) as u32 == EMBEDDED_MARK
}

/// The arguments of [`super::Cm::connect`].
#[derive(Clone, Copy, Debug)]
pub struct ConnectArgs<'a> {
    pub local: IpAddr,
    /// The peer's address, with the TCP-space port.
    pub remote: SocketAddr,
    /// The address of the peer's UDP socket: usually `remote`'s address with port 4791.
    pub peer: SocketAddr,
    pub qpn: u32,
    /// The first PSN that this side expects to receive, chosen at random.
    pub starting_psn: Psn,
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub path_mtu: u32,
    pub param: &'a ConnParam,
}

/// The parameters with which a queue pair is brought to ready-to-receive and ready-to-send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub id: CmId,
    /// The local queue pair.
    pub qpn: u32,
    pub remote_qpn: u32,
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// The first PSN to receive.
    pub rq_psn: Psn,
    /// The UDP address to which packets go. The peer's packets come from its IP address, with any port.
    pub peer: SocketAddr,
    /// The path MTU: the most bytes of payload per packet.
    pub path_mtu: u32,
    /// The retries after a sequence error or time-out, 0-7.
    pub retry_count: u8,
    /// The RNR retries, 0-7, where 7 is without limit.
    pub rnr_retry: u8,
    /// The local ACK timeout, 4.096 us * 2^n, n in 0-31.
    pub ack_timeout: u8,
    /// READs that the peer may have outstanding at this side.
    pub responder_resources: u8,
    /// READs that this side may have outstanding at the peer.
    pub initiator_depth: u8,
    pub embedded_peer: bool,
}

/// The actions of the device, which it must execute in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmOutput {
    /// An event for the application.
    Event(CmEvent),
    Bind(Binding),
    /// Move this queue pair to the error state and flush it.
    FailQp {
        qpn: u32,
    },
    /// A request ended unanswered. If the application has not seen it yet, it need not see it.
    Withdrawn {
        id: CmId,
    },
}
