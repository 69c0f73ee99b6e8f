//! The table of all connections. If the state of a connection changes, the table also changes its indexes and the
//! connection's timer.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
};

use verbs::{CmId, admission::Admission};

use super::state::{Conn, RemoteIds, RemoteQp, RequestKey, State};
use crate::{entropy::Entropy, time::Time, timer::Deadlines};

#[derive(Debug, Default)]
pub(super) struct CmTable {
    conns: BTreeMap<CmId, Conn>,
    by_comm_id: BTreeMap<u32, CmId>,
    by_request: BTreeMap<RequestKey, CmId>,
    by_remote_qp: BTreeMap<RemoteQp, CmId>,
    /// The half-open requests: the connections in the states ReqRcvd and RepSent. IDs are assigned in ascending order,
    /// so the oldest request has the lowest ID, as [`Admission`] requires.
    half_open: Admission<CmId>,
    /// The connections in the state RepSent. The key of a connection is the QPN of the connection's local queue pair.
    unconfirmed: BTreeMap<u32, CmId>,
    /// The connections in the states DreqSent, TimeWait and Refused, in the order in which they entered their states.
    lingering: VecDeque<CmId>,
    max_lingering: usize,
    deadlines: Deadlines<CmId>,
}

impl CmTable {
    pub(super) fn new(max_lingering: usize) -> Self {
        Self { max_lingering, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.conns.len()
    }

    /// Returns true if a DREQ still waits for its DREP.
    pub(super) fn is_disconnecting(&self) -> bool {
        let waits = |id: &CmId| matches!(self.conns.get(id).map(|c| &c.state), Some(State::DreqSent(_)));
        self.lingering.iter().any(waits)
    }

    pub(super) fn half_open(&self) -> &Admission<CmId> {
        &self.half_open
    }

    pub(super) fn get(&self, id: CmId) -> Option<&Conn> {
        self.conns.get(&id)
    }

    /// Returns a mutable reference to a connection. A caller that wants to replace the connection's state must
    /// call [`Self::enter`], which updates the indexes.
    pub(super) fn get_mut(&mut self, id: CmId) -> Option<&mut Conn> {
        self.conns.get_mut(&id)
    }

    pub(super) fn by_comm_id(&self, comm_id: u32) -> Option<CmId> {
        self.by_comm_id.get(&comm_id).copied()
    }

    pub(super) fn by_request(&self, key: &RequestKey) -> Option<CmId> {
        self.by_request.get(key).copied()
    }

    pub(super) fn by_remote_qp(&self, qp: &RemoteQp) -> Option<CmId> {
        self.by_remote_qp.get(qp).copied()
    }

    pub(super) fn unconfirmed(&self, qpn: u32) -> Option<CmId> {
        self.unconfirmed.get(&qpn).copied()
    }

    #[cfg(test)]
    pub(super) fn comm_ids(&self) -> impl Iterator<Item = u32> {
        self.by_comm_id.keys().copied()
    }

    /// Returns the connections whose REQ to `peer` has no response yet.
    pub(super) fn connecting_to(&self, peer: SocketAddr) -> Vec<CmId> {
        let to = |conn: &Conn| conn.peer == peer && matches!(conn.state, State::ReqSent(_));
        self.conns.iter().filter(|(_, conn)| to(conn)).map(|(id, _)| *id).collect()
    }

    /// Returns a free communication ID. The ID is never 0, because 0 means "no ID".
    pub(super) fn free_comm_id(&self, entropy: &mut dyn Entropy) -> u32 {
        let mut comm_id = entropy.next_u32();
        while comm_id == 0 || self.by_comm_id.contains_key(&comm_id) {
            comm_id = comm_id.wrapping_add(1);
        }
        comm_id
    }

    pub(super) fn insert(&mut self, id: CmId, conn: Conn, timer: Time) {
        self.by_comm_id.insert(conn.comm_id, id);
        if let Some(key) = conn.request {
            self.by_request.insert(key, id);
        }
        if let Some(remote_ids) = conn.remote_ids {
            self.by_remote_qp.insert(remote_ids.qp, id);
        }
        self.conns.insert(id, conn);
        self.entered(id, Some(timer));
    }

    /// Stores the peer's communication ID and the peer's queue pair in the connection `id`.
    pub(super) fn set_remote(&mut self, id: CmId, remote_ids: RemoteIds) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.remote_ids = Some(remote_ids);
            self.by_remote_qp.insert(remote_ids.qp, id);
        }
    }

    /// Changes the state of a connection. Sets the timer of the connection, or clears the timer if `timer` is `None`.
    /// Returns the connection's previous state; `None` if there is no connection `id`.
    pub(super) fn enter(&mut self, id: CmId, state: State, timer: Option<Time>) -> Option<State> {
        self.left(id);
        let old = std::mem::replace(&mut self.conns.get_mut(&id)?.state, state);
        self.entered(id, timer);
        Some(old)
    }

    pub(super) fn remove(&mut self, id: CmId) {
        self.left(id);
        let Some(conn) = self.conns.remove(&id) else { return };
        self.by_comm_id.remove(&conn.comm_id);
        if let Some(key) = conn.request {
            self.by_request.remove(&key);
        }
        // The entry for the peer's queue pair in `by_remote_qp` can already belong to a newer connection. Such an entry
        // must stay.
        if let Some(remote_ids) =
            conn.remote_ids.filter(|remote_ids| self.by_remote_qp.get(&remote_ids.qp) == Some(&id))
        {
            self.by_remote_qp.remove(&remote_ids.qp);
        }
    }

    pub(super) fn arm(&mut self, id: CmId, at: Time) {
        self.deadlines.set(id, at);
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.deadlines.next()
    }

    /// Returns a connection whose timer has expired, and clears the timer.
    pub(super) fn expired(&mut self, now: Time) -> Option<CmId> {
        self.deadlines.pop(now)
    }

    fn left(&mut self, id: CmId) {
        self.deadlines.clear(id);
        let Some(conn) = self.conns.get(&id) else { return };
        match conn.state {
            State::ReqRcvd(_) => {
                self.half_open.leave(id);
            }
            State::RepSent(_) => {
                self.half_open.leave(id);
                conn.qpn.map(|qpn| self.unconfirmed.remove(&qpn));
            }
            State::DreqSent(_) | State::TimeWait | State::Refused(_) => {
                self.lingering.retain(|other| *other != id);
            }
            State::ReqSent(_) | State::Established { .. } => {}
        }
    }

    fn entered(&mut self, id: CmId, timer: Option<Time>) {
        if let Some(at) = timer {
            self.arm(id, at);
        }
        let Some(conn) = self.conns.get(&id) else { return };
        match conn.state {
            State::ReqRcvd(_) => {
                self.half_open.admit(id, conn.peer.ip().into());
            }
            State::RepSent(_) => {
                self.half_open.admit(id, conn.peer.ip().into());
                conn.qpn.map(|qpn| self.unconfirmed.insert(qpn, id));
            }
            State::DreqSent(_) | State::TimeWait | State::Refused(_) => {
                self.lingering.push_back(id);
                let oldest = self.lingering.front().copied();
                if let Some(oldest) = oldest.filter(|_| self.lingering.len() > self.max_lingering) {
                    self.remove(oldest);
                }
            }
            State::ReqSent(_) | State::Established { .. } => {}
        }
    }
}
