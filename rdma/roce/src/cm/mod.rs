//! The connection manager of one device, for the active and the passive side (IBTA vol. 1, 12.9; Linux: cm.c and
//! cma.c).
//!
//! The inputs are `connect`, `listen`, `accept`, `reject`, `disconnect`, `destroy`, `handle_mad`, `handle_timeout`,
//! `data_arrived` and `send_failed`. After an input, the caller calls [`Cm::poll_transmit`] and [`Cm::poll_output`]
//! until both return `None`, and gets the time of the next timer from [`Cm::poll_timeout`]. The caller must execute the
//! results of [`Cm::poll_output`] in their order. A queue pair is then connected to its peer before the application
//! gets the CM event that reports the connection.
//!
//! In the table below, the number after REJ is the reason code of the REJ. "Bind" and "fail" are outputs that change
//! the queue pair.
//!
//! | state | input | does | next |
//! |---|---|---|---|
//! | - | connect | REQ | ReqSent |
//! | ReqSent | REP | bind, RTU, Established | Established |
//! | ReqSent | REJ | Rejected | - |
//! | ReqSent | REJ 26 with a smaller path MTU | REQ with this path MTU | ReqSent |
//! | ReqSent, RepSent | MRA | longer wait | the same |
//! | ReqSent | 250 ms, doubling to 2 s | REQ again | ReqSent |
//! | ReqSent | connect time-out | REJ 4, Unreachable | - |
//! | - | REQ | ConnectRequest | ReqRcvd |
//! | - | REQ that is refused | REJ: 8 without a listener, 10 if stale, 3 if full, 5, 9 or 26 for a wrong field | - |
//! | ReqRcvd | REQ again | MRA | ReqRcvd |
//! | ReqRcvd | accept | bind, REP | RepSent |
//! | ReqRcvd | reject | REJ 28 | Refused |
//! | ReqRcvd | answer time-out | REJ 3, Withdrawn | Refused |
//! | RepSent | RTU or data | Established | Established |
//! | RepSent | REQ again, 250 ms doubling | REP again | RepSent |
//! | RepSent | REJ | fail the queue pair, Rejected | - |
//! | RepSent | disconnect | REJ 28, fail, Disconnected | TimeWait |
//! | RepSent | confirm time-out | REJ 3, fail, Unreachable | TimeWait |
//! | ReqRcvd | REJ 4 of an active side that gave up | Withdrawn | - |
//! | RepSent | REJ 4 of an active side that gave up | fail, Unreachable | - |
//! | ReqRcvd | displaced by a REQ from another source network | REJ 3, Withdrawn | - |
//! | RepSent | displaced by a REQ from another source network | REJ 3, fail, Unreachable | - |
//! | Established | REP again | RTU again | Established |
//! | Established | disconnect, or the peer's queue pair in a new REQ or REP | DREQ, fail, Disconnected | DreqSent |
//! | Established, RepSent | DREQ | DREP, fail, Disconnected | TimeWait |
//! | Established | REJ | fail, Disconnected | TimeWait |
//! | DreqSent | 250 ms doubling, three times | DREQ again | DreqSent |
//! | DreqSent | 1.8 s without DREP | | TimeWait |
//! | DreqSent | DREP, or DREQ (answered by DREP) | | TimeWait |
//! | TimeWait | DREQ | DREP | TimeWait |
//! | DreqSent, TimeWait | REQ again, or a new REQ from the same queue pair | REJ 10 | the same |
//! | Refused | REQ again | the same REJ | Refused |
//! | TimeWait, Refused | time | | - |
//!
//! After `disconnect`, the CM event `Disconnected` comes at once, and does not wait for a message of the peer. A CM
//! message that is not expected in the state of its connection is dropped. Dropped messages are counted, with three
//! exceptions: a repeated RTU, a DREP in the state TimeWait, and a REJ 26 that responds to an earlier REQ than the
//! newest one. A datagram whose communication IDs or source address belong to no connection is dropped and counted. A
//! DREQ for an unknown communication ID is counted and gets a DREP.

mod active;
mod counters;
mod passive;
mod release;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod types;

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

pub use counters::CmCounters;
use state::State;
use table::CmTable;
pub use types::{Binding, CmConfig, CmOutput, ConnectArgs, embedded_guid, is_embedded};
use verbs::{CmEvent, CmId, Endpoints, Error, RejectReason};

use crate::{
    entropy::Entropy,
    refusal::RefusalCause,
    time::Time,
    wire::mad::{Answered, CmMessage, CommIds, MAD_LEN, Mad, Mra, Rej},
};

/// The time after which a message without a response is repeated for the first time. The time between two
/// repetitions doubles with each repetition, up to [`RESEND_MAX`].
const RESEND_FIRST: Duration = Duration::from_millis(250);
const RESEND_MAX: Duration = Duration::from_secs(2);
/// The maximum number of MRAs that are accepted for a REQ or REP. The limit is equal to the value of the field Max CM
/// Retries in this stack's REQs.
const MAX_EXTENSIONS: u8 = 15;
/// The longest wait that is granted for one MRA. If an MRA requests a longer wait, the wait is shortened to this time.
const MAX_EXTENSION: Duration = Duration::from_secs(60);
/// The maximum number of datagrams that may be queued for `poll_transmit`.
const MAX_TRANSMITS: usize = 1024;

