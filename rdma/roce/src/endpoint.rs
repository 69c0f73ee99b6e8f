//! The protocol state of one device on one local address. An endpoint contains the queue pairs and the memory regions
//! of the device. It checks each received datagram, and passes a correct datagram to a queue pair or to the connection
//! manager.
//!
//! The caller makes any number of `handle_*` and verbs calls, then calls `poll_transmit` until it returns false, and
//! then calls `poll_timeout`. The argument `now` must never be smaller than in an earlier call.

mod connection;
mod management;
mod verbs_calls;

pub use connection::QpAttr;

use std::{collections::VecDeque, iter::Peekable, net::SocketAddr};

use management::Management;

use crate::{
    cm::{Cm, CmConfig, embedded_guid, same_host},
    config::Config,
    counters::Counters,
    entropy::Entropy,
    icrc::{FlowCache, IdRule, Solver},
    id_map::IdMap,
    memory::RegionWriter,
    opcode::{self, Operation},
    qp::{DeviceTables, QpEntry},
    refusal::{Observer, Refusal, RefusalCause},
    time::Time,
    timer::Deadlines,
    transmit::Transmit,
    wire::{Bth, Malformed, Packet},
};

/// What the socket reports about a received datagram, besides the datagram's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramMeta {
    /// The address and UDP port of the sender.
    pub from: SocketAddr,
    /// The local address and port at which the datagram arrived.
    pub to: SocketAddr,
    /// The index of the datagram in the super-packet in which it was received. If the sender uses the embedded
    /// provider, this index is probably the datagram's IPv4 identification. The sender's Linux kernel numbers the
    /// datagrams of a super-packet from 0. The receiver's Linux kernel can merge the same datagrams into a super-packet
    /// again.
    pub index: u16,
}

