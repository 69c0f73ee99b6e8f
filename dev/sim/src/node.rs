//! A driver of one endpoint, as sockets would be: gathers, numbers, sends and receives.

use std::{fs::File, io::BufWriter, net::SocketAddr};

use roce::{
    Config, DatagramMeta, Endpoint, Entropy, RegionId, RegionWriter, Time, Transmit,
    icrc::{Flow, compute},
    opcode,
    psn::Psn,
    wire::Bth,
};
use simnet::{Arrival, Link, Packet, Random, pcap};
use verbs::{
    Access, ChannelId, CqId, MrKeys, Payload, PdId, QpCap, QpInit, QpNum, RecvWr, RemoteAddr, SendOp, SendWr,
    Sge, Wc,
};

use super::{
    plan::Plan,
    traffic::{FOREIGN, Images, Kind, LOCAL, MAX_SGE, Operation, Receive, SHELF, SOURCE, Span, TARGET},
};

/// Segments the kernel's GSO puts in one super-packet at most, here.
const MAX_TRAIN: u16 = 16;
/// More packets than any window allows at one point in time.
const MAX_PUMP: usize = 1 << 17;

pub(super) type Capture = pcap::Writer<BufWriter<File>>;

/// A datagram on the wire.
#[derive(Clone, Debug)]
pub(super) struct Datagram {
    pub(super) bytes: Vec<u8>,
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) ip_id: u16,
    /// The super-packet it left in.
    train: u64,
}

