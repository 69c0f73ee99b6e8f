//! One end of a pair: an endpoint with a queue pair and a memory region.

use std::net::SocketAddr;

use roce::{Endpoint, Entropy, RegionId, RegionWriter, Transmit, wire::ROCE_PORT};
use verbs::{
    Access, ChannelId, CmEvent, CqId, Error, MrKeys, Payload, PdId, QpCap, QpInit, QpNum, RecvWr, RemoteAddr,
    SendFlags, SendOp, SendWr, Sge, Wc, WcStatus,
};

use super::Setup;

/// The region of each end has two halves of this number of bytes. At the start of a test, the first half of a region
/// has a pattern, and the second half has zeros.
pub(crate) const HALF: u32 = 1 << 16;

/// The bytes of all regions of one end. The index of an entry is the number of the region (`RegionId`).
#[derive(Default)]
pub(crate) struct Bytes(pub(crate) Vec<Vec<u8>>);

impl RegionWriter for Bytes {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) {
        self.0[region.0 as usize][offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// A generator of pseudo-random numbers (splitmix64).
struct Numbers(u64);

impl Entropy for Numbers {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) as u32
    }
}

/// Makes a generator of pseudo-random numbers from the seed `seed`. The same seed makes the same numbers.
pub(crate) fn numbers(seed: u64) -> Box<dyn Entropy + Send> {
    Box::new(Numbers(seed))
}

pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    pub(crate) memory: Bytes,
    pub(crate) addr: SocketAddr,
    pub(crate) pd: PdId,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) qp: QpNum,
    pub(crate) channel: ChannelId,
    /// The keys of the end's first region, which is registered when the end is made.
    pub(crate) keys: MrKeys,
    /// The address of the first byte of the end's first region.
    pub(crate) va: u64,
    cap: QpCap,
    /// The packet that the endpoint built last.
    pub(crate) transmit: Transmit,
}

impl End {
    pub(super) fn new(number: u8, setup: &Setup) -> Self {
        let mut endpoint = Endpoint::new(setup.config.clone(), 4096, numbers(number.into()));
        let pd = endpoint.alloc_pd();
        let [send_cq, recv_cq] = [0; 2].map(|_| endpoint.create_cq(setup.cq_depth).unwrap());
        let (va, cap) = (u64::from(number) << 32, setup.cap);
        let qp = endpoint.create_qp(&QpInit { pd, send_cq, recv_cq, cap }).unwrap();
        let (keys, _) = endpoint.reg_mr(pd, va, u64::from(2 * HALF), Access::ALL).unwrap();
        let channel = endpoint.create_channel();
        let pattern = |n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8 | number;
        let mut bytes: Vec<u8> = (0..HALF).map(pattern).collect();
        bytes.resize(2 * HALF as usize, 0);
        let (memory, addr) = (Bytes(vec![bytes]), ([10, 0, 0, number], ROCE_PORT).into());
        let transmit = Transmit::default();
        Self { endpoint, memory, addr, pd, send_cq, recv_cq, qp, channel, keys, va, cap, transmit }
    }

    /// Registers another region of `len` bytes, which are zero, at the address `va`.
    pub(crate) fn register(&mut self, va: u64, len: u32, access: Access) -> MrKeys {
        let (keys, id) = self.endpoint.reg_mr(self.pd, va, len.into(), access).unwrap();
        assert_eq!(id.0 as usize, self.memory.0.len(), "regions are numbered in their order");
        self.memory.0.push(vec![0; len as usize]);
        keys
    }

    /// Replaces the queue pair by one that is not connected.
    pub(crate) fn renew_qp(&mut self) {
        self.endpoint.destroy_qp(self.qp).unwrap();
        self.qp = self.another_qp();
    }

    pub(crate) fn another_qp(&mut self) -> QpNum {
        let Self { pd, send_cq, recv_cq, cap, .. } = *self;
        self.endpoint.create_qp(&QpInit { pd, send_cq, recv_cq, cap }).unwrap()
    }

    /// The first `len` bytes of the end's first region.
    pub(crate) fn own(&self, len: u32) -> &[u8] {
        &self.memory.0[0][..len as usize]
    }

    /// The first `len` bytes of the second half of the end's first region.
    pub(crate) fn got(&self, len: u32) -> &[u8] {
        &self.memory.0[0][HALF as usize..][..len as usize]
    }

    pub(crate) fn sge(&self, offset: u32, length: u32) -> Sge {
        Sge { addr: self.va + u64::from(offset), length, lkey: self.keys.lkey }
    }

    /// The address and RKey by which the peer accesses the end's first region at the offset `offset`.
    pub(crate) fn remote(&self, offset: u32) -> RemoteAddr {
        RemoteAddr { addr: self.va + u64::from(offset), rkey: self.keys.rkey }
    }

    pub(crate) fn post_with(
        &mut self,
        wr_id: u64,
        op: SendOp,
        offset: u32,
        len: u32,
        flags: SendFlags,
    ) -> Result<(), Error> {
        let sges = [self.sge(offset, len)];
        self.endpoint.post_send(self.qp, &SendWr { wr_id, op, payload: Payload::Sges(&sges), flags })
    }

    pub(crate) fn post(&mut self, wr_id: u64, op: SendOp, offset: u32, len: u32) {
        self.post_with(wr_id, op, offset, len, SendFlags::SIGNALED).unwrap();
    }

    /// Posts a receive for `len` bytes at the beginning of the second half of the end's first region.
    pub(crate) fn recv(&mut self, wr_id: u64, len: u32) {
        let sges = [self.sge(HALF, len)];
        self.endpoint.post_recv(self.qp, &RecvWr { wr_id, sges: &sges }).unwrap();
    }

    pub(crate) fn poll(&mut self, cq: CqId) -> Vec<Wc> {
        let mut out = [Wc::EMPTY; 512];
        let n = self.endpoint.poll_cq(cq, &mut out).unwrap();
        out[..n].to_vec()
    }

    /// Takes the new completions of the send queue, and returns the `wr_id` and the status of each.
    pub(crate) fn completed(&mut self) -> Vec<(u64, WcStatus)> {
        self.outcomes(self.send_cq)
    }

    /// Takes the new completions of the receive queue, and returns the `wr_id` and the status of each.
    pub(crate) fn received(&mut self) -> Vec<(u64, WcStatus)> {
        self.outcomes(self.recv_cq)
    }

    fn outcomes(&mut self, cq: CqId) -> Vec<(u64, WcStatus)> {
        let completions = self.poll(cq);
        assert!(completions.iter().all(|wc| wc.qp == self.qp), "{completions:?}");
        completions.iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub(crate) fn event(&mut self) -> Option<CmEvent> {
        self.endpoint.next_event(self.channel).unwrap()
    }

    pub(crate) fn state(&self) -> &'static str {
        self.endpoint.qp_state(self.qp).unwrap()
    }

    /// Returns the bytes of the packet `out`, without its ICRC.
    pub(crate) fn gather(&self, out: &Transmit) -> Vec<u8> {
        let mut body = out.header.as_slice().to_vec();
        body.extend_from_slice(&out.inline);
        for piece in &out.pieces {
            let region = &self.memory.0[piece.region.0 as usize];
            body.extend_from_slice(&region[piece.offset as usize..][..piece.len as usize]);
        }
        body.resize(body.len() + out.pad(), 0);
        assert_eq!(body.len() + 4, out.datagram_len());
        body
    }
}
