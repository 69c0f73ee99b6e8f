//! Connection management: the librdmacm model for RC queue pairs (RDMA_PS_TCP).

use std::net::SocketAddr;

/// Names one connection, or one listener, of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmId(pub u64);

/// The parameters that both sides of a connection offer, like `struct rdma_conn_param`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// The bytes that the program sends to the peer's program: at most 56 bytes in a request, and at most 196 bytes in
    /// a reply.
    pub private_data: Vec<u8>,
    /// The number of READs that the peer may have outstanding at this side.
    pub responder_resources: u8,
    /// The number of READs that this side may have outstanding at the peer.
    pub initiator_depth: u8,
    /// The number of retries, 0-7, after a time-out or a sequence error before a request fails; both sides use the
    /// value of the active side.
    pub retry_count: u8,
    /// The number of retries, 0-7, that the peer may make after an RNR NAK of this side; 7 means that there is no
    /// limit.
    pub rnr_retry_count: u8,
    /// The exponent n, 0-31, of the local ACK timeout, which is 4.096 us * 2^n; 0 means that there is no time limit.
    /// Only the active side uses this value. If the value is `None`, the provider's default is used.
    pub ack_timeout: Option<u8>,
    /// If the peer does not reply within this time, the active side gives up the connection attempt. If the value is
    /// `None`, the provider's default is used.
    pub connect_timeout: Option<std::time::Duration>,
}

impl Default for ConnParam {
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: 1,
            initiator_depth: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout: None,
            connect_timeout: None,
        }
    }
}

/// Both ends of a connection. If the connection request came from a peer, the remote port is the port that the
/// request's private data claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The parameters of an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishedParam {
    /// On the active side, the private data of the peer's reply; on the passive side, an empty vector.
    pub private_data: Vec<u8>,
    /// The path MTU: the most bytes of payload per packet.
    pub path_mtu: u32,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    /// Whether the peer runs the embedded provider of this project.
    pub embedded_peer: bool,
}

/// The reason codes of a REJ (IBTA vol. 1, 12.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u16);

impl RejectReason {
    pub const NO_QP: Self = Self(1);
    pub const NO_RESOURCES: Self = Self(3);
    pub const TIMEOUT: Self = Self(4);
    pub const UNSUPPORTED: Self = Self(5);
    pub const INVALID_COMM_ID: Self = Self(6);
    pub const INVALID_SERVICE_ID: Self = Self(8);
    pub const INVALID_TRANSPORT: Self = Self(9);
    pub const STALE_CONNECTION: Self = Self(10);
    pub const INVALID_PATH_MTU: Self = Self(26);
    pub const CONSUMER_DEFINED: Self = Self(28);
}

impl std::fmt::Display for RejectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::NO_QP => f.write_str("no queue pair available (1)"),
            Self::NO_RESOURCES => f.write_str("no resources available (3)"),
            Self::TIMEOUT => f.write_str("time-out (4)"),
            Self::UNSUPPORTED => f.write_str("unsupported request (5)"),
            Self::INVALID_COMM_ID => f.write_str("invalid communication ID (6)"),
            Self::INVALID_SERVICE_ID => f.write_str("nobody listens on that port (8)"),
            Self::INVALID_TRANSPORT => f.write_str("invalid transport service type (9)"),
            Self::STALE_CONNECTION => f.write_str("stale connection (10)"),
            Self::INVALID_PATH_MTU => f.write_str("its link carries smaller packets only (26)"),
            Self::CONSUMER_DEFINED => f.write_str("refused by the application (28)"),
            Self(other) => write!(f, "reason {other}"),
        }
    }
}

/// The reason why a connection attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// The passive side did not reply within the connect time-out.
    NoAnswer,
    /// The passive side replied, but the active side never confirmed the reply.
    NotConfirmed,
    /// The network refused the request immediately, for example because there is no route to the peer.
    Network,
}

impl std::fmt::Display for Unreachable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => {
                "nothing answers; see whether a program listens there and firewalls let UDP port 4791 through both ways"
            }
            Self::NotConfirmed => "it asked for a connection and did not confirm it",
            Self::Network => "the network refuses packets there; `ip route get ADDRESS` shows why",
        })
    }
}

/// What happened to a connection. The CM events of one connection come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// A peer requests a connection. The program must call `accept` or `reject`; a request that is not answered
    /// expires.
    ConnectRequest {
        listener: CmId,
        id: CmId,
        endpoints: Endpoints,
        param: ConnParam,
    },
    Established {
        id: CmId,
        param: EstablishedParam,
    },
    Rejected {
        id: CmId,
        reason: RejectReason,
        private_data: Vec<u8>,
    },
    Unreachable {
        id: CmId,
        why: Unreachable,
    },
    /// The connection has ended because the peer or this side disconnected; its queue pair is in the error state, and
    /// the work requests are flushed.
    Disconnected {
        id: CmId,
    },
}

impl CmEvent {
    /// The connection that the event is about.
    pub fn id(&self) -> CmId {
        match self {
            Self::ConnectRequest { id, .. }
            | Self::Established { id, .. }
            | Self::Rejected { id, .. }
            | Self::Unreachable { id, .. }
            | Self::Disconnected { id } => *id,
        }
    }
}
