//! The inputs and outputs of the connection manager.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmEvent, CmId, ConnParam};

use crate::{endpoint::QpAttr, psn::Psn};

/// The limits and the identity of a device's connection manager.
#[derive(Clone, Debug)]
pub struct CmConfig {
    /// The GUID of the device, made by [`embedded_guid`].
    pub ca_guid: u64,
    /// The largest path MTU in bytes that the network allows. A request with a larger path MTU is rejected with reason
    /// 26.
    pub max_path_mtu: u32,
    /// The code of the local ACK timeout if `ConnParam` sets no ACK timeout. The default code 17 is 0.54 s. With 7
    /// retries, a dead peer is noticed after about 5.3 s. This time consists of about 1 s of shorter retransmission
    /// intervals and of 8 ACK timeouts, which are 4.3 s. The Linux kernel's rdma_cm uses the code 19, with which 8 ACK
    /// timeouts would be 17 s. A Linux kernel peer takes the ACK timeout of its queue pair from the REQ that it
    /// receives. The code therefore also decides how soon such a peer notices that this side is dead.
    pub ack_timeout: u8,
    /// The time limit of a connection attempt if `ConnParam` sets no time limit.
    pub connect_timeout: Duration,
    /// The time limit for the peer to confirm an accepted request.
    pub confirm_timeout: Duration,
    /// The time limit for the application to accept or reject a request.
    pub answer_timeout: Duration,
    /// The maximum number of connections, in all states together.
    pub max_connections: usize,
    /// The maximum number of half-open requests of all listeners together. A request is half-open until its connection
    /// is established.
    pub max_half_open: usize,
    /// The maximum number of ended connections that are kept to respond to repeated messages. If there are more ended
    /// connections than this limit, the oldest ended connection is forgotten.
    pub max_lingering: usize,
}

impl CmConfig {
    /// Returns the default limits for a device with the GUID `ca_guid`. `max_path_mtu` is in bytes.
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

/// The upper half of the GUID of a device of the embedded provider: the locally-administered bit of
/// an EUI-64, and the letters "naa". GUIDs of vendors' RDMA devices begin with other bytes.
const EMBEDDED_MARK: u32 = 0x026e_6161;

/// Returns the CA GUID of a device of the embedded provider. Peers that use the embedded provider recognise each other
/// by this GUID in REQ and REP.
pub const fn embedded_guid(random: u32) -> u64 {
    (EMBEDDED_MARK as u64) << 32 | random as u64
}

/// Returns true if a peer with this GUID uses the embedded provider. A peer that uses the embedded provider receives at
/// the UDP port from which it sends, so packets for this peer are sent to that port.
pub const fn is_embedded(ca_guid: u64) -> bool {
    (ca_guid >> 32) as u32 == EMBEDDED_MARK
}

/// The arguments of [`super::Cm::connect`].
#[derive(Clone, Copy, Debug)]
pub struct ConnectArgs<'a> {
    /// The IP address of this side.
    pub local: IpAddr,
    /// The peer's address, with a TCP-space port (RDMA_PS_TCP).
    pub remote: SocketAddr,
    /// The address of the peer's UDP socket: usually the IP address of `remote` with port 4791.
    pub peer: SocketAddr,
    /// The number of the local queue pair.
    pub qpn: u32,
    /// The first PSN that this side expects to receive, chosen at random.
    pub starting_psn: Psn,
    /// The path MTU: 256, 512, 1024, 2048 or 4096 bytes.
    pub path_mtu: u32,
    /// The parameters that the application offers to the peer.
    pub param: &'a ConnParam,
}

/// The parameters with which a queue pair is brought to ready-to-receive and ready-to-send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The connection to which the queue pair belongs.
    pub id: CmId,
    /// The number of the local queue pair.
    pub qpn: u32,
    /// The parameters of the connection.
    pub attr: QpAttr,
}

/// An output of the connection manager. The device must execute the outputs in the order in which the connection
/// manager returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CmOutput {
    /// A CM event for the application.
    Event(CmEvent),
    /// The device must connect the queue pair [`Binding::qpn`] with the parameters [`Binding::attr`].
    Bind(Binding),
    /// The device must move this queue pair to the error state and flush it.
    FailQp {
        /// The number of the local queue pair.
        qpn: u32,
    },
    /// A connection request ended before the application accepted or rejected it. If the application has not read the
    /// CM event of the connection request yet, the device drops the CM event.
    Withdrawn {
        /// The id of the connection request that ended.
        id: CmId,
    },
}