/// The protocol state of one device.
pub struct Endpoint {
    pub(crate) shared: DeviceTables,
    entropy: Box<dyn Entropy + Send>,
    qps: IdMap<QpEntry>,
    pds: IdMap<()>,
    next_pd: u32,
    next_cq: u32,
    solver: Solver,
    flows: FlowCache,
    /// The numbers of the queue pairs that may have something to send. No number occurs twice in `ready`.
    ready: VecDeque<u32>,
    in_ready: IdMap<()>,
    /// The number of packets that the first queue pair of `ready` may still send before the next queue pair's turn.
    burst_left: u32,
    deadlines: Deadlines<u32>,
    max_path_mtu: u32,
    management: Management,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("qps", &self.qps.len()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Makes an endpoint. `max_path_mtu` is the largest path MTU that the network allows: 256, 512, 1024, 2048 or 4096
    /// bytes.
    pub fn new(config: Config, max_path_mtu: u32, mut entropy: Box<dyn Entropy + Send>) -> Self {
        let burst_left = config.burst;
        let cm = CmConfig::new(embedded_guid(entropy.next_u32()), max_path_mtu);
        Self {
            shared: DeviceTables::new(config),
            entropy,
            qps: IdMap::default(),
            pds: IdMap::default(),
            next_pd: 1,
            next_cq: 1,
            solver: Solver::new(),
            flows: FlowCache::default(),
            ready: VecDeque::new(),
            in_ready: IdMap::default(),
            burst_left,
            deadlines: Deadlines::default(),
            max_path_mtu,
            management: Management::new(Cm::new(cm)),
        }
    }

    /// The counters of the device, without those of the connection manager.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Handles the datagrams of one super-packet from the first to the second address of `path`, each with its index in the
    /// super-packet. The effect is the same as if [`Self::handle_datagram`] were called for one datagram after the other.
    /// MIDDLE packets that follow each other take less time, because what they have in common is looked up once.
    pub fn handle_super_packet<'a>(
        &mut self,
        now: Time,
        path: [SocketAddr; 2],
        datagrams: impl IntoIterator<Item = (u16, &'a [u8])>,
        memory: &mut dyn RegionWriter,
        observer: &mut dyn Observer,
    ) {
        let [from, to] = path;
        let mut datagrams = datagrams.into_iter().peekable();
        while let Some((index, datagram)) = datagrams.next() {
            let meta = DatagramMeta { from, to, index };
            if self.handle_datagram(now, &meta, datagram, memory, observer) {
                self.handle_run(now, path, datagram, &mut datagrams, memory);
            }
        }
    }

    /// Handles the packets in `datagrams` that belong to the run after the packet `before`, which was not refused. The other
    /// packets stay in `datagrams`.
    fn handle_run<'a>(
        &mut self,
        now: Time,
        [from, to]: [SocketAddr; 2],
        before: &[u8],
        datagrams: &mut Peekable<impl Iterator<Item = (u16, &'a [u8])>>,
        memory: &mut dyn RegionWriter,
    ) {
        let (Some(before), Some(_)) = (before.first_chunk().map(Bth::decode), datagrams.peek()) else {
            return;
        };
        let Some(qp) = self.qps.get_mut(&before.dest_qp) else { return };
        let Some((rule, mut run)) = qp.received_run(&before, &self.shared) else { return };
        let Some(flow) = self.flows.get(from, to) else { return };
        let mut packets = 0;
        while let Some((_, datagram)) = datagrams.next_if(|(index, datagram)| {
            run.fits(datagram) && self.solver.verify_warm(flow, datagram, rule, *index).is_ok()
        }) {
            run.execute(now, datagram, &self.shared, memory);
            packets += 1;
        }
        if packets > 0 {
            self.shared.counters.rcvd_pkts += packets;
            self.touch(before.dest_qp);
        }
    }

    /// Handles one datagram, and returns true if it was not refused. A packet that is not executed is counted, answered
    /// according to the protocol, and passed to `observer`.
    pub fn handle_datagram(
        &mut self,
        now: Time,
        meta: &DatagramMeta,
        datagram: &[u8],
        memory: &mut dyn RegionWriter,
        observer: &mut dyn Observer,
    ) -> bool {
        let packet = Packet::decode(datagram);
        let handled = match &packet {
            Ok(packet) => self.handle_packet(now, meta, packet, datagram, memory),
            Err(malformed) => Err(RefusalCause::Malformed(*malformed)),
        };
        if let Err(cause) = handled {
            cause.count(&mut self.shared.counters);
            observer.refused(&Refusal { cause, from: meta.from, packet: packet.as_ref().ok() });
        }
        handled.is_ok()
    }

    fn handle_packet(
        &mut self,
        now: Time,
        meta: &DatagramMeta,
        packet: &Packet<'_>,
        datagram: &[u8],
        memory: &mut dyn RegionWriter,
    ) -> Result<(), RefusalCause> {
        let opcode = packet.bth.opcode;
        let request = opcode::carrier(opcode).unwrap_or(opcode);
        let info = opcode::info(request).ok_or(Malformed::UnknownOpcode(opcode))?;
        check_bth(&packet.bth)?;
        if info.operation == Operation::UdSend {
            return self.handle_ud(now, meta, packet, datagram);
        }
        let qpn = packet.bth.dest_qp;
        let qp = self.qps.get(&qpn);
        let peer = qp.and_then(QpEntry::peer).copied().ok_or(RefusalCause::UnknownQp)?;
        // The UDP source port is not checked, because a peer with the Linux driver rxe uses a different source port for
        // each queue pair (rxe_recv.c).
        if !same_host(meta.from, peer.addr) {
            return Err(RefusalCause::WrongSource);
        }
        if packet.carried.is_some() && !qp.is_some_and(QpEntry::takes_carried_acks) {
            return Err(Malformed::UnknownOpcode(opcode).into());
        }
        self.check_icrc(meta, datagram, peer.id_rule())?;
        self.shared.counters.rcvd_pkts += 1;
        self.data_arrived(qpn);
        let qp = self.qps.get_mut(&qpn);
        let handled = qp.map_or(Ok(()), |qp| qp.handle(now, &info, packet, &mut self.shared, memory));
        self.touch(qpn);
        handled
    }

    fn check_icrc(&mut self, meta: &DatagramMeta, datagram: &[u8], rule: IdRule) -> Result<(), RefusalCause> {
        let flow = self.flows.get(meta.from, meta.to).ok_or(RefusalCause::Icrc)?;
        let checked = self.solver.verify_warm(flow, datagram, rule, meta.index);
        checked.map(drop).map_err(|_| RefusalCause::Icrc)
    }

    /// Notes whether a queue pair has something to send, and when its timer is due.
    fn touch(&mut self, qpn: u32) {
        let Some(qp) = self.qps.get(&qpn) else { return };
        if qp.has_work() && self.in_ready.insert(qpn, ()).is_none() {
            self.ready.push_back(qpn);
        }
        match qp.deadline() {
            Some(deadline) => self.deadlines.set(qpn, deadline),
            None => self.deadlines.clear(qpn),
        }
    }

    /// Builds the next packet in `out` and returns true; returns false if there is no packet to send. Each queue pair
    /// may send `Config::burst` packets before the next queue pair's turn.
    ///
    /// Until the method has returned false, the caller must pass the same `out`, and may change it only by
    /// [`Transmit::next_of_run`] and [`Transmit::end_run`]: it can hold further packets of a run, which count as sent.
    pub fn poll_transmit(&mut self, now: Time, out: &mut Transmit) -> bool {
        self.check_run(out);
        if out.next_of_run() || self.poll_cm_transmit(out) {
            return true;
        }
        while let Some(&qpn) = self.ready.front() {
            let sent = match self.qps.get_mut(&qpn) {
                Some(qp) if self.burst_left > 0 => {
                    qp.next_packet(now, &mut self.shared, out, self.burst_left)
                }
                _ => false,
            };
            if sent {
                self.burst_left -= 1 + out.run.more;
                return true;
            }
            self.burst_left = self.shared.config.burst;
            self.ready.pop_front();
            self.in_ready.remove(&qpn);
            self.touch(qpn);
        }
        false
    }

    /// Ends the run in `out` if its further packets must not be sent: a region was deregistered, a READ may not read its
    /// region any more, or the queue pair failed, was destroyed, or sends packets again. A queue pair that failed still
    /// sends the READ responses that wait. Packets that are not sent count as lost.
    pub fn check_run(&self, out: &mut Transmit) {
        if out.run.more == 0 {
            return;
        }
        let qp = self.qps.get(&out.run.qpn);
        if !qp.is_some_and(|qp| qp.run_goes_on(&out.run, &self.shared)) {
            out.end_run();
        }
    }

    /// Returns true if no packet waits to be sent, or if all waiting packets are acknowledgements that may be sent
    /// late. Such an acknowledgement may wait until the program has posted its response to the message, so that the
    /// acknowledgement and the response are sent together.
    pub fn owes_only_late_acks(&self) -> bool {
        /// The maximum number of queue pairs that one call of `owes_only_late_acks` checks. If more than `MOST` queue
        /// pairs may have packets to send, `owes_only_late_acks` returns false. Checking all these queue pairs would
        /// take more time than late acknowledgements save.
        const MOST: usize = 64;
        !self.has_cm_transmit()
            && self.ready.len() <= MOST
            && self.ready.iter().all(|qpn| self.qps.get(qpn).is_none_or(QpEntry::may_wait))
    }

    /// Returns the time at which the caller must call `handle_timeout`; `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.deadlines.next().into_iter().chain(self.cm_timeout()).min()
    }

    /// Executes all timers that are due at `now`. The caller calls this method when the time of [`Self::poll_timeout`]
    /// has come.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(qpn) = self.deadlines.pop(now) {
            if let Some(qp) = self.qps.get_mut(&qpn) {
                qp.handle_timeout(now, &mut self.shared);
            }
            self.touch(qpn);
        }
        self.handle_cm_timeout(now);
    }

    fn draw_qpn(&mut self) -> u32 {
        loop {
            let qpn = self.entropy.next_u32() & 0xff_ffff;
            // The numbers 0 and 1 are the management queue pairs; 0xffffff is multicast.
            if qpn > 1 && qpn != 0xff_ffff && !self.qps.contains_key(&qpn) {
                return qpn;
            }
        }
    }
}

/// Checks the fields of the BTH that are the same in all operations (rxe_recv.c).
fn check_bth(bth: &Bth) -> Result<(), RefusalCause> {
    match bth {
        Bth { tver: 0, dest_qp: 1.., p_key: 0xffff | 0x7fff, .. } => Ok(()),
        Bth { tver: 1.., .. } => Err(RefusalCause::Version),
        Bth { dest_qp: 0, .. } => Err(RefusalCause::QueuePairZero),
        _ => Err(RefusalCause::PKey),
    }
}
