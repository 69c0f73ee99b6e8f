//! Queue pair 1: the datagrams of the connection manager, and the calls that make and end connections.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use verbs::{ChannelId, CmEvent, CmId, ConnParam, Error, QpNum};

use super::{DatagramMeta, Endpoint, verbs_calls::no_qp};
use crate::{
    cm::{Binding, Cm, CmCounters, CmOutput, ConnectArgs},
    icrc::IdRule,
    psn::Psn,
    refusal::RefusalCause,
    time::Time,
    transmit::Transmit,
    wire::{Bth, Deth, Packet, ROCE_PORT, mad::MAD_LEN},
};

/// The number of the management queue pair. On all devices, this queue pair has the number 1 and the Q_Key 0x80010000
/// (IBTA vol. 1, 13.5.3).
const GSI_QP: u32 = 1;
const GSI_Q_KEY: u32 = 0x8001_0000;

/// The connection manager, and the queues for its events.
#[derive(Debug)]
pub(super) struct Management {
    cm: Cm,
    channels: BTreeMap<u32, VecDeque<CmEvent>>,
    next_channel: u32,
    /// The channel of each listener and connection.
    owners: BTreeMap<CmId, u32>,
    psn: u32,
}

impl Management {
    pub(super) fn new(cm: Cm) -> Self {
        Self { cm, channels: BTreeMap::new(), next_channel: 1, owners: BTreeMap::new(), psn: 0 }
    }
}

fn no_channel(channel: ChannelId) -> Error {
    Error::NotFound { what: "event channel", id: channel.0.into() }
}

impl Endpoint {
    /// Creates a channel, which is a queue of CM events.
    pub fn create_channel(&mut self) -> ChannelId {
        let id = self.management.next_channel;
        self.management.next_channel = id.wrapping_add(1);
        self.management.channels.insert(id, VecDeque::new());
        ChannelId(id)
    }

    /// Destroys a channel and the CM events in it.
    ///
    /// # Errors
    /// Fails with [`Error::Busy`] while listeners or connections report to the channel, and with [`Error::NotFound`] if
    /// there is no channel `channel`.
    pub fn destroy_channel(&mut self, channel: ChannelId) -> Result<(), Error> {
        if self.management.owners.values().any(|&owner| owner == channel.0) {
            return Err(Error::Busy("connections report to the event channel"));
        }
        self.management.channels.remove(&channel.0).map(drop).ok_or(no_channel(channel))
    }

    /// Takes the oldest CM event of the channel; returns `None` if the channel has no CM event.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no channel `channel`.
    pub fn next_event(&mut self, channel: ChannelId) -> Result<Option<CmEvent>, Error> {
        self.management.channels.get_mut(&channel.0).map(VecDeque::pop_front).ok_or(no_channel(channel))
    }

    /// Returns true if the channel has CM events that were not taken yet.
    pub fn channel_ready(&self, channel: ChannelId) -> bool {
        self.management.channels.get(&channel.0).is_some_and(|events| !events.is_empty())
    }

    /// Makes a listener for connection requests to the TCP-space port `port`, and returns the listener's id and port.
    /// If `port` is 0, the device chooses a free port from 32768 on. `backlog` is the maximum number of requests that
    /// may wait at this listener for the application.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no channel `channel`, and with [`Error::Busy`] if another listener
    /// has the port. Fails with [`Error::Exhausted`] if `port` is 0 and no port from 32768 on is free.
    pub fn listen(&mut self, channel: ChannelId, port: u16, backlog: u32) -> Result<(CmId, u16), Error> {
        self.check_channel(channel)?;
        let (id, port) = self.management.cm.listen(port, backlog, &mut *self.entropy)?;
        self.management.owners.insert(id, channel.0);
        Ok((id, port))
    }

