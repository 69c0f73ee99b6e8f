//! The active side of a connection, which sends a REQ and receives a REP or REJ.

use std::net::SocketAddr;

use verbs::{CmEvent, CmId, ConnParam, Endpoints, Error, RejectReason, Unreachable};

use super::{
    Binding, Cm, CmOutput, ConnectArgs, is_embedded, rejection,
    state::{Conn, RemoteIds, ReqSent, Retry, State, remote_qp},
};
use crate::{
    endpoint::QpAttr,
    entropy::Entropy,
    refusal::RefusalCause,
    time::Time,
    wire::{
        Bth, ROCE_PORT,
        mad::{
            Answered, CmMessage, CmaHeader, CommIds, Mad, Rej, Rep, Req, gid, mtu_bytes, mtu_code,
            private_data, service_id,
        },
    },
};

/// The time within which the peer must respond to a REQ, as a CM time-out code: 4.096 us * 2^20 = 4.3 s. The Linux
/// kernel's rdma_cm also sends the code 20.
const REMOTE_CM_TIMEOUT: u8 = 20;
/// The time after which a peer with the Linux kernel's CM repeats a lost REP, as a CM time-out code: 4.096 us * 2^18 =
/// 1.07 s. The Linux kernel's rdma_cm sends the code 20 in its REQs, so its peers repeat a lost REP only after 4.3 s.
const LOCAL_CM_TIMEOUT: u8 = 18;
const MAX_CM_RETRIES: u8 = 15;
const HOP_LIMIT: u8 = 64;
/// The permissive LID, which a REQ contains in its LID fields because RoCE has no LIDs.
const PERMISSIVE_LID: u16 = 0xffff;

impl Cm {
    /// Starts to connect: sends a REQ to the peer. The attempt ends with a CM event: `Established`, `Rejected` or
    /// `Unreachable`.
    ///
    /// # Errors
    /// Fails with [`Error::Exhausted`] if `CmConfig::max_connections` connections exist. Fails with [`Error::Invalid`]
    /// if a value of `args` is out of range, or if the addresses are of different families.
    pub fn connect(
        &mut self,
        now: Time,
        args: ConnectArgs<'_>,
        entropy: &mut dyn Entropy,
    ) -> Result<CmId, Error> {
        self.check_room()?;
        let port = 32_768 | entropy.next_u32() as u16;
        let comm_id = self.table.free_comm_id(entropy);
        let tid = u64::from(entropy.next_u32()) << 32 | u64::from(comm_id);
        let ack_timeout = args.param.ack_timeout.unwrap_or(self.config.ack_timeout);
        let req = self.build_req(&args, comm_id, port, ack_timeout, entropy.next_u32())?;
        let timeout = args.param.connect_timeout.unwrap_or(self.config.connect_timeout);
        let id = self.new_id();
        let sent = ReqSent {
            req: Mad::new(tid, CmMessage::Req(req)),
            path_mtu: args.path_mtu,
            timeout,
            retry: Retry::new(now + timeout),
        };
        self.transmit(args.peer, &sent.req);
        let timer = sent.retry.first(now);
        let conn = Conn {
            comm_id,
            tid,
            endpoints: Endpoints { local: (args.local, port).into(), remote: args.remote },
            peer: args.peer,
            qpn: Some(args.qpn),
            remote_ids: None,
            request: None,
            ack_timeout,
            state: State::ReqSent(Box::new(sent)),
        };
        self.table.insert(id, conn, timer);
        Ok(id)
    }