#[derive(Debug)]
struct Listener {
    port: u16,
    backlog: usize,
}

/// The connection manager of one device.
#[derive(Debug)]
pub struct Cm {
    config: CmConfig,
    next_id: u64,
    listeners: BTreeMap<CmId, Listener>,
    /// The listener of each TCP-space port (RDMA_PS_TCP).
    ports: BTreeMap<u16, CmId>,
    table: CmTable,
    transmits: VecDeque<(SocketAddr, [u8; MAD_LEN])>,
    outputs: VecDeque<CmOutput>,
    counters: CmCounters,
}

impl Cm {
    /// Makes a connection manager without listeners and connections.
    pub fn new(config: CmConfig) -> Self {
        let table = CmTable::new(config.max_lingering);
        Self {
            config,
            next_id: 1,
            listeners: BTreeMap::new(),
            ports: BTreeMap::new(),
            table,
            transmits: VecDeque::new(),
            outputs: VecDeque::new(),
            counters: CmCounters::default(),
        }
    }

    /// The counters of this connection manager.
    pub fn counters(&self) -> &CmCounters {
        &self.counters
    }

    /// Returns the addresses of both ends of a connection; `None` if the connection does not exist any more.
    pub fn endpoints(&self, id: CmId) -> Option<Endpoints> {
        self.table.get(id).map(|conn| conn.endpoints)
    }

    /// Handles a datagram that arrived for queue pair 1. `from` is the datagram's UDP source address, and `local` is
    /// its IP destination address.
    pub fn handle_mad(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        mad: &[u8; MAD_LEN],
        entropy: &mut dyn Entropy,
    ) -> Result<(), RefusalCause> {
        let handled = self.handle_message(now, from, local, mad, entropy);
        handled.inspect_err(|cause| cause.count_cm(&mut self.counters))
    }

    fn handle_message(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        mad: &[u8; MAD_LEN],
        entropy: &mut dyn Entropy,
    ) -> Result<(), RefusalCause> {
        let Mad { tid, message, .. } = Mad::decode(mad).map_err(|_| RefusalCause::CmMalformed)?;
        self.counters.received(&message);
        let ids = match &message {
            CmMessage::Req(req) => {
                self.on_req(now, from, local, tid, req, entropy);
                return Ok(());
            }
            CmMessage::Rej(rej) if rej.ids.remote == 0 => return self.on_cancel(from, rej),
            CmMessage::Mra(mra) => mra.ids,
            CmMessage::Rej(rej) => rej.ids,
            CmMessage::Rep(rep) => rep.ids,
            CmMessage::Dreq(dreq) => dreq.ids,
            CmMessage::Rtu(ids) | CmMessage::Drep(ids) => *ids,
        };
        if let CmMessage::Dreq(_) = message
            && self.table.by_comm_id(ids.remote).is_none()
        {
            self.confirm_forgotten(from, tid, ids);
            return Err(RefusalCause::CmUnknownId);
        }
        let id = self.find(from, ids)?;
        match message {
            CmMessage::Req(_) => Ok(()),
            CmMessage::Mra(mra) => self.on_mra(now, id, mra),
            CmMessage::Rej(rej) => self.on_rej(now, id, &rej),
            CmMessage::Rep(rep) => self.on_rep(now, id, from, &rep),
            CmMessage::Rtu(_) => self.on_rtu(id),
            CmMessage::Dreq(dreq) => self.on_dreq(now, id, tid, &dreq),
            CmMessage::Drep(_) => self.on_drep(now, id),
        }
    }

