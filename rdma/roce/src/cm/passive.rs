//! The passive side of a connection, which receives a REQ and sends a REP or REJ.

use std::net::{IpAddr, SocketAddr};

use verbs::{CmEvent, CmId, ConnParam, Endpoints, Error, RejectReason, Unreachable};

use super::{
    Binding, Cm, CmOutput, Listener,
    active::answer_address,
    is_embedded, rejection,
    state::{Conn, RemoteIds, RepSent, ReqRcvd, Retry, State, remote_qp},
};
use crate::{
    endpoint::QpAttr,
    entropy::Entropy,
    psn::Psn,
    refusal::RefusalCause,
    time::Time,
    wire::mad::{
        Answered, CmMessage, CmaHeader, CommIds, Mad, Mra, Rej, Rep, Req, mtu_bytes, mtu_code, private_data,
        service_port,
    },
};

/// The time for which an MRA makes the peer wait for the application, as a CM time-out code: 4.096 us * 2^20 = 4.3 s.
const SERVICE_TIMEOUT: u8 = 20;
/// The longest delay of this side's ACKs, as a CM time-out code: 4.096 us * 2^15 = 134 ms. The Linux driver rxe also
/// uses the code 15.
const TARGET_ACK_DELAY: u8 = 15;
/// The value of the fail-over field of a REP. This stack does not support fail-over to another path, and sends 0 in
/// this field as the Linux kernel does.
const FAILOVER: u8 = 0;
/// The reason of the REJ that the passive side sends if the application or the peer did not respond in time. The
/// passive side also sends this REJ if the request had to make room for a REQ from another source network. The passive
/// side does not use reason 4 (time-out), because a Linux kernel ignores a REJ with reason 4 that arrives before the
/// REP. If the reason is 4, the Linux function cm_acquire_rejected_id searches for the connection by the communication
/// ID of the passive side. A Linux kernel on the active side learns this ID only from the REP, so before the REP it
/// does not find the connection.
const TOO_LATE: RejectReason = RejectReason::NO_RESOURCES;

impl Cm {
    /// Starts to accept connection requests (REQs) for the TCP-space port `port`; port 0 chooses a free port. `backlog`
    /// is the largest number of requests that may wait for the application. Returns the listener and its port.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] if another listener has the port, and with [`Error::Exhausted`] if `port` is 0 and no
    /// port from 32768 on is free.
    pub fn listen(
        &mut self,
        port: u16,
        backlog: u32,
        entropy: &mut dyn Entropy,
    ) -> Result<(CmId, u16), Error> {
        const NO_PORT: Error = Error::Exhausted {
            what: "free ports from 32768 on",
            limit: 0x8000,
            remedy: "destroy a listener, or choose a port below 32768",
        };
        let free = |port: &u16| !self.ports.contains_key(port);
        let start = entropy.next_u32() as u16;
        let chosen = match port {
            0 => (0..=0x7fff).map(|n| 0x8000 | start.wrapping_add(n)).find(free).ok_or(NO_PORT),
            port => {
                Some(port).filter(free).ok_or(Error::Busy("another listener of this device has the port"))
            }
        };
        let port = chosen?;
        let id = self.new_id();
        self.ports.insert(port, id);
        self.listeners.insert(id, Listener { port, backlog: backlog as usize });
        Ok((id, port))
    }

    pub(super) fn on_req(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        tid: u64,
        req: &Req,
        entropy: &mut dyn Entropy,
    ) {
        let key = (from.ip().to_canonical(), req.ca_guid, req.local_comm_id);
        if let Some(id) = self.table.by_request(&key) {
            return self.on_duplicate(id, tid);
        }
        match self.check_req(now, from, req) {
            Ok((listener, port, path_mtu, header)) => {
                let endpoints =
                    Endpoints { local: (local, port).into(), remote: (from.ip(), header.port).into() };
                let comm_id = self.table.free_comm_id(entropy);
                let conn = Conn {
                    comm_id,
                    tid,
                    endpoints,
                    peer: answer_address(from, req.ca_guid),
                    qpn: None,
                    remote_ids: Some(RemoteIds {
                        comm_id: req.local_comm_id,
                        qp: remote_qp(from, req.ca_guid, req.qpn),
                    }),
                    request: Some(key),
                    ack_timeout: req.ack_timeout,
                    state: State::ReqRcvd(Box::new(ReqRcvd { listener, req: req.clone(), path_mtu })),
                };
                let id = self.new_id();
                self.table.insert(id, conn, now + self.config.answer_timeout);
                self.event(CmEvent::ConnectRequest { listener, id, endpoints, param: offered(req) });
            }
            Err(reason) => {
                let ids = CommIds { local: 0, remote: req.local_comm_id };
                let mut rej = rejection(ids, Answered::Req, reason);
                if reason == RejectReason::INVALID_PATH_MTU {
                    rej.ari[0] = mtu_code(self.config.max_path_mtu).unwrap_or(1) << 4;
                    rej.ari_len = 1;
                }
                self.send_rej(answer_address(from, req.ca_guid), tid, rej);
            }
        }
    }

