//! RoCEv2 by itself: two endpoints in one memory, the codec of packets, and the ICRC.

use std::{hint::black_box, net::SocketAddr};

use roce::{
    Config, DatagramMeta, Endpoint, Piece, QpAttr, RegionId, RegionWriter, Time, Transmit,
    icrc::{Flow, IdRule, Solver, WarmFlow, compute},
    opcode,
    psn::Psn,
    wire::{Bth, HeaderBuf, ICRC_LEN, Packet, ROCE_PORT, Reth, pad_of},
};
use verbs::{
    Access, CqId, Payload, PdId, QpCap, QpInit, QpNum, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc,
};

use crate::numbers::Numbers;

/// The bytes of the region of each end, and of the WRITE of [`Pair::write`].
pub const MESSAGE: usize = 1 << 20;
/// The path MTU in bytes.
pub const MTU: usize = 4096;
/// The maximum number of packets in a super-packet.
const SUPER_PACKET: usize = 64;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], ROCE_PORT).into()
}

/// The one region of an end.
#[derive(Debug)]
struct Bytes(Vec<u8>);

impl RegionWriter for Bytes {
    fn write(&mut self, _: RegionId, offset: u64, bytes: &[u8]) {
        let start = offset as usize;
        self.0[start..start + bytes.len()].copy_from_slice(bytes);
    }
}

/// An endpoint with a queue pair and a region.
#[derive(Debug)]
struct End {
    endpoint: Endpoint,
    qp: QpNum,
    cq: CqId,
    sge: Sge,
    rkey: u32,
    bytes: Bytes,
    at: SocketAddr,
}

impl End {
    fn new(last: u8) -> Option<Self> {
        let mut endpoint = Endpoint::new(Config::default(), MTU as u32, Box::new(Numbers(last.into())));
        let pd: PdId = endpoint.alloc_pd();
        let cq = endpoint.create_cq(64).ok()?;
        let cap = QpCap::default();
        let qp = endpoint.create_qp(&QpInit { pd, send_cq: cq, recv_cq: cq, cap }).ok()?;
        let addr = 1 << 32;
        let (keys, _) = endpoint.reg_mr(pd, addr, MESSAGE as u64, Access::ALL).ok()?;
        let sge = Sge { addr, length: MESSAGE as u32, lkey: keys.lkey };
        let bytes = Bytes(vec![last; MESSAGE]);
        Some(Self { endpoint, qp, cq, sge, rkey: keys.rkey, bytes, at: address(last) })
    }

    fn connect(&mut self, peer: &SocketAddr, remote: QpNum) -> Option<()> {
        let attr = QpAttr {
            peer: *peer,
            remote_qpn: remote.0,
            path_mtu: MTU as u32,
            send_psn: 0,
            recv_psn: 0,
            retry_count: 7,
            rnr_retry_count: 7,
            ack_timeout: 14,
            responder_resources: 1,
            initiator_depth: 1,
            embedded_peer: true,
            offers_carried_acks: true,
        };
        self.endpoint.connect_qp(self.qp, &attr).ok()
    }
}

/// Packets of one end on their way to the other.
#[derive(Debug, Default)]
pub struct Batch {
    /// The headers and the payload of each packet, before it is sealed.
    described: Vec<(HeaderBuf, Option<Piece>)>,
    /// The UDP payloads one behind the other, as a batch is received.
    bytes: Vec<u8>,
    /// Where each UDP payload ends.
    ends: Vec<usize>,
}

impl Batch {
    /// Appends a packet, sealed by its ICRC. Its payload comes from `memory`. Its IPv4 identification is its index in its
    /// super-packet.
    fn seal(&mut self, header: &[u8], payload: &[Piece], flow: &Flow, memory: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(header);
        for piece in payload {
            let start = piece.offset as usize;
            self.bytes.extend_from_slice(&memory[start..start + piece.len as usize]);
        }
        // The headers are a multiple of four bytes long.
        let pad = usize::from(pad_of(self.bytes.len() - start));
        self.bytes.resize(self.bytes.len() + pad, 0);
        let (bth, rest) = self.bytes[start..].split_at(Bth::LEN);
        let icrc = compute(flow, (self.ends.len() % SUPER_PACKET) as u16, bth, std::iter::once(rest));
        self.bytes.extend_from_slice(&icrc);
        self.ends.push(self.bytes.len());
    }

    fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Two endpoints in one memory, without a network: every packet is gathered into a buffer, sealed by its ICRC,
/// checked and placed.
#[derive(Debug)]
pub struct Pair {
    ends: [End; 2],
    now: u64,
    transmit: Transmit,
    batch: Batch,
}

/// One of the two ends of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end whose program posts work requests.
    Requester,
    /// The end whose memory is written and read.
    Responder,
}

/// A work request of the requester's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A SEND, for which the responder's program posts a receive first.
    Send,
    /// A WRITE to the responder's region.
    Write,
    /// A READ from the responder's region.
    Read,
}

impl Pair {
    /// `None` if the engine refuses.
    pub fn new() -> Option<Self> {
        let [mut a, mut b] = [End::new(1)?, End::new(2)?];
        a.connect(&b.at, b.qp)?;
        b.connect(&a.at, a.qp)?;
        let (transmit, batch) = (Transmit::default(), Batch::default());
        Some(Self { ends: [a, b], now: 1, transmit, batch })
    }

    /// Executes a WRITE of [`MESSAGE`] bytes until it is completed. Returns `None` if it does not complete.
    pub fn write(&mut self) -> Option<()> {
        self.post(Request::Write, MESSAGE)?;
        loop {
            let moved = self.carry(0)? + self.carry(1)?;
            match self.completed(Side::Requester)? {
                0 if moved > 0 => (),
                // Nothing is lost here, so silence is a defect.
                completed => return (completed == 1).then_some(()),
            }
        }
    }

    /// Posts a request of `bytes` bytes. `None` if the engine refuses.
    pub fn post(&mut self, request: Request, bytes: usize) -> Option<()> {
        let [a, b] = &mut self.ends;
        let target = RemoteAddr { addr: b.sge.addr, rkey: b.rkey };
        let op = match request {
            Request::Send => {
                b.endpoint.post_recv(b.qp, &RecvWr { wr_id: 1, sges: &[b.sge] }).ok()?;
                SendOp::Send
            }
            Request::Write => SendOp::Write(target),
            Request::Read => SendOp::Read(target),
        };
        let sge = Sge { length: bytes as u32, ..a.sge };
        let (payload, flags) = (Payload::Sges(&[sge]), SendFlags::SIGNALED);
        a.endpoint.post_send(a.qp, &SendWr { wr_id: 1, op, payload, flags }).ok()
    }

    /// Lets an end describe in `batch` the packets that it sends. Returns their number.
    pub fn describe(&mut self, side: Side, batch: &mut Batch) -> usize {
        self.now += 1000;
        batch.described.clear();
        let from = &mut self.ends[side as usize];
        while from.endpoint.poll_transmit(Time(self.now), &mut self.transmit) {
            batch.described.push((self.transmit.header, self.transmit.pieces.first().copied()));
        }
        batch.described.len()
    }

    /// Makes datagrams of the packets that an end has described. Returns `None` if one address is of IPv4 and the other of IPv6.
    pub fn seal(&mut self, side: Side, batch: &mut Batch) -> Option<()> {
        let [from, to] = self.of(side);
        let flow = Flow::new(self.ends[from].at, self.ends[to].at)?;
        batch.bytes.clear();
        batch.ends.clear();
        let described = std::mem::take(&mut batch.described);
        for (header, piece) in &described {
            batch.seal(header.as_slice(), piece.as_slice(), &flow, &self.ends[from].bytes.0);
        }
        batch.described = described;
        Some(())
    }