impl Packet for Datagram {
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Registered memory, by region.
#[derive(Debug, Default)]
pub(super) struct Arenas(Vec<Vec<u8>>);

impl RegionWriter for Arenas {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) {
        self.0[region.0 as usize][offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

struct Seeded(Random);

impl Entropy for Seeded {
    fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Region {
    pub(super) id: RegionId,
    pub(super) keys: MrKeys,
    pub(super) va: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) arenas: Arenas,
    pub(super) regions: Vec<Region>,
    pd: PdId,
    pub(super) qp: QpNum,
    pub(super) send_cq: CqId,
    pub(super) recv_cq: CqId,
    pub(super) channel: ChannelId,
    pub(super) addr: SocketAddr,
    embedded: bool,
    gro: bool,
    random: Random,
    transmit: Transmit,
    trains: u64,
    /// The highest PSN sent.
    highest: Option<Psn>,
    pub(super) retransmitted: u64,
    pub(super) sent: u64,
}

impl Node {
    /// A node with the regions of the traffic.
    pub(super) fn new(plan: &Plan, number: usize, images: &Images, completions: u32) -> Self {
        let own = &plan.nodes[number];
        let cap = QpCap {
            max_send_wr: own.max_send_wr,
            max_recv_wr: own.max_recv_wr,
            max_sge: MAX_SGE,
            late_acks: own.late_acks,
        };
        Self::with(plan, number, cap, completions, Some(images))
    }

    /// A node without regions.
    pub(super) fn bare(plan: &Plan, number: usize, cap: QpCap, completions: u32) -> Self {
        Self::with(plan, number, cap, completions, None)
    }

    fn with(plan: &Plan, number: usize, cap: QpCap, completions: u32, images: Option<&Images>) -> Self {
        let own = &plan.nodes[number];
        let mut random = Random::new(plan.seed, 10 + number as u64);
        let entropy = Seeded(Random::new(plan.seed, 20 + number as u64));
        let config = Config { max_cq_depth: completions.max(1 << 16), ..own.config.clone() };
        let mut endpoint = Endpoint::new(config, plan.mtu, Box::new(entropy));
        let pds = [endpoint.alloc_pd(), endpoint.alloc_pd()];
        let mut arenas = Arenas::default();
        let regions = images
            .map_or_else(Vec::new, |images| register(&mut endpoint, &mut random, pds, images, &mut arenas));
        let [send_cq, recv_cq] = [0; 2].map(|_| endpoint.create_cq(completions).expect("within the limits"));
        let qp =
            endpoint.create_qp(&QpInit { pd: pds[0], send_cq, recv_cq, cap }).expect("within the limits");
        let channel = endpoint.create_channel();
        Self {
            endpoint,
            arenas,
            regions,
            pd: pds[0],
            qp,
            send_cq,
            recv_cq,
            channel,
            addr: plan.addr(number),
            embedded: own.embedded,
            gro: own.gro,
            random,
            transmit: Transmit::default(),
            trains: 0,
            highest: None,
            retransmitted: 0,
            sent: 0,
        }
    }

    /// Another region; gives its position.
    pub(super) fn register(&mut self, image: &[u8], access: Access) -> usize {
        let (endpoint, random) = (&mut self.endpoint, &mut self.random);
        self.regions.push(place(endpoint, random, self.pd, image, access, &mut self.arenas));
        self.regions.len() - 1
    }

    pub(super) fn bytes(&self, region: usize) -> &[u8] {
        &self.arenas.0[self.regions[region].id.0 as usize]
    }

    pub(super) fn bytes_mut(&mut self, region: usize) -> &mut [u8] {
        &mut self.arenas.0[self.regions[region].id.0 as usize]
    }

    fn sges(&self, spans: &[Span]) -> Vec<Sge> {
        let sge = |span: &Span| {
            let region = &self.regions[span.region];
            Sge { addr: region.va + span.offset, length: span.len, lkey: region.keys.lkey }
        };
        spans.iter().map(sge).collect()
    }

    pub(super) fn post_send(
        &mut self,
        n: usize,
        op: &Operation,
        remote: RemoteAddr,
    ) -> Result<(), verbs::Error> {
        let sges = self.sges(&op.local);
        let payload = if op.inline { Payload::Inline(&op.data) } else { Payload::Sges(&sges) };
        let op_code = match (op.kind, op.imm) {
            (Kind::Send, None) => SendOp::Send,
            (Kind::Send, Some(imm)) => SendOp::SendWithImm(imm),
            (Kind::Write, None) => SendOp::Write(remote),
            (Kind::Write, Some(imm)) => SendOp::WriteWithImm(remote, imm),
            (Kind::Read, _) => SendOp::Read(remote),
        };
        self.endpoint.post_send(self.qp, &SendWr { wr_id: n as u64, op: op_code, payload, flags: op.flags })
    }

    pub(super) fn post_recv(&mut self, n: usize, receive: &Receive) -> Result<(), verbs::Error> {
        let sges = self.sges(&receive.local);
        self.endpoint.post_recv(self.qp, &RecvWr { wr_id: n as u64, sges: &sges })
    }

    pub(super) fn poll(&mut self, cq: CqId) -> Vec<Wc> {
        let mut out = [Wc::EMPTY; 16];
        let mut all = Vec::new();
        loop {
            let n = self.endpoint.poll_cq(cq, &mut out).expect("the queue exists");
            all.extend_from_slice(&out[..n]);
            if n < out.len() {
                return all;
            }
        }
    }

    /// Sends over a link what the endpoint has to send.
    pub(super) fn send(
        &mut self,
        now: u64,
        link: &mut Link<Datagram>,
        capture: &mut Option<Capture>,
    ) -> Result<(), String> {
        for train in self.pump(now)? {
            if let Some(capture) = capture {
                for d in &train {
                    let written = capture.datagram(now, d.from, d.to, d.ip_id, &d.bytes);
                    written.map_err(|e| format!("capture: {e}"))?;
                }
            }
            link.send_train(now, train);
        }
        Ok(())
    }

    /// Builds everything the endpoint has to send, in trains that leave together.
    pub(super) fn pump(&mut self, now: u64) -> Result<Vec<Vec<Datagram>>, String> {
        let mut trains: Vec<Vec<Datagram>> = Vec::new();
        let mut transmit = std::mem::take(&mut self.transmit);
        let mut packets = 0;
        while self.endpoint.poll_transmit(Time(now), &mut transmit) {
            packets += 1;
            if packets > MAX_PUMP {
                return Err("poll_transmit does not end".to_owned());
            }
            let joins = trains.last().is_some_and(|train| joins(train, &transmit));
            if !joins {
                self.trains += 1;
                trains.push(Vec::new());
            }
            let train = trains.last_mut().expect("just pushed");
            let index = train.len() as u16;
            let ip_id = if self.embedded { index } else { self.random.next_u32() as u16 };
            self.note_retransmission(&transmit);
            train.push(gather(&transmit, &self.arenas, self.addr, ip_id, self.trains));
        }
        self.sent += packets as u64;
        self.transmit = transmit;
        Ok(trains)
    }

    fn note_retransmission(&mut self, transmit: &Transmit) {
        let Some(bth) = transmit.header.as_slice().first_chunk().map(Bth::decode) else { return };
        if bth.opcode >= opcode::READ_RESPONSE_FIRST {
            return;
        }
        if self.highest.is_some_and(|highest| bth.psn.since(highest) <= 0) {
            self.retransmitted += 1;
        } else {
            self.highest = Some(bth.psn);
        }
    }

    /// Hands arrived datagrams to the endpoint, with GRO as super-packets. A damaged one that it accepts is an error.
    pub(super) fn receive(&mut self, now: u64, arrivals: &[Arrival<Datagram>]) -> Result<(), String> {
        let gro = self.gro;
        for together in arrivals.chunk_by(|one, next| gro && one.packet.train == next.packet.train) {
            if together.iter().any(|arrival| arrival.corrupted.is_some()) {
                self.receive_singly(now, together)?;
            } else if let Some(Arrival { packet, .. }) = together.first() {
                // The index is the position in what arrived together, which losses shift.
                let datagrams =
                    together.iter().zip(0..).map(|(arrival, index)| (index, &arrival.packet.bytes[..]));
                let path = [packet.from, packet.to];
                self.endpoint.handle_super_packet(Time(now), path, datagrams, &mut self.arenas, &mut ());
            }
        }
        Ok(())
    }

    fn receive_singly(&mut self, now: u64, together: &[Arrival<Datagram>]) -> Result<(), String> {
        for (Arrival { packet, corrupted, .. }, index) in together.iter().zip(0..) {
            let accepted = self.accepts(now, packet, index);
            if let Some(bit) = corrupted
                && accepted
                // The one byte that routers may change.
                && bit / 8 != 4
            {
                return Err(format!(
                    "a packet with bit {bit} of {} flipped was accepted",
                    packet.bytes.len() * 8
                ));
            }
        }
        Ok(())
    }

    fn accepts(&mut self, now: u64, packet: &Datagram, index: u16) -> bool {
        let before = self.endpoint.counters().rcvd_pkts;
        let meta = DatagramMeta { from: packet.from, to: packet.to, index };
        self.endpoint.handle_datagram(Time(now), &meta, &packet.bytes, &mut self.arenas, &mut ());
        self.endpoint.counters().rcvd_pkts > before
    }

    pub(super) fn next_timeout(&self) -> Option<u64> {
        self.endpoint.poll_timeout().map(|t| t.nanos())
    }
}

fn register(
    endpoint: &mut Endpoint,
    random: &mut Random,
    pds: [PdId; 2],
    images: &Images,
    arenas: &mut Arenas,
) -> Vec<Region> {
    let none = Access::default();
    let mut region = |(n, image): (usize, &Vec<u8>)| {
        let access = match n {
            SOURCE => none,
            SHELF => Access { remote_read: true, ..none },
            LOCAL => Access::LOCAL,
            TARGET | FOREIGN => Access::ALL,
            _ => unreachable!("five regions"),
        };
        let pd = if n == FOREIGN { pds[1] } else { pds[0] };
        place(endpoint, random, pd, image, access, arenas)
    };
    images.iter().enumerate().map(&mut region).collect()
}

/// Registers a region at any address, the first and the last ones too.
fn place(
    endpoint: &mut Endpoint,
    random: &mut Random,
    pd: PdId,
    image: &[u8],
    access: Access,
    arenas: &mut Arenas,
) -> Region {
    let len = image.len() as u64;
    let va = random.pick(&[0, 0x7f00_0000_0000 + random.clone().below(1 << 20), u64::MAX - len]);
    let (keys, id) = endpoint.reg_mr(pd, va, len, access).expect("within the limits");
    let slot = id.0 as usize;
    arenas.0.resize(arenas.0.len().max(slot + 1), Vec::new());
    arenas.0[slot] = image.to_vec();
    Region { id, keys, va }
}

/// GSO takes equal sizes to one destination, and a shorter one at the end.
fn joins(train: &[Datagram], next: &Transmit) -> bool {
    let (Some(first), Some(last)) = (train.first(), train.last()) else { return false };
    let full = last.bytes.len() == first.bytes.len() && next.datagram_len() <= first.bytes.len();
    full && first.to == next.to && train.len() < usize::from(MAX_TRAIN)
}

fn gather(transmit: &Transmit, arenas: &Arenas, from: SocketAddr, ip_id: u16, train: u64) -> Datagram {
    let mut bytes = Vec::with_capacity(transmit.datagram_len());
    bytes.extend_from_slice(transmit.header.as_slice());
    bytes.extend_from_slice(&transmit.inline);
    for piece in &transmit.pieces {
        let arena = &arenas.0[piece.region.0 as usize];
        bytes.extend_from_slice(&arena[piece.offset as usize..][..piece.len as usize]);
    }
    bytes.resize(bytes.len() + transmit.pad(), 0);
    finish(&mut bytes, from, transmit.to, ip_id);
    Datagram { bytes, from, to: transmit.to, ip_id, train }
}

/// Appends the ICRC.
pub(super) fn finish(bytes: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, ip_id: u16) {
    let flow = Flow::new(from, to).expect("both ends are of one family");
    let (header, rest) = bytes.split_at(Bth::LEN);
    let icrc = compute(&flow, ip_id, header, std::iter::once(rest));
    bytes.extend(icrc);
}