    /// Checks a new request. Returns the listener and its port, the path MTU that the REQ names, and the header of
    /// rdma_cm in the REQ; or the reason to reject the request.
    fn check_req(
        &mut self,
        now: Time,
        from: SocketAddr,
        req: &Req,
    ) -> Result<(CmId, u16, u32, CmaHeader), RejectReason> {
        if let Some(old) = self.table.by_remote_qp(&remote_qp(from, req.ca_guid, req.qpn)) {
            self.counters.rx_stale_req += 1;
            // The REQ names the peer's queue pair of the connection `old`. A peer uses this queue pair for another
            // connection only after it has ended or forgotten `old`.
            self.drop_stale(now, old);
            return Err(RejectReason::STALE_CONNECTION);
        }
        let port = service_port(req.service_id);
        let Some((port, listener)) = port.and_then(|port| Some((port, *self.ports.get(&port)?))) else {
            self.counters.no_listener += 1;
            return Err(RejectReason::INVALID_SERVICE_ID);
        };
        if req.transport != 0 {
            return Err(RejectReason::INVALID_TRANSPORT);
        }
        let path_mtu = mtu_bytes(req.mtu)
            .filter(|mtu| *mtu <= self.config.max_path_mtu)
            .ok_or(RejectReason::INVALID_PATH_MTU)?;
        let header = req.private_data.first_chunk().and_then(CmaHeader::decode);
        let header = header.filter(|_| req.qpn > 1).ok_or(RejectReason::UNSUPPORTED)?;
        if !self.makes_room(listener, from) {
            self.counters.no_room += 1;
            return Err(RejectReason::NO_RESOURCES);
        }
        Ok((listener, port, path_mtu, header))
    }

    /// Returns true if there is room for a new request from `from`. If necessary, the function removes a half-open
    /// request of another source network to make room. A source network can have at most half of the allowed half-open
    /// requests. A request is never removed to make room for a new request of its own source network.
    fn makes_room(&mut self, listener: CmId, from: SocketAddr) -> bool {
        let source = from.ip().into();
        let half_open = self.table.half_open();
        if half_open.of(source) >= self.config.max_half_open / 2 || self.check_room().is_err() {
            return false;
        }
        let backlog = self.listeners.get(&listener).map_or(0, |l| l.backlog);
        let pending = half_open.keys().filter(|id| self.is_pending(*id, listener)).count();
        if half_open.len() < self.config.max_half_open && pending < backlog {
            return true;
        }
        // If the backlog of the listener is full, only a request that waits at this listener may be removed to make
        // room.
        let fits = |id| pending < backlog || self.is_pending(id, listener);
        half_open.displaced_by(source, fits).is_some_and(|id| {
            self.displace(id);
            true
        })
    }

    /// Removes the half-open request `id` to make room for a request of another source network, and sends a REJ to the
    /// peer. After the REJ, this side keeps no state of the request `id`, so the peer can send the request again.
    fn displace(&mut self, id: CmId) {
        self.counters.displaced += 1;
        let Some(conn) = self.table.get(id) else { return };
        let (to, tid, rej) = (conn.peer, conn.tid, rejection(conn.ids(), Answered::Req, TOO_LATE));
        self.send_rej(to, tid, rej);
        self.forget(id);
    }

