//! Connection management: the librdmacm model for RC queue pairs (RDMA_PS_TCP).

use std::net::SocketAddr;

use crate::Error;

/// The id of a connection or of a listener, unique on its device.
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
    /// The number of retries, 0-7, that a requester makes after time-outs before a request fails. On an RDMA device,
    /// the limit also includes retries after sequence errors. Both sides use the value of the active side.
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

impl ConnParam {
    /// Checks that the retry counts and `ack_timeout` fit the fields of a REQ or REP. `ack_timeout` is the exponent of
    /// the local ACK timeout that the connection will use.
    ///
    /// # Errors
    /// Fails with [`Error::Invalid`] if a retry count is more than 7, or if `ack_timeout` is more than 31.
    pub fn check_codes(&self, ack_timeout: u8) -> Result<(), Error> {
        if self.retry_count > 7 || self.rnr_retry_count > 7 {
            return Err(Error::Invalid("retry counts are 0-7"));
        }
        if ack_timeout > 31 {
            return Err(Error::Invalid("an ACK timeout is 0-31"));
        }
        Ok(())
    }
}

/// The addresses and ports of both ends of a connection. If a peer sent the connection request, the remote port is the
/// port that the private data of the request states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The address and TCP-space port of this side.
    pub local: SocketAddr,
    /// The address and TCP-space port of the peer.
    pub remote: SocketAddr,
}

/// The parameters of an established connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishedParam {
    /// On the active side, the private data of the peer's reply; on the passive side, an empty vector.
    pub private_data: Vec<u8>,
    /// The path MTU: the most bytes of payload per packet.
    pub path_mtu: u32,
    /// The number of READs that the peer may have outstanding at this side. Both sides agreed on this number.
    pub responder_resources: u8,
    /// The number of READs that this side may have outstanding at the peer. Both sides agreed on this number.
    pub initiator_depth: u8,
    /// True if the peer runs the embedded provider of this project. The verbs provider always reports false.
    pub embedded_peer: bool,
}

/// The reason codes of a REJ (IBTA vol. 1, 12.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// Reason 1: the rejecting side has no queue pair for the connection.
    pub const NO_QP: Self = Self(1);
    /// Reason 3: the rejecting side has no memory or no table entry for the connection, or too many connection requests
    /// wait at the rejecting side. The embedded provider also gives reason 3 if the program or the peer does not
    /// respond in time.
    pub const NO_RESOURCES: Self = Self(3);
    /// Reason 4: the sender of the REJ waited too long for a message of the other side.
    pub const TIMEOUT: Self = Self(4);
    /// Reason 5: the request is of a kind that the rejecting side does not support.
    pub const UNSUPPORTED: Self = Self(5);
    /// Reason 6: the rejecting side has no connection with the communication ID of the message.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// Reason 8: no program listens on the port of the request.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Reason 9: the request is for a transport service other than reliable connections.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// Reason 10: the rejecting side still has an earlier connection with the queue pair of the request.
    pub const STALE_CONNECTION: Self = Self(10);
    /// Reason 26: the path MTU of the request is larger than the rejecting side allows.
    pub const INVALID_PATH_MTU: Self = Self(26);
    /// Reason 28: the peer's program rejected the request.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The passive side did not reply within the connect time-out.
    #[error(
        "nothing answers; see whether a program listens there and firewalls let UDP port 4791 through both ways"
    )]
    NoAnswer,
    /// The passive side replied, but the active side never confirmed the reply.
    #[error("it asked for a connection and did not confirm it")]
    NotConfirmed,
    /// The connection request could not be sent, for example because there is no route to the peer. The verbs provider
    /// also reports `Network` if the queue pair cannot be connected after the peer's reply.
    #[error("the network refuses packets there; `ip route get ADDRESS` shows why")]
    Network,
}

/// What happened to a connection. The CM events of one connection come in the order in which they happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// A peer requests a connection. The program must call `accept` or `reject`; a request that is not answered
    /// expires.
    ConnectRequest {
        /// The listener that received the request.
        listener: CmId,
        /// The id of the new connection, for [`Driver::accept`](crate::Driver::accept) or
        /// [`Driver::reject`](crate::Driver::reject).
        id: CmId,
        /// The addresses of both sides.
        endpoints: Endpoints,
        /// The parameters that the peer offers, from the view of this side: `responder_resources` is the number of
        /// READs that the peer wants to have outstanding at this side.
        param: ConnParam,
    },
    /// The connection is established, and both sides can post work requests.
    Established {
        /// The connection that is established.
        id: CmId,
        /// The parameters on which both sides agreed.
        param: EstablishedParam,
    },
    /// The connection attempt has ended, because the peer or its connection manager sent a REJ.
    Rejected {
        /// The connection that was rejected.
        id: CmId,
        /// The reason code of the REJ.
        reason: RejectReason,
        /// The private data of the REJ, at most 148 bytes. The bytes that the peer's program passed may be followed by
        /// zeros, because a REJ has a field of fixed length for private data.
        private_data: Vec<u8>,
    },
    /// A connection attempt of this side or of the peer has failed for the reason `why`.
    Unreachable {
        /// The connection that could not be established.
        id: CmId,
        /// The reason why the connection attempt failed.
        why: Unreachable,
    },
    /// The connection has ended because the peer or this side disconnected; its queue pair is in the error state, and
    /// the work requests are flushed.
    Disconnected {
        /// The connection that has ended.
        id: CmId,
    },
}

impl CmEvent {
    /// Returns the id of the connection that the CM event is about.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_do_not_fit_a_request_are_refused() {
        let good = ConnParam::default();
        assert!(good.check_codes(0).is_ok() && good.check_codes(31).is_ok());
        let bad = [
            (ConnParam { retry_count: 8, ..good.clone() }, 0),
            (ConnParam { rnr_retry_count: 8, ..good.clone() }, 0),
            (good, 32),
        ];
        for (param, ack_timeout) in bad {
            assert!(matches!(param.check_codes(ack_timeout), Err(Error::Invalid(_))), "{param:?}");
        }
    }
}