    fn build_req(
        &self,
        args: &ConnectArgs<'_>,
        local_comm_id: u32,
        port: u16,
        ack_timeout: u8,
        random: u32,
    ) -> Result<Req, Error> {
        let ConnParam { responder_resources, initiator_depth, .. } = *args.param;
        args.param.check_codes(ack_timeout)?;
        Ok(Req {
            local_comm_id,
            service_id: service_id(args.remote.port()),
            ca_guid: self.config.ca_guid,
            q_key: 0,
            qpn: args.qpn,
            responder_resources,
            initiator_depth,
            remote_cm_timeout: REMOTE_CM_TIMEOUT,
            transport: 0,
            flow_control: false,
            starting_psn: args.starting_psn,
            local_cm_timeout: LOCAL_CM_TIMEOUT,
            retry_count: args.param.retry_count,
            p_key: Bth::DEFAULT_P_KEY,
            mtu: mtu_code(args.path_mtu)
                .ok_or(Error::Invalid("a path MTU is 256, 512, 1024, 2048 or 4096"))?,
            rnr_retry: args.param.rnr_retry_count,
            max_cm_retries: MAX_CM_RETRIES,
            srq: false,
            local_lid: PERMISSIVE_LID,
            remote_lid: PERMISSIVE_LID,
            local_gid: gid(args.local),
            remote_gid: gid(args.remote.ip()),
            flow_label: random & 0xf_ffff,
            traffic_class: 0,
            hop_limit: HOP_LIMIT,
            ack_timeout,
            private_data: request_data(args, port)?,
        })
    }

    pub(super) fn on_rep(
        &mut self,
        now: Time,
        id: CmId,
        from: SocketAddr,
        rep: &Rep,
    ) -> Result<(), RefusalCause> {
        let conn = self.table.get(id).ok_or(RefusalCause::CmUnknownId)?;
        match conn.state {
            State::ReqSent(_) if rep.qpn > 1 => self.establish(now, id, from, rep),
            // A REP for an established connection is a repeated REP. The peer repeats its REP because the RTU was lost,
            // so this side sends the RTU again.
            State::Established { active: true } => self.send_rtu(id),
            _ => return Err(RefusalCause::CmUnexpected),
        }
        Ok(())
    }

    fn establish(&mut self, now: Time, id: CmId, from: SocketAddr, rep: &Rep) {
        let qp = remote_qp(from, rep.ca_guid, rep.qpn);
        // The peer's queue pair belongs to this connection now, so an older connection with the same remote queue pair
        // has ended.
        if let Some(old) = self.table.by_remote_qp(&qp) {
            self.counters.rx_stale_req += 1;
            self.drop_stale(now, old);
        }
        self.table.set_remote(id, RemoteIds { comm_id: rep.ids.local, qp });
        let Some(State::ReqSent(sent)) = self.table.enter(id, State::Established { active: true }, None)
        else {
            return;
        };
        let (Some(conn), CmMessage::Req(req)) = (self.table.get_mut(id), &sent.req.message) else { return };
        conn.peer = answer_address(from, rep.ca_guid);
        let attr = QpAttr {
            peer: conn.peer,
            remote_qpn: rep.qpn,
            path_mtu: sent.path_mtu,
            send_psn: rep.starting_psn.value(),
            recv_psn: req.starting_psn.value(),
            retry_count: req.retry_count,
            rnr_retry_count: rep.rnr_retry,
            ack_timeout: conn.ack_timeout,
            responder_resources: req.responder_resources.min(rep.initiator_depth),
            initiator_depth: req.initiator_depth.min(rep.responder_resources),
            embedded_peer: is_embedded(rep.ca_guid),
            offers_carried_acks: true,
        };
        let (qpn, param) = (conn.qpn.unwrap_or(0), attr.established(rep.private_data.to_vec()));
        self.counters.established += 1;
        self.outputs.push_back(CmOutput::Bind(Binding { id, qpn, attr }));
        self.event(CmEvent::Established { id, param });
        self.send_rtu(id);
    }

    fn send_rtu(&mut self, id: CmId) {
        let Some(conn) = self.table.get(id) else { return };
        let (to, rtu) = (conn.peer, Mad::new(conn.tid, CmMessage::Rtu(conn.ids())));
        self.transmit(to, &rtu);
    }

    pub(super) fn on_rej(&mut self, now: Time, id: CmId, rej: &Rej) -> Result<(), RefusalCause> {
        if rej.reason == RejectReason::INVALID_PATH_MTU.0 && self.retry_smaller(now, id, rej) {
            return Ok(());
        }
        let conn = self.table.get(id).ok_or(RefusalCause::CmUnknownId)?;
        match conn.state {
            State::ReqSent(_) => self.rejected(id, rej),
            State::RepSent(_) => {
                self.fail_qp(id);
                self.rejected(id, rej);
            }
            // A peer sends a REJ if it ends a connection before it has received the RTU.
            State::Established { .. } => self.peer_left(now, id),
            _ => return Err(RefusalCause::CmUnexpected),
        }
        Ok(())
    }

