//! A connection: the data that all states have in common, and the current state with its own data.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmId, Endpoints, EstablishedParam};

use super::{MAX_EXTENSIONS, RESEND_FIRST, RESEND_MAX};
use crate::{
    time::Time,
    wire::mad::{CommIds, Mad, Req},
};

/// The values that identify a REQ and all its repetitions: the sender's IP address, CA GUID and communication ID.
pub(super) type RequestKey = (IpAddr, u64, u32);
/// The values that identify a peer's queue pair: the peer's IP address and CA GUID, and the QPN. The IP address is one
/// of these values, because a peer may claim the CA GUID of another peer.
pub(super) type RemoteQp = (IpAddr, u64, u32);

pub(super) fn remote_qp(from: SocketAddr, ca_guid: u64, qpn: u32) -> RemoteQp {
    (from.ip().to_canonical(), ca_guid, qpn)
}

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) comm_id: u32,
    /// The transaction ID of the REQ and of the responses to the REQ.
    pub(super) tid: u64,
    pub(super) endpoints: Endpoints,
    /// The UDP address to which CM messages for the peer are sent.
    pub(super) peer: SocketAddr,
    /// The number of the local queue pair; `None` in a request that is not accepted yet.
    pub(super) qpn: Option<u32>,
    /// The identifiers of the peer's queue pair, from the peer's REQ or REP; `None` before the REP arrives.
    pub(super) remote_ids: Option<RemoteIds>,
    /// The values that identify the peer's REQ; `None` on the active side.
    pub(super) request: Option<RequestKey>,
    /// The code of the local ACK timeout in the REQ, from which the duration of the state TimeWait is computed.
    pub(super) ack_timeout: u8,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RemoteIds {
    pub(super) comm_id: u32,
    pub(super) qp: RemoteQp,
}

#[derive(Debug)]
pub(super) enum State {
    ReqSent(Box<ReqSent>),
    ReqRcvd(Box<ReqRcvd>),
    RepSent(Box<RepSent>),
    Established {
        active: bool,
    },
    DreqSent(Box<DreqSent>),
    TimeWait,
    /// This side rejected the request. The REJ is stored, because a repetition of the REQ gets the same REJ.
    Refused(Box<Mad>),
}

#[derive(Debug)]
pub(super) struct ReqSent {
    pub(super) req: Mad,
    pub(super) path_mtu: u32,
    /// The time after which the connection attempt ends if no response arrives.
    pub(super) timeout: Duration,
    pub(super) retry: Retry,
}

#[derive(Debug)]
pub(super) struct ReqRcvd {
    pub(super) listener: CmId,
    pub(super) req: Req,
    pub(super) path_mtu: u32,
}

#[derive(Debug)]
pub(super) struct RepSent {
    pub(super) rep: Mad,
    pub(super) established: EstablishedParam,
    pub(super) retry: Retry,
}

#[derive(Debug)]
pub(super) struct DreqSent {
    pub(super) dreq: Mad,
    pub(super) retry: Retry,
}

impl Conn {
    pub(super) fn ids(&self) -> CommIds {
        CommIds { local: self.comm_id, remote: self.remote_ids.map_or(0, |remote_ids| remote_ids.comm_id) }
    }
}

/// The timer of a message that is repeated until a response arrives or the time limit ends.
#[derive(Debug)]
pub(super) struct Retry {
    interval: Duration,
    give_up: Time,
    extensions: u8,
}

impl Retry {
    pub(super) fn new(give_up: Time) -> Self {
        Self { interval: RESEND_FIRST, give_up, extensions: 0 }
    }

    /// Returns the time of the next repetition of a message that is sent at `now`.
    pub(super) fn first(&self, now: Time) -> Time {
        self.next(now + self.interval)
    }

    /// Doubles the time between repetitions, up to [`RESEND_MAX`]. Returns the time of the next repetition of
    /// a message that is repeated at `now`.
    pub(super) fn repeat(&mut self, now: Time) -> Time {
        self.interval = (self.interval * 2).min(RESEND_MAX);
        self.first(now)
    }

    /// Returns the time at which the timer is to expire: `at`, or the end of the time limit if the time limit ends
    /// before `at`.
    pub(super) fn next(&self, at: Time) -> Time {
        at.min(self.give_up)
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.give_up
    }

    /// Handles an MRA, by which the peer asks this side to wait until `until`. The new time limit is the sum of `until`
    /// and `timeout`, unless the old time limit is later than this sum. Returns false and changes nothing if the peer
    /// has sent too many MRAs.
    pub(super) fn extend(&mut self, until: Time, timeout: Duration) -> bool {
        if self.extensions >= MAX_EXTENSIONS {
            return false;
        }
        self.extensions += 1;
        self.give_up = self.give_up.max(until + timeout);
        true
    }
}
