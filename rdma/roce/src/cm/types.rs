//! What goes into the connection manager and what comes out.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmEvent, CmId, ConnParam};

use crate::psn::Psn;

/// Bounds and identity of a device's connection manager.
#[derive(Clone, Debug)]
pub struct CmConfig {
    /// From [`embedded_guid`].
    pub ca_guid: u64,
    /// Largest path MTU in bytes that the link carries; requests for more are rejected (reason 26).
    pub max_path_mtu: u32,
    /// Local ACK timeout where `ConnParam` names none. 17 is 0.54 s, so a dead peer costs 4.3 s with 7 retries;
    /// rdma_cm's 19 makes that 17 s, and a kernel peer takes the value over.
    pub ack_timeout: u8,
    /// Gives a connect up where `ConnParam` names no time.
    pub connect_timeout: Duration,
    /// Gives an accepted request up that the peer does not confirm.
    pub confirm_timeout: Duration,
    /// Gives a request up that the application does not answer.
    pub answer_timeout: Duration,
    /// Connections in all states.
    pub max_connections: usize,
    /// Requests received and not yet established, of all listeners together.
    pub max_half_open: usize,
    /// Connections that are over but still answer repetitions; the oldest is forgotten first.
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

/// "naa" behind the locally-administered bit of an EUI-64: no vendor's adapter has such a GUID.
const EMBEDDED_MARK: u32 = 0x026e_6161;

/// The CA GUID of an embedded device, by which embedded peers know each other in REQ and REP.
pub const fn embedded_guid(random: u32) -> u64 {
    (EMBEDDED_MARK as u64) << 32 | random as u64
}

/// A peer with this GUID runs the embedded provider: its datagrams' UDP source port is where it listens.
pub const fn is_embedded(ca_guid: u64) -> bool {
    (ca_guid >> 32) as u32 == EMBEDDED_MARK
}

/// What [`super::Cm::connect`] needs.
#[derive(Clone, Copy, Debug)]
pub struct ConnectArgs<'a> {
    pub local: IpAddr,
    /// With the TCP-space port.
    pub remote: SocketAddr,
    /// Where the peer's UDP socket is: usually `remote`'s address with port 4791.
    pub peer: SocketAddr,
    pub qpn: u32,
    /// The first PSN this side expects to receive, chosen at random.
    pub starting_psn: Psn,
    /// 256, 512, 1024, 2048 or 4096 bytes.
    pub path_mtu: u32,
    pub param: &'a ConnParam,
}

/// How a queue pair is to be brought to ready-to-receive and ready-to-send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub id: CmId,
    /// The local queue pair.
    pub qpn: u32,
    pub remote_qpn: u32,
    /// First PSN to send.
    pub sq_psn: Psn,
    /// First PSN to receive.
    pub rq_psn: Psn,
    /// The UDP address packets go to. Packets come from its IP address, at any port.
    pub peer: SocketAddr,
    /// Bytes of payload per packet.
    pub path_mtu: u32,
    /// Sequence and time-out retries, 0-7.
    pub retry_count: u8,
    /// RNR retries, 0-7, where 7 is for ever.
    pub rnr_retry: u8,
    /// Local ACK timeout, 4.096 us * 2^n, 0-31.
    pub ack_timeout: u8,
    /// READs the peer may have outstanding towards us.
    pub responder_resources: u8,
    /// READs we may have outstanding towards the peer.
    pub initiator_depth: u8,
    pub embedded_peer: bool,
}

/// What the device has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmOutput {
    /// For the application.
    Event(CmEvent),
    Bind(Binding),
    /// Move this queue pair to the error state and flush it.
    FailQp {
        qpn: u32,
    },
    /// A request ended unanswered: an application that has not seen it need not any more.
    Withdrawn {
        id: CmId,
    },
}