    /// Hands the packets of the other end to this one, as super-packets.
    pub fn receive(&mut self, side: Side, batch: &Batch) {
        let [to, from] = self.of(side);
        let path = [self.ends[from].at, self.ends[to].at];
        let End { endpoint, bytes, .. } = &mut self.ends[to];
        let mut datagrams = batch.datagrams().peekable();
        while datagrams.peek().is_some() {
            let super_packet = (0..SUPER_PACKET as u16).zip(&mut datagrams);
            endpoint.handle_super_packet(Time(self.now), path, super_packet, bytes, &mut ());
        }
    }

    /// The number of completions of an end. `None` if a completion has an error.
    pub fn completed(&mut self, side: Side) -> Option<usize> {
        let end = &mut self.ends[side as usize];
        let mut out = [Wc::EMPTY; 64];
        let count = end.endpoint.poll_cq(end.cq, &mut out).ok()?;
        out[..count].iter().all(|wc| wc.status.is_success()).then_some(count)
    }

    fn of(&self, side: Side) -> [usize; 2] {
        [side as usize, 1 - side as usize]
    }

    /// Packets carried from one end to the other, one at a time.
    fn carry(&mut self, from: usize) -> Option<u32> {
        self.now += 500;
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let flow = Flow::new(from.at, to.at)?;
        let meta = DatagramMeta { from: from.at, to: to.at, index: 0 };
        let mut packets = 0;
        while from.endpoint.poll_transmit(Time(self.now), &mut self.transmit) {
            packets += 1;
            self.batch.bytes.clear();
            self.batch.ends.clear();
            let Transmit { header, pieces, .. } = &self.transmit;
            self.batch.seal(header.as_slice(), pieces, &flow, &from.bytes.0);
            let datagram = &self.batch.bytes;
            to.endpoint.handle_datagram(Time(self.now), &meta, datagram, &mut to.bytes, &mut ());
        }
        Some(packets)
    }
}

/// Decodes a packet of a WRITE, and encodes it again.
#[derive(Debug)]
pub struct Codec {
    datagram: Vec<u8>,
    out: Vec<u8>,
}

impl Codec {
    /// A packet with [`MTU`] bytes of payload.
    pub fn new() -> Self {
        Self::of(MTU)
    }

    /// Makes a packet with `bytes` bytes of payload, at most [`MTU`].
    pub fn of(bytes: usize) -> Self {
        let payload = vec![0x5a; bytes];
        let packet = Packet {
            bth: Bth {
                opcode: opcode::WRITE_ONLY,
                p_key: Bth::DEFAULT_P_KEY,
                dest_qp: 17,
                ack_req: true,
                psn: Psn::new(0x12_3456),
                ..Bth::default()
            },
            reth: Some(Reth { addr: 1 << 32, rkey: 0x1234_5678, length: bytes as u32 }),
            payload: &payload,
            icrc: [1, 2, 3, 4],
            ..Packet::default()
        };
        let mut datagram = Vec::new();
        packet.encode(&mut datagram);
        Self { out: Vec::with_capacity(datagram.len()), datagram }
    }

    /// Bytes of the packet.
    pub fn bytes(&self) -> usize {
        self.datagram.len()
    }

    /// Decodes the packet. `None` if it is not one.
    pub fn decode(&self) -> Option<Packet<'_>> {
        Packet::decode(black_box(&self.datagram)).ok()
    }

    /// Decodes and encodes the packet. Returns `None` if the bytes differ afterwards.
    pub fn run(&mut self) -> Option<()> {
        self.out.clear();
        let packet = Packet::decode(black_box(&self.datagram)).ok()?;
        black_box(&packet).encode(&mut self.out);
        (black_box(&self.out).len() == self.datagram.len()).then_some(())
    }
}

impl Default for Codec {
    fn default() -> Self {
        Self::new()
    }
}

/// The ICRC of a packet of a WRITE.
#[derive(Debug)]
pub struct Icrc {
    flow: Flow,
    warm: WarmFlow,
    solver: Solver,
    datagram: Vec<u8>,
}

