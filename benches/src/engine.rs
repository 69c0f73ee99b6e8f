//! The protocol core by itself, as `naa bench` measures it.

use std::{hint::black_box, net::SocketAddr};

use roce::{
    Config, DatagramMeta, Endpoint, Entropy, QpAttr, RegionId, RegionWriter, Time, Transmit,
    icrc::{Flow, compute},
    opcode,
    psn::Psn,
    wire::{Bth, ICRC_LEN, Packet, ROCE_PORT, Reth},
};
use verbs::{
    Access, CqId, Payload, PdId, QpCap, QpInit, QpNum, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc,
};

pub(crate) const MESSAGE: usize = 1 << 20;
pub(crate) const MTU: usize = 4096;

fn address(last: u8) -> SocketAddr {
    ([10, 0, 0, last], ROCE_PORT).into()
}

#[derive(Debug)]
struct Numbers(u32);

impl Entropy for Numbers {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }
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

/// Two endpoints in one memory, without a network: every packet is gathered into a buffer, sealed by its ICRC,
/// checked and placed.
#[derive(Debug)]
pub(crate) struct Pair {
    ends: [End; 2],
    now: u64,
    transmit: Transmit,
    datagram: Vec<u8>,
}

impl Pair {
    /// `None` if the engine refuses.
    pub(crate) fn new() -> Option<Self> {
        let [mut a, mut b] = [End::new(1)?, End::new(2)?];
        a.connect(&b.at, b.qp)?;
        b.connect(&a.at, a.qp)?;
        Some(Self { ends: [a, b], now: 1, transmit: Transmit::default(), datagram: Vec::new() })
    }

    /// A WRITE of [`MESSAGE`] bytes until it is completed. `None` if it is not.
    pub(crate) fn write(&mut self) -> Option<()> {
        let [a, b] = &mut self.ends;
        let target = RemoteAddr { addr: b.sge.addr, rkey: b.rkey };
        let (payload, flags) = (Payload::Sges(&[a.sge]), SendFlags::SIGNALED);
        a.endpoint.post_send(a.qp, &SendWr { wr_id: 1, op: SendOp::Write(target), payload, flags }).ok()?;
        loop {
            self.now += 1000;
            let moved = self.carry(0)? + self.carry(1)?;
            let a = &mut self.ends[0];
            let mut out = [Wc::EMPTY];
            if a.endpoint.poll_cq(a.cq, &mut out).ok()? == 1 {
                return out[0].status.is_success().then_some(());
            }
            if moved == 0 {
                // Nothing is lost here, so silence is a defect.
                return None;
            }
        }
    }

    /// Packets carried from one end to the other.
    fn carry(&mut self, from: usize) -> Option<u32> {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let flow = Flow::new(from.at, to.at)?;
        let meta = DatagramMeta { from: from.at, to: to.at, index: 0 };
        let mut packets = 0;
        while from.endpoint.poll_transmit(Time(self.now), &mut self.transmit) {
            packets += 1;
            let (transmit, datagram) = (&self.transmit, &mut self.datagram);
            datagram.clear();
            datagram.extend_from_slice(transmit.header.as_slice());
            datagram.extend_from_slice(&transmit.inline);
            for piece in &transmit.pieces {
                let start = piece.offset as usize;
                datagram.extend_from_slice(&from.bytes.0[start..start + piece.len as usize]);
            }
            datagram.resize(datagram.len() + transmit.pad(), 0);
            let (bth, rest) = datagram.split_at(Bth::LEN);
            let icrc = compute(&flow, 0, bth, std::iter::once(rest));
            datagram.extend_from_slice(&icrc);
            to.endpoint.handle_datagram(Time(self.now), &meta, datagram, &mut to.bytes, &mut ());
        }
        Some(packets)
    }
}

/// Decodes a packet of [`MTU`] bytes of a WRITE, and encodes it again.
#[derive(Debug)]
pub(crate) struct Codec {
    datagram: Vec<u8>,
    out: Vec<u8>,
}

impl Codec {
    pub(crate) fn new() -> Self {
        let payload = vec![0x5a; MTU];
        let packet = Packet {
            bth: Bth {
                opcode: opcode::WRITE_ONLY,
                p_key: Bth::DEFAULT_P_KEY,
                dest_qp: 17,
                ack_req: true,
                psn: Psn::new(0x12_3456),
                ..Bth::default()
            },
            reth: Some(Reth { addr: 1 << 32, rkey: 0x1234_5678, length: MTU as u32 }),
            payload: &payload,
            icrc: [1, 2, 3, 4],
            ..Packet::default()
        };
        let mut datagram = Vec::new();
        packet.encode(&mut datagram);
        Self { out: Vec::with_capacity(datagram.len()), datagram }
    }

    /// Bytes of the packet.
    pub(crate) fn bytes(&self) -> usize {
        self.datagram.len()
    }

    /// `None` if it is not the same afterwards.
    pub(crate) fn run(&mut self) -> Option<()> {
        self.out.clear();
        let packet = Packet::decode(black_box(&self.datagram)).ok()?;
        black_box(&packet).encode(&mut self.out);
        (black_box(&self.out).len() == self.datagram.len()).then_some(())
    }
}

/// The ICRC of a packet of a WRITE with [`MTU`] bytes.
#[derive(Debug)]
pub(crate) struct Icrc {
    flow: Flow,
    datagram: Vec<u8>,
}

impl Icrc {
    pub(crate) fn new() -> Option<Self> {
        Some(Self { flow: Flow::new(address(1), address(2))?, datagram: Codec::new().datagram })
    }

    pub(crate) fn run(&self) {
        let (body, _) = self.datagram.split_at(self.datagram.len() - ICRC_LEN);
        let (header, payload) = black_box(body).split_at(Bth::LEN + Reth::LEN);
        black_box(compute(&self.flow, 0, header, std::iter::once(payload)));
    }
}

/// What all of it is held against: a copy of as many bytes.
#[derive(Debug)]
pub(crate) struct Copying {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Copying {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { from: vec![0x5a; bytes], to: vec![0; bytes] }
    }

    pub(crate) fn run(&mut self) {
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
    fn a_packet_survives_the_codec() {
        let mut codec = Codec::new();
        codec.run().unwrap();
        assert_eq!((codec.bytes(), &codec.out), (12 + 16 + 4096 + 4, &codec.datagram));
        Icrc::new().unwrap().run();
        Copying::new(10).run();
    }
}
