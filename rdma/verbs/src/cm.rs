//! Connection management: the librdmacm model for RC queue pairs (RDMA_PS_TCP).

use std::net::SocketAddr;

/// Names one connection, or one listener, of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CmId(pub u64);

/// The parameters that both sides of a connection offer, like `struct rdma_conn_param`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// The program's own bytes: at most 56 bytes in a request, at most 196 bytes in a reply.
    pub private_data: Vec<u8>,
    /// READs that the peer may have outstanding at this side.
    pub responder_resources: u8,
    /// READs that this side may have outstanding at the peer.
    pub initiator_depth: u8,
    /// How often the peer may send a message again that found no posted receive here, 0-7, where 7 is without limit.
    pub retry_count: u8,
    /// The local ACK timeout as the n of 4.096 us * 2^n, 0-31, where 0 is without limit. Only the active side uses it.
    /// `None` is the provider's default.
    pub rnr_retry_count: u8,
    /// How long to wait for an answer before the connection attempt is given up. Only the active side uses it. `None`
    /// is the provider's default.
    pub ack_timeout: Option<u8>,
    /// The time without an answer after which the connection attempt is given up; active side only. `None`: the
    /// provider's default.
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

/// Both ends of a connection. The remote port of an incoming request is the port that the request's private data
/// claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// The parameters of an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishedParam {
    /// The private data of the peer's reply on the active side; empty on the passive side.
    pub private_data: Vec<u8>,
    /// The path MTU: the most bytes of payload per packet.
    pub path_mtu: u32,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    /// Whether the peer runs the embedded provider of this project.
    pub embedded_peer: bool,
}

/// REJ reason codes (IBTA vol. 1, 12.6.7.2).
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
    /// Nothing answered within the connect time-out.
    NoAnswer,
    /// The passive side replied, but the active side never confirmed the reply.
    NotConfirmed,
    /// The network refused the packet at once (for example: no route).
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

/// What happened to a connection. CM events of one connection come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// A peer asks for a connection. The program answers with `accept` or `reject`; unanswered requests expire.
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
    /// The peer or this side disconnected; the queue pair is in the error state and its work requests are flushed.
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