    /// Handles all timers that are due. The caller calls this function at the time that [`Self::poll_timeout`]
    /// returned.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(id) = self.table.expired(now) {
            match self.table.get(id).map(|conn| &conn.state) {
                Some(State::ReqSent(sent)) if sent.retry.is_over(now) => self.req_expired(id),
                Some(State::RepSent(sent)) if sent.retry.is_over(now) => self.rep_expired(now, id),
                Some(State::DreqSent(sent)) if sent.retry.is_over(now) => self.time_wait(now, id),
                Some(State::ReqSent(_) | State::RepSent(_) | State::DreqSent(_)) => self.repeat(now, id),
                Some(State::ReqRcvd(_)) => self.request_expired(now, id),
                Some(State::TimeWait | State::Refused(_)) => self.table.remove(id),
                // An established connection has no timer.
                Some(State::Established { .. }) | None => {}
            }
        }
    }

    /// Sends the REQ, REP or DREQ of the connection `id` again, because no response has arrived yet, and sets the timer
    /// for the next repetition.
    fn repeat(&mut self, now: Time, id: CmId) {
        let Some(conn) = self.table.get_mut(id) else { return };
        let (message, retry) = match &mut conn.state {
            State::ReqSent(sent) => (&sent.req, &mut sent.retry),
            State::RepSent(sent) => (&sent.rep, &mut sent.retry),
            State::DreqSent(sent) => (&sent.dreq, &mut sent.retry),
            _ => return,
        };
        let (to, timer, message) = (conn.peer, retry.repeat(now), message.clone());
        self.table.arm(id, timer);
        self.counters.tx_retries += 1;
        self.transmit(to, &message);
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`]; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.table.next_timeout()
    }

    /// Removes and returns the next datagram to send, and the UDP address of its receiver. The caller sends the
    /// datagram from queue pair 1 to queue pair 1, with Q_Key 0x80010000.
    pub fn poll_transmit(&mut self) -> Option<(SocketAddr, [u8; MAD_LEN])> {
        self.transmits.pop_front()
    }

    /// Returns true if `poll_transmit` has a datagram.
    pub fn has_transmit(&self) -> bool {
        !self.transmits.is_empty()
    }

    /// Removes and returns the next output: a CM event for the application, or an instruction to the device.
    pub fn poll_output(&mut self) -> Option<CmOutput> {
        self.outputs.pop_front()
    }

    /// Finds the connection to which a message belongs, by the message's communication IDs and its source address.
    fn find(&self, from: SocketAddr, ids: CommIds) -> Result<CmId, RefusalCause> {
        let found = self.table.by_comm_id(ids.remote).and_then(|id| Some((id, self.table.get(id)?)));
        let (id, conn) = found.ok_or(RefusalCause::CmUnknownId)?;
        if !same_host(conn.peer, from) {
            return Err(RefusalCause::CmWrongSource);
        }
        if conn.remote_ids.is_some_and(|remote_ids| remote_ids.comm_id != ids.local) {
            return Err(RefusalCause::CmUnknownId);
        }
        Ok(id)
    }

    fn on_mra(&mut self, now: Time, id: CmId, mra: Mra) -> Result<(), RefusalCause> {
        let wait = ib_timeout(mra.service_timeout).min(MAX_EXTENSION);
        let conn = self.table.get_mut(id).ok_or(RefusalCause::CmUnknownId)?;
        let (retry, timeout) = match (&mut conn.state, mra.about) {
            (State::ReqSent(s), Answered::Req) => (&mut s.retry, s.timeout),
            (State::RepSent(s), Answered::Rep) => (&mut s.retry, self.config.confirm_timeout),
            _ => return Err(RefusalCause::CmUnexpected),
        };
        if !retry.extend(now + wait, timeout) {
            return Err(RefusalCause::CmUnexpected);
        }
        let next = retry.next(now + wait);
        self.table.arm(id, next);
        Ok(())
    }

    fn event(&mut self, event: CmEvent) {
        self.outputs.push_back(CmOutput::Event(event));
    }

    /// Drops the CM events of a connection that are still queued, because the application does not need these CM events
    /// any more.
    fn purge_events(&mut self, id: CmId) {
        self.outputs.retain(|output| !matches!(output, CmOutput::Event(event) if event.id() == id));
    }

    fn transmit(&mut self, to: SocketAddr, mad: &Mad) {
        if self.transmits.len() >= MAX_TRANSMITS {
            self.counters.tx_dropped += 1;
            return;
        }
        self.counters.sent(&mad.message);
        self.transmits.push_back((to, mad.encode()));
    }

    /// Sends a REJ. The connection manager does not store the REJ, and never repeats it.
    fn send_rej(&mut self, to: SocketAddr, tid: u64, rej: Rej) {
        self.transmit(to, &Mad::new(tid, CmMessage::Rej(rej)));
    }

    fn new_id(&mut self) -> CmId {
        let id = CmId(self.next_id);
        self.next_id += 1;
        id
    }

    fn not_found(id: CmId) -> Error {
        Error::NotFound { what: "connection", id: id.0 }
    }

    fn check_room(&self) -> Result<(), Error> {
        let limit = self.config.max_connections;
        if self.table.len() < limit {
            return Ok(());
        }
        Err(Error::Exhausted {
            what: "connections",
            limit: limit as u64,
            remedy: "destroy some, or wait for those just closed",
        })
    }
}

/// Makes a REJ without private data and without additional rejection information.
fn rejection(ids: CommIds, about: Answered, reason: RejectReason) -> Rej {
    Rej { ids, about, ari_len: 0, reason: reason.0, ari: [0; 72], private_data: [0; Rej::PRIVATE] }
}

/// Returns true if both addresses have the same IP address. An IPv4-mapped address counts as the IPv4 address that it
/// stands for.
pub(crate) fn same_host(a: SocketAddr, b: SocketAddr) -> bool {
    a.ip().to_canonical() == b.ip().to_canonical()
}

/// Returns the duration of a CM time-out code: 4.096 us * 2^n, where n is the low 5 bits of `code`.
fn ib_timeout(code: u8) -> Duration {
    Duration::from_nanos(4096 << (code & 0x1f))
}
