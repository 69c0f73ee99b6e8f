//! One connection: the data that all states have, and the state with its own data.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use verbs::{CmId, Endpoints, EstablishedParam};

use super::{MAX_EXTENSIONS, RESEND_FIRST, RESEND_MAX};
use crate::{
    psn::Psn,
    time::Time,
    wire::mad::{CommIds, Mad, Req},
};

/// Identifies a request, however often it is repeated: the sender's address, CA GUID and communication ID.
pub(super) type RequestKey = (IpAddr, u64, u32);
/// A peer's queue pair: CA GUID and number.
pub(super) type RemoteQp = (u64, u32);

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) comm_id: u32,
    /// The transaction ID of the REQ, which its answers repeat.
    pub(super) tid: u64,
    pub(super) endpoints: Endpoints,
    /// The address to which messages are sent.
    pub(super) peer: SocketAddr,
    /// The local queue pair; a request not yet accepted has none.
    pub(super) qpn: Option<u32>,
    /// The data of the peer's queue pair, known from its REQ or REP on.
    pub(super) link: Option<Link>,
    /// The key of the peer's REQ, on the passive side.
    pub(super) request: Option<RequestKey>,
    /// The local ACK timeout code of both sides, from which the time-wait is computed.
    pub(super) ack_timeout: u8,
    pub(super) state: State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
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
    /// The request was rejected; the REJ is kept for repetitions of the REQ.
    Refused(Box<Mad>),
}

#[derive(Debug)]
pub(super) struct ReqSent {
    pub(super) req: Mad,
    pub(super) starting_psn: Psn,
    pub(super) path_mtu: u32,
    pub(super) retry_count: u8,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    /// The time without an answer after which the attempt ends.
    pub(super) patience: Duration,
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
        CommIds { local: self.comm_id, remote: self.link.map_or(0, |link| link.comm_id) }
    }
}

/// The times at which a message is repeated, and at which the repetitions end.
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

    /// The time of the first repetition of a message sent `now`.
    pub(super) fn first(&self, now: Time) -> Time {
        self.next(now + self.interval)
    }

    /// The time of the next repetition, after one was sent `now`.
    pub(super) fn again(&mut self, now: Time) -> Time {
        self.interval = (self.interval * 2).min(RESEND_MAX);
        self.first(now)
    }

    /// The time for a timer: `at`, or the time for giving up if that is earlier.
    pub(super) fn next(&self, at: Time) -> Time {
        at.min(self.give_up)
    }

    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.give_up
    }

    /// Notes that the peer asked to wait until `until`; the time limit `patience` starts anew after that. Returns false
    /// if the peer asked too often.
    pub(super) fn extend(&mut self, until: Time, patience: Duration) -> bool {
        if self.extensions >= MAX_EXTENSIONS {
            return false;
        }
        self.extensions += 1;
        self.give_up = self.give_up.max(until + patience);
        true
    }
}
