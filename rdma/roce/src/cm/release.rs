//! The end of a connection: the methods `disconnect` and `destroy`, the messages DREQ and DREP, and the state TimeWait.

use std::{net::SocketAddr, time::Duration};

use verbs::{CmEvent, CmId, Error, RejectReason};

use super::{
    Cm, CmOutput, ib_timeout,
    state::{Conn, DreqSent, Retry, State},
};
use crate::{
    refusal::RefusalCause,
    time::Time,
    wire::{
        ROCE_PORT,
        mad::{CmMessage, CommIds, Dreq, Mad, Rej},
    },
};

/// The time for which this side waits for a DREP. DREQs are sent 0, 250, 750 and 1750 ms after the disconnect, and the
/// wait ends 50 ms after the last DREQ. The wait is limited, because NAAICE's C servers never respond to a DREQ.
const DREQ_TIME: Duration = Duration::from_millis(1800);
const MIN_TIME_WAIT: Duration = Duration::from_millis(250);
const MAX_TIME_WAIT: Duration = Duration::from_secs(4);

impl Cm {
    /// Ends a connection or a connection attempt. The CM event `Disconnected` follows, except if the connection had
    /// already ended before this call.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if `id` is a listener or was never assigned. Fails with [`Error::Invalid`] if
    /// `id` is a request that waits for the application.
    pub fn disconnect(&mut self, now: Time, id: CmId) -> Result<(), Error> {
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::ReqRcvd(_)) => return Err(Error::Invalid("accept or reject the request first")),
            Some(State::DreqSent(_) | State::TimeWait | State::Refused(_)) => return Ok(()),
            Some(_) => {}
            None if self.has_ended(id) => return Ok(()),
            None => return Err(Self::not_found(id)),
        }
        self.leave(now, id);
        self.event(CmEvent::Disconnected { id });
        Ok(())
    }

    /// Returns true if a DREQ still waits for its DREP.
    pub fn is_disconnecting(&self) -> bool {
        self.table.is_disconnecting()
    }

    /// Destroys a listener or a connection. If `id` is a listener, its requests that wait for the application are
    /// rejected, and the application no longer gets the CM events of these requests. If `id` is a connection, the
    /// connection ends and causes no further CM events.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no listener and no connection ever had the id `id`.
    pub fn destroy(&mut self, now: Time, id: CmId) -> Result<(), Error> {
        if let Some(listener) = self.listeners.remove(&id) {
            self.ports.remove(&listener.port);
            let pending = self.table.half_open().keys().filter(|conn| self.is_pending(*conn, id));
            for conn in pending.collect::<Vec<_>>() {
                self.withdraw(conn);
                self.refuse(now, conn, RejectReason::INVALID_SERVICE_ID, [0; Rej::PRIVATE]);
            }
            return Ok(());
        }
        if !self.has_ended(id) && self.table.get(id).is_none() {
            return Err(Self::not_found(id));
        }
        self.leave(now, id);
        self.purge_events(id);
        Ok(())
    }

    /// Returns true if the request `id` is in the state Refused, or if [`Self::has_ended`] returns true for `id`. A
    /// request enters the state Refused when this side rejects or destroys it, when it expires, or when its listener is
    /// destroyed.
    pub(crate) fn is_over(&self, id: CmId) -> bool {
        matches!(self.table.get(id).map(|conn| &conn.state), Some(State::Refused(_))) || self.has_ended(id)
    }

    /// Returns true if `id` was assigned and no listener or connection with this ID exists any more.
    fn has_ended(&self, id: CmId) -> bool {
        id.0 > 0 && id.0 < self.next_id && self.table.get(id).is_none() && !self.listeners.contains_key(&id)
    }

    /// Ends a connection and notifies the peer. Does nothing if the connection has already ended.
    fn leave(&mut self, now: Time, id: CmId) {
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::ReqSent(_)) => self.cancel_req(id),
            Some(State::ReqRcvd(_)) => {
                self.refuse(now, id, RejectReason::CONSUMER_DEFINED, [0; Rej::PRIVATE])
            }
            Some(State::RepSent(_)) => self.withdraw_rep(now, id, RejectReason::CONSUMER_DEFINED),
            Some(State::Established { .. }) => {
                self.fail_qp(id);
                self.send_dreq(now, id);
            }
            Some(State::DreqSent(_) | State::TimeWait | State::Refused(_)) | None => {}
        }
    }

    /// Ends the established connection `id`, because the peer uses the remote queue pair of `id` for another
    /// connection.
    pub(super) fn drop_stale(&mut self, now: Time, id: CmId) {
        if matches!(self.table.get(id).map(|conn| &conn.state), Some(State::Established { .. })) {
            self.leave(now, id);
            self.event(CmEvent::Disconnected { id });
        }
    }

    /// Ends a connection because the peer has ended it.
    pub(super) fn peer_left(&mut self, now: Time, id: CmId) {
        self.fail_qp(id);
        self.time_wait(now, id);
        self.event(CmEvent::Disconnected { id });
    }

    fn send_dreq(&mut self, now: Time, id: CmId) {
        let Some(conn) = self.table.get(id) else { return };
        let Some(remote_ids) = conn.remote_ids else { return };
        // The low half of the DREQ's transaction ID is this side's communication ID. `conn.tid` is the transaction ID
        // of the REQ. On the passive side, the peer has chosen `conn.tid`, so the low half of `conn.tid` is replaced.
        let tid = conn.tid & !0xffff_ffff | u64::from(conn.comm_id);
        let dreq = Mad::new(tid, CmMessage::Dreq(Dreq { ids: conn.ids(), remote_qpn: remote_ids.qp.2 }));
        let retry = Retry::new(now + DREQ_TIME);
        let (to, timer) = (conn.peer, retry.first(now));
        self.transmit(to, &dreq);
        self.table.enter(id, State::DreqSent(Box::new(DreqSent { dreq, retry })), Some(timer));
    }

    pub(super) fn on_dreq(&mut self, now: Time, id: CmId, tid: u64, dreq: &Dreq) -> Result<(), RefusalCause> {
        let conn = self.table.get(id).ok_or(RefusalCause::CmUnknownId)?;
        let known = !matches!(conn.state, State::ReqSent(_) | State::ReqRcvd(_) | State::Refused(_));
        if !known || conn.qpn != Some(dreq.remote_qpn) {
            return Err(RefusalCause::CmUnexpected);
        }
        let (to, drep) = (conn.peer, Mad::new(tid, CmMessage::Drep(conn.ids())));
        let live = matches!(conn.state, State::RepSent(_) | State::Established { .. });
        let asked_too = matches!(conn.state, State::DreqSent(_));
        self.transmit(to, &drep);
        if live {
            self.peer_left(now, id);
        } else if asked_too {
            self.time_wait(now, id);
        }
        Ok(())
    }

    /// Sends a DREP for a DREQ whose connection this side has forgotten, for example because of a restart. If a Linux
    /// kernel peer gets no DREP, it repeats its DREQ for a minute and a half. The Linux kernel, too, sends a DREP when
    /// it gets a DREQ for an unknown connection (Linux function cm_issue_drep).
    pub(super) fn confirm_forgotten(&mut self, from: SocketAddr, tid: u64, ids: CommIds) {
        let mut to = from;
        // A Linux kernel peer sends from a UDP port between 0xc000 and 0xffff, but receives only at the RoCE port
        // (rxe_net.c). The DREP for such a peer therefore goes to the RoCE port.
        if from.port() >= 0xc000 {
            to.set_port(ROCE_PORT);
        }
        self.transmit(to, &Mad::new(tid, CmMessage::Drep(CommIds { local: ids.remote, remote: ids.local })));
    }

    pub(super) fn on_drep(&mut self, now: Time, id: CmId) -> Result<(), RefusalCause> {
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::DreqSent(_)) => self.time_wait(now, id),
            Some(State::TimeWait) => {}
            _ => return Err(RefusalCause::CmUnexpected),
        }
        Ok(())
    }

    pub(super) fn time_wait(&mut self, now: Time, id: CmId) {
        let Some(until) = self.table.get(id).map(|conn| conn.time_wait(now)) else { return };
        self.table.enter(id, State::TimeWait, Some(until));
    }

    pub(super) fn fail_qp(&mut self, id: CmId) {
        if let Some(qpn) = self.table.get(id).and_then(|conn| conn.qpn) {
            self.outputs.push_back(CmOutput::FailQp { qpn });
        }
    }
}

impl Conn {
    /// Returns the time at which the state TimeWait or Refused ends if it begins at `now`. The states TimeWait and
    /// Refused last for two ACK timeouts, but at least `MIN_TIME_WAIT` and at most `MAX_TIME_WAIT`.
    pub(super) fn time_wait(&self, now: Time) -> Time {
        now + (ib_timeout(self.ack_timeout) * 2).clamp(MIN_TIME_WAIT, MAX_TIME_WAIT)
    }
}