    /// Removes a half-open request. If the request was accepted, its queue pair fails and the application gets the CM
    /// event `Unreachable`. If the request was not accepted yet, the application's CM event for this request is
    /// withdrawn.
    fn forget(&mut self, id: CmId) {
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::RepSent(_)) => {
                self.fail_qp(id);
                self.table.remove(id);
                self.event(CmEvent::Unreachable { id, why: Unreachable::NotConfirmed });
            }
            Some(State::ReqRcvd(_)) => {
                self.withdraw(id);
                self.table.remove(id);
            }
            _ => {}
        }
    }

    /// Withdraws the CM event of a request that the application has not accepted or rejected, so that unread CM events
    /// of ended requests do not pile up. This method does not end the request: the caller must do this.
    pub(super) fn withdraw(&mut self, id: CmId) {
        self.purge_events(id);
        self.outputs.push_back(CmOutput::Withdrawn { id });
    }

    /// Returns true if `id` is a request of `listener` that waits for the application.
    pub(super) fn is_pending(&self, id: CmId, listener: CmId) -> bool {
        let state = self.table.get(id).map(|conn| &conn.state);
        matches!(state, Some(State::ReqRcvd(request)) if request.listener == listener)
    }

    fn on_duplicate(&mut self, id: CmId, tid: u64) {
        self.counters.rx_duplicate_req += 1;
        let Some(conn) = self.table.get(id) else { return };
        let (to, ids) = (conn.peer, conn.ids());
        let answer = match &conn.state {
            State::ReqRcvd(_) => {
                let mra = Mra { ids, about: Answered::Req, service_timeout: SERVICE_TIMEOUT };
                Mad::new(tid, CmMessage::Mra(mra))
            }
            State::RepSent(sent) => sent.rep.clone(),
            State::Refused(rej) => (**rej).clone(),
            State::DreqSent(_) | State::TimeWait => {
                let rej = rejection(ids, Answered::Req, RejectReason::STALE_CONNECTION);
                Mad::new(tid, CmMessage::Rej(rej))
            }
            // In the state `Established`, the peer has already confirmed the REP, so the repeated REQ needs no
            // response. In the state `ReqSent`, this side is the active side and has received no REQ that could be
            // repeated.
            State::ReqSent(_) | State::Established { .. } => return,
        };
        self.transmit(to, &answer);
    }

    /// Accepts a request: binds the queue pair `qpn` and sends a REP. `starting_psn` is the first PSN that the queue
    /// pair expects.
    ///
    /// The connection uses the retry count of the request, not the retry count of `param`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no request `id` any more. Fails with [`Error::Invalid`] if the
    /// request was accepted, was rejected or has expired, or if a value of `param` is invalid.
    pub fn accept(
        &mut self,
        now: Time,
        id: CmId,
        qpn: u32,
        starting_psn: Psn,
        param: &ConnParam,
    ) -> Result<(), Error> {
        let conn = self.table.get_mut(id).ok_or_else(|| Self::not_found(id))?;
        let State::ReqRcvd(request) = &conn.state else {
            return Err(Error::Invalid("the request has been answered"));
        };
        param.check_codes(0)?;
        let private_data = private_data(&param.private_data)
            .ok_or(Error::Invalid("a reply carries at most 196 bytes of private data"))?;
        let req = &request.req;
        let rep = Rep {
            ids: conn.ids(),
            q_key: 0,
            qpn,
            starting_psn,
            responder_resources: param.responder_resources.min(req.initiator_depth),
            initiator_depth: param.initiator_depth.min(req.responder_resources),
            target_ack_delay: TARGET_ACK_DELAY,
            failover: FAILOVER,
            flow_control: false,
            rnr_retry: param.rnr_retry_count,
            srq: false,
            ca_guid: self.config.ca_guid,
            private_data,
        };
        let attr = QpAttr {
            peer: conn.peer,
            remote_qpn: req.qpn,
            path_mtu: request.path_mtu,
            send_psn: req.starting_psn.value(),
            recv_psn: starting_psn.value(),
            retry_count: req.retry_count,
            rnr_retry_count: req.rnr_retry,
            ack_timeout: bounded_timeout(req.ack_timeout),
            responder_resources: rep.responder_resources,
            initiator_depth: rep.initiator_depth,
            embedded_peer: is_embedded(req.ca_guid),
            offers_carried_acks: false,
        };
        conn.qpn = Some(qpn);
        let sent = RepSent {
            rep: Mad::new(conn.tid, CmMessage::Rep(rep)),
            established: attr.established(Vec::new()),
            retry: Retry::new(now + self.config.confirm_timeout),
        };
        self.outputs.push_back(CmOutput::Bind(Binding { id, qpn, attr }));
        self.transmit(attr.peer, &sent.rep);
        let timer = sent.retry.first(now);
        self.table.enter(id, State::RepSent(Box::new(sent)), Some(timer));
        Ok(())
    }

    /// Rejects the request `id`: sends a REJ with reason 28 and with `data`, at most 148 bytes, as private data. The
    /// application must not use `id` after this call.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no request `id` any more. Fails with [`Error::Invalid`] if the
    /// request was accepted, was rejected or has expired, or if `data` is too long.
    pub fn reject(&mut self, now: Time, id: CmId, data: &[u8]) -> Result<(), Error> {
        let conn = self.table.get(id).ok_or_else(|| Self::not_found(id))?;
        if !matches!(conn.state, State::ReqRcvd(_)) {
            return Err(Error::Invalid("the request has been answered"));
        }
        let data = private_data(data)
            .ok_or(Error::Invalid("a rejection carries at most 148 bytes of private data"))?;
        self.refuse(now, id, RejectReason::CONSUMER_DEFINED, data);
        Ok(())
    }

    pub(super) fn refuse(&mut self, now: Time, id: CmId, reason: RejectReason, data: [u8; Rej::PRIVATE]) {
        self.purge_events(id);
        let Some(conn) = self.table.get(id) else { return };
        let rej = Rej { private_data: data, ..rejection(conn.ids(), Answered::Req, reason) };
        let (to, rej, until) = (conn.peer, Mad::new(conn.tid, CmMessage::Rej(rej)), conn.time_wait(now));
        self.transmit(to, &rej);
        self.table.enter(id, State::Refused(Box::new(rej)), Some(until));
    }

    pub(super) fn request_expired(&mut self, now: Time, id: CmId) {
        self.counters.unanswered += 1;
        self.withdraw(id);
        self.refuse(now, id, TOO_LATE, [0; Rej::PRIVATE]);
    }

    /// Handles the REJ of an active side that gave up its connection attempt. The REJ identifies the REQ by the GUID
    /// and the communication ID of the active side.
    pub(super) fn on_cancel(&mut self, from: SocketAddr, rej: &Rej) -> Result<(), RefusalCause> {
        let guid = rej.ari.first_chunk().map_or(0, |guid| u64::from_be_bytes(*guid));
        let key = (from.ip().to_canonical(), guid, rej.ids.local);
        let id = self.table.by_request(&key).ok_or(RefusalCause::CmUnknownId)?;
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::ReqRcvd(_) | State::RepSent(_)) => self.forget(id),
            _ => return Err(RefusalCause::CmUnexpected),
        }
        Ok(())
    }

    pub(super) fn on_rtu(&mut self, id: CmId) -> Result<(), RefusalCause> {
        match self.table.get(id).map(|conn| &conn.state) {
            Some(State::RepSent(_)) => self.confirmed(id),
            Some(State::Established { active: false }) => {}
            _ => return Err(RefusalCause::CmUnexpected),
        }
        Ok(())
    }

    /// Notes that a packet arrived on the queue pair `qpn`. If the RTU of the queue pair's connection has not arrived
    /// yet, this packet confirms the connection as an RTU does. The Linux function ib_cm_notify does the same.
    pub fn data_arrived(&mut self, qpn: u32) {
        if let Some(id) = self.table.unconfirmed(qpn) {
            self.confirmed(id);
        }
    }

    fn confirmed(&mut self, id: CmId) {
        let old = self.table.enter(id, State::Established { active: false }, None);
        if let Some(State::RepSent(sent)) = old {
            self.counters.established += 1;
            self.event(CmEvent::Established { id, param: sent.established });
        }
    }

    /// Ends the connection `id`, because the peer has not confirmed the REP in time. The application gets the CM event
    /// `Unreachable`.
    pub(super) fn rep_expired(&mut self, now: Time, id: CmId) {
        self.withdraw_rep(now, id, TOO_LATE);
        self.event(CmEvent::Unreachable { id, why: Unreachable::NotConfirmed });
    }

    /// Sends a REJ and ends a connection whose REP the peer has not confirmed.
    pub(super) fn withdraw_rep(&mut self, now: Time, id: CmId, reason: RejectReason) {
        let Some(conn) = self.table.get(id) else { return };
        let (to, tid, rej) = (conn.peer, conn.tid, rejection(conn.ids(), Answered::Req, reason));
        self.send_rej(to, tid, rej);
        self.fail_qp(id);
        self.time_wait(now, id);
    }
}

/// Returns the parameters of a REQ, converted to the view of this side. For example, the initiator depth of the peer
/// becomes the number of responder resources of this side.
fn offered(req: &Req) -> ConnParam {
    ConnParam {
        private_data: req.private_data[CmaHeader::LEN..].to_vec(),
        responder_resources: req.initiator_depth,
        initiator_depth: req.responder_resources,
        retry_count: req.retry_count,
        rnr_retry_count: req.rnr_retry,
        ack_timeout: Some(req.ack_timeout),
        connect_timeout: None,
    }
}

/// Limits the ACK timeout that a peer requests. Without this limit, a connection with an ACK timeout of hours, or with
/// an infinite ACK timeout (code 0), would outlive its peer. The highest code that is allowed, 22, stands for an ACK
/// timeout of 17 s.
const fn bounded_timeout(asked: u8) -> u8 {
    match asked {
        0 | 22.. => 22,
        n => n,
    }
}