    /// Repeats the REQ with the path MTU that the peer's REJ contains. Returns false if the REJ contains no path MTU,
    /// or if no REQ waits for a response.
    fn retry_smaller(&mut self, now: Time, id: CmId, rej: &Rej) -> bool {
        let Some(conn) = self.table.get_mut(id) else { return false };
        let (State::ReqSent(sent), to) = (&mut conn.state, conn.peer) else { return false };
        let named = (rej.ari_len > 0).then(|| mtu_bytes(rej.ari[0] >> 4)).flatten();
        let Some(named) = named else { return false };
        let (Some(code), CmMessage::Req(req)) = (mtu_code(named), &mut sent.req.message) else {
            return false;
        };
        // A REJ that responds to the newest REQ names a smaller path MTU than this REQ. If the REJ names the same path
        // MTU or a larger one, it therefore responds to an earlier REQ, and is ignored.
        if named >= sent.path_mtu {
            return true;
        }
        (req.mtu, sent.path_mtu) = (code, named);
        let (timer, req) = (sent.retry.repeat(now), sent.req.clone());
        self.table.arm(id, timer);
        self.transmit(to, &req);
        true
    }

    fn rejected(&mut self, id: CmId, rej: &Rej) {
        self.table.remove(id);
        let (reason, private_data) = (RejectReason(rej.reason), rej.private_data.to_vec());
        self.event(CmEvent::Rejected { id, reason, private_data });
    }

    /// Ends the connection attempt `id` with the CM event `Unreachable`, because its REQ got no response in time.
    pub(super) fn req_expired(&mut self, id: CmId) {
        self.cancel_req(id);
        self.event(CmEvent::Unreachable { id, why: Unreachable::NoAnswer });
    }

    /// Removes a connection attempt, and sends a REJ so that a peer that has received the REQ ends the attempt, too.
    pub(super) fn cancel_req(&mut self, id: CmId) {
        let Some(conn) = self.table.get(id) else { return };
        let ids = CommIds { local: conn.comm_id, remote: 0 };
        let mut rej = rejection(ids, Answered::Other(2), RejectReason::TIMEOUT);
        // This side does not know the peer's communication ID. The REJ therefore contains this side's CA GUID, by which
        // the peer finds the connection (as in the Linux function cm_format_rej).
        rej.ari[..8].copy_from_slice(&self.config.ca_guid.to_be_bytes());
        rej.ari_len = 8;
        let (to, tid) = (conn.peer, conn.tid);
        self.send_rej(to, tid, rej);
        self.table.remove(id);
    }

    /// Ends all connection attempts to the UDP address `to`, because the network refused a datagram to this address.
    pub fn send_failed(&mut self, to: SocketAddr) {
        for id in self.table.connecting_to(to) {
            self.table.remove(id);
            self.event(CmEvent::Unreachable { id, why: Unreachable::Network });
        }
    }
}

/// Returns the UDP address to which packets for a peer are sent. `from` is the source address of a CM message of the
/// peer. `ca_guid` is the CA GUID in this message, which shows whether the peer uses the embedded provider. A peer that
/// uses the embedded provider receives at the UDP port from which it sends. A peer that does not use the embedded
/// provider receives at the UDP port 4791.
pub(super) fn answer_address(from: SocketAddr, ca_guid: u64) -> SocketAddr {
    let mut to = from;
    if !is_embedded(ca_guid) {
        to.set_port(ROCE_PORT);
    }
    to
}

fn request_data(args: &ConnectArgs<'_>, port: u16) -> Result<[u8; Req::PRIVATE], Error> {
    let (src, dst) = (args.local, args.remote.ip());
    if src.is_ipv4() != dst.is_ipv4() || args.peer.is_ipv4() != dst.is_ipv4() {
        return Err(Error::Invalid("local and remote address are of different families"));
    }
    let user: [u8; Req::USER_PRIVATE] = private_data(&args.param.private_data)
        .ok_or(Error::Invalid("a request carries at most 56 bytes of private data"))?;
    let mut data = [0; Req::PRIVATE];
    data[..CmaHeader::LEN].copy_from_slice(&CmaHeader { port, src, dst }.encode());
    data[CmaHeader::LEN..].copy_from_slice(&user);
    Ok(data)
}