    /// Starts to connect from `local` to the TCP-space address `remote`; the attempt ends with a CM event.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the channel or the queue pair does not exist, and with [`Error::QpState`] if
    /// the queue pair was connected before. Also fails with the errors of [`Cm::connect`].
    pub fn connect(
        &mut self,
        now: Time,
        channel: ChannelId,
        qp: QpNum,
        local: IpAddr,
        remote: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId, Error> {
        self.check_channel(channel)?;
        self.check_unconnected(qp)?;
        let args = ConnectArgs {
            local,
            remote,
            peer: SocketAddr::new(remote.ip(), ROCE_PORT),
            qpn: qp.0,
            starting_psn: Psn::new(self.entropy.next_u32()),
            path_mtu: self.max_path_mtu,
            param,
        };
        let id = self.management.cm.connect(now, args, &mut *self.entropy)?;
        self.management.owners.insert(id, channel.0);
        self.settle_cm();
        Ok(id)
    }

    /// Brings `qp` to ready-to-send and accepts the connection request `id`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the request or the queue pair does not exist, and with [`Error::QpState`] if
    /// the queue pair was connected before. Also fails with the errors of [`Cm::accept`].
    pub fn accept(&mut self, now: Time, id: CmId, qp: QpNum, param: &ConnParam) -> Result<(), Error> {
        self.check_unconnected(qp)?;
        let psn = Psn::new(self.entropy.next_u32());
        self.management.cm.accept(now, id, qp.0, psn, param)?;
        self.settle_cm();
        Ok(())
    }

    /// Rejects a connection request with reason 28 and at most 148 bytes of private data. The application must not use
    /// `id` afterwards. If the request has expired or does not exist any more, this method fails. It nevertheless
    /// removes the request from its channel, so that the channel can be destroyed.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if the request does not exist any more. Fails with [`Error::Invalid`] if the
    /// request was accepted, was rejected or has expired, or if `private_data` is too long.
    pub fn reject(&mut self, now: Time, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        let rejected = self.management.cm.reject(now, id, private_data);
        self.settle_cm();
        if self.management.cm.is_over(id) {
            self.release_id(id);
        }
        rejected
    }

    /// Ends a connection or a connection attempt: moves a connected queue pair to the error state, notifies the peer,
    /// and queues the CM event `Disconnected`.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if `id` was never assigned or is a listener, and with [`Error::Invalid`] if `id`
    /// is a request that waits for the application.
    pub fn disconnect(&mut self, now: Time, id: CmId) -> Result<(), Error> {
        self.management.cm.disconnect(now, id)?;
        self.settle_cm();
        Ok(())
    }

    /// Destroys a listener, connection or request, and removes its CM events from its channel. If `id` is a listener,
    /// the CM events of the requests that wait for the application at this listener are removed, too. If `id` is an
    /// established connection, the connection is disconnected.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if no listener and no connection ever had the id `id`.
    pub fn destroy_id(&mut self, now: Time, id: CmId) -> Result<(), Error> {
        let destroyed = self.management.cm.destroy(now, id);
        self.settle_cm();
        self.release_id(id);
        destroyed
    }

    /// Removes the CM events of `id` from its channel, so that the channel can be destroyed.
    fn release_id(&mut self, id: CmId) {
        if let Some(channel) = self.management.owners.remove(&id)
            && let Some(events) = self.management.channels.get_mut(&channel)
        {
            events.retain(|event| event.id() != id);
        }
    }

    /// The counters of connection management.
    pub fn cm_counters(&self) -> &CmCounters {
        self.management.cm.counters()
    }

    /// Returns true if a DREQ of this device has no DREP yet. A DREQ that was lost is sent again only while the device
    /// is open. If the device is closed before the DREP arrives, it is possible that the peer never learns that its
    /// connection has ended.
    pub fn is_disconnecting(&self) -> bool {
        self.management.cm.is_disconnecting()
    }

    /// Ends all connection attempts to the UDP address `to` with the CM event `Unreachable`. The caller calls this
    /// method if the operating system refused to send a datagram to `to`.
    pub fn send_failed(&mut self, to: SocketAddr) {
        self.management.cm.send_failed(to);
        self.settle_cm();
    }

    /// Checks that the channel exists.
    ///
    /// # Errors
    /// Fails with [`Error::NotFound`] if there is no channel `channel`.
    pub fn check_channel(&self, channel: ChannelId) -> Result<(), Error> {
        self.management.channels.get(&channel.0).map(drop).ok_or(no_channel(channel))
    }

    fn check_unconnected(&self, qp: QpNum) -> Result<(), Error> {
        match self.qp_state(qp) {
            Some("not connected") => Ok(()),
            Some(state) => Err(Error::QpState(state)),
            None => Err(no_qp(qp)),
        }
    }

    pub(super) fn handle_ud(
        &mut self,
        now: Time,
        meta: &DatagramMeta,
        packet: &Packet<'_>,
        datagram: &[u8],
    ) -> Result<(), RefusalCause> {
        let mad: Option<&[u8; MAD_LEN]> = packet.payload.try_into().ok();
        let keyed = packet.deth.is_some_and(|deth| deth.q_key == GSI_Q_KEY);
        let (GSI_QP, true, Some(mad)) = (packet.bth.dest_qp, keyed, mad) else {
            return Err(RefusalCause::NotManagement);
        };
        self.check_icrc(meta, datagram, IdRule::Any)?;
        self.shared.counters.rcvd_pkts += 1;
        let handled = self.management.cm.handle_mad(now, meta.from, meta.to.ip(), mad, &mut *self.entropy);
        self.settle_cm();
        handled
    }

    /// Notes that a packet arrived on a queue pair. If the RTU of the queue pair's connection has not arrived, the
    /// packet confirms the connection as an RTU does (ib_cm_notify).
    pub(super) fn data_arrived(&mut self, qpn: u32) {
        self.management.cm.data_arrived(qpn);
        self.settle_cm();
    }

    /// Does what the CM demands: connects queue pairs, moves queue pairs to the error state, queues CM events for the
    /// program, and withdraws connection requests.
    fn settle_cm(&mut self) {
        while let Some(output) = self.management.cm.poll_output() {
            match output {
                CmOutput::Bind(Binding { qpn, attr, .. }) => {
                    // The call of `connect_qp` fails if the application has already destroyed the queue pair. The error
                    // of `connect_qp` is ignored, because the application gets an error if it uses the destroyed queue
                    // pair again.
                    let _ = self.connect_qp(QpNum(qpn), &attr);
                }
                CmOutput::FailQp { qpn } => self.fail_qp(QpNum(qpn)),
                CmOutput::Event(event) => self.deliver(event),
                CmOutput::Withdrawn { id } => self.withdraw(id),
            }
        }
    }

    /// Handles the end of the connection request `id`. If the application has not taken the CM event of the connection
    /// request yet, this method removes the CM event and the entry of `id` in `owners`. If the application has already
    /// taken this CM event, the entry of `id` stays in `owners` until the application calls [`Self::destroy_id`] or
    /// [`Self::reject`]. `reject` fails then, but nevertheless removes the entry.
    fn withdraw(&mut self, id: CmId) {
        let management = &mut self.management;
        let Some(owner) = management.owners.get(&id) else { return };
        let Some(events) = management.channels.get_mut(owner) else { return };
        let before = events.len();
        events.retain(|event| event.id() != id);
        if events.len() < before {
            management.owners.remove(&id);
        }
    }

    fn deliver(&mut self, event: CmEvent) {
        let management = &mut self.management;
        let id = event.id();
        let owner = match &event {
            CmEvent::ConnectRequest { listener, .. } => {
                let owner = management.owners.get(listener).copied();
                if let Some(owner) = owner {
                    management.owners.insert(id, owner);
                }
                owner
            }
            _ => management.owners.get(&id).copied(),
        };
        if let Some(events) = owner.and_then(|owner| management.channels.get_mut(&owner)) {
            events.push_back(event);
        }
    }

    pub(super) fn has_cm_transmit(&self) -> bool {
        self.management.cm.has_transmit()
    }

    pub(super) fn poll_cm_transmit(&mut self, out: &mut Transmit) -> bool {
        let Some((to, mad)) = self.management.cm.poll_transmit() else { return false };
        out.begin(to);
        let psn = Psn::new(self.management.psn);
        self.management.psn = self.management.psn.wrapping_add(1);
        let bth = Bth {
            opcode: crate::opcode::UD_SEND_ONLY,
            mig_req: true,
            p_key: Bth::DEFAULT_P_KEY,
            dest_qp: GSI_QP,
            psn,
            ..Bth::default()
        };
        out.header.push(&bth.encode());
        out.header.push(&Deth { q_key: GSI_Q_KEY, reserved: 0, src_qp: GSI_QP }.encode());
        out.inline.extend_from_slice(&mad);
        self.shared.counters.sent_pkts += 1;
        true
    }

    pub(super) fn cm_timeout(&self) -> Option<Time> {
        self.management.cm.poll_timeout()
    }

    pub(super) fn handle_cm_timeout(&mut self, now: Time) {
        self.management.cm.handle_timeout(now);
        self.settle_cm();
    }
}