impl Icrc {
    /// The ICRC of a packet with [`MTU`] bytes of payload. Returns `None` if one address is of IPv4 and the other of IPv6.
    pub fn new() -> Option<Self> {
        Self::of(MTU)
    }

    /// Makes the ICRC of a packet with `bytes` bytes of payload. Returns `None` if one address is of IPv4 and the other of IPv6.
    pub fn of(bytes: usize) -> Option<Self> {
        let flow = Flow::new(address(1), address(2))?;
        let mut datagram = Codec::of(bytes).datagram;
        let body = datagram.len() - ICRC_LEN;
        let icrc = compute(&flow, 0, &datagram[..body], std::iter::empty());
        datagram[body..].copy_from_slice(&icrc);
        Some(Self { flow, warm: WarmFlow::new(flow), solver: Solver::new(), datagram })
    }

    /// Computes the ICRC, as a sender does.
    pub fn run(&self) {
        let (body, _) = self.datagram.split_at(self.datagram.len() - ICRC_LEN);
        let (header, payload) = black_box(body).split_at(Bth::LEN + Reth::LEN);
        black_box(compute(&self.flow, 0, header, std::iter::once(payload)));
    }

    /// Checks the ICRC, as a receiver does that takes the IP identification to be `hint`; it is 0. `None` if the ICRC is wrong.
    pub fn verify(&mut self, rule: IdRule, hint: u16) -> Option<()> {
        let datagram = black_box(&self.datagram);
        self.solver.verify_warm(&mut self.warm, datagram, rule, hint).ok().map(|checked| {
            black_box(checked);
        })
    }
}

/// A copy of bytes, which is the reference of the other measurements.
#[derive(Debug)]
pub struct Copying {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copying {
    /// Makes a copy of `bytes` bytes.
    pub fn new(bytes: usize) -> Self {
        Self { from: vec![0x5a; bytes], to: vec![0; bytes] }
    }

    /// Copies once.
    pub fn run(&mut self) {
        self.to.copy_from_slice(black_box(&self.from));
        black_box(&self.to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_arrives() {
        let mut pair = Pair::new().unwrap();
        for _ in 0..3 {
            pair.write().unwrap();
        }
        assert!(pair.ends[1].bytes.0 == pair.ends[0].bytes.0);
    }

    #[test]
    fn each_request_is_completed_by_one_batch_each_way() {
        for request in [Request::Send, Request::Write, Request::Read] {
            let mut pair = Pair::new().unwrap();
            let (mut there, mut back) = (Batch::default(), Batch::default());
            for _ in 0..3 {
                pair.post(request, 5 * MTU).unwrap();
                let packets = pair.describe(Side::Requester, &mut there);
                assert_eq!(packets, if request == Request::Read { 1 } else { 5 });
                pair.seal(Side::Requester, &mut there).unwrap();
                pair.receive(Side::Responder, &there);
                assert!(pair.describe(Side::Responder, &mut back) > 0);
                pair.seal(Side::Responder, &mut back).unwrap();
                pair.receive(Side::Requester, &back);
                assert_eq!(pair.completed(Side::Requester), Some(1));
                assert_eq!(pair.completed(Side::Responder), Some((request == Request::Send).into()));
            }
        }
    }

    #[test]
    fn a_packet_survives_the_codec() {
        let mut codec = Codec::new();
        codec.run().unwrap();
        assert_eq!((codec.bytes(), &codec.out), (12 + 16 + 4096 + 4, &codec.datagram));
        assert_eq!(codec.decode().unwrap().payload.len(), MTU);
        Copying::new(10).run();
    }

    #[test]
    fn the_icrc_is_right_whatever_is_hinted() {
        for (bytes, hint) in [(64, 0), (MTU, 0), (MTU, 5)] {
            let mut icrc = Icrc::of(bytes).unwrap();
            icrc.run();
            icrc.verify(IdRule::Below128, hint).unwrap();
        }
    }
}
