//! An endpoint whose memory panics at every access that the protocol does not permit.

use std::net::SocketAddr;

use roce::{
    Config, DatagramMeta, Endpoint, RegionId, RegionWriter, Time, Transmit,
    icrc::{Flow, compute},
    opcode::{self, Operation},
    wire::{Bth, ICRC_LEN, Packet, ROCE_PORT, Reth},
};
use verbs::{Access, CqId, MrKeys, PdId, QpCap, QpInit, QpNum, Sge, Wc};

use crate::program::Numbers;

/// A registered region as the application knows it.
pub(crate) struct Region {
    pub(crate) keys: MrKeys,
    pub(crate) pd: PdId,
    pub(crate) va: u64,
    pub(crate) access: Access,
    /// The bytes of the region alone, so that an access beyond its ends panics.
    pub(crate) bytes: Vec<u8>,
}

/// The bytes that the packet that is handled now may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rule {
    #[default]
    Nothing,
    /// The packet may write where receives and READs write: to regions with local write access.
    Local,
    /// The packet may write what RETHs named, in regions with remote write access.
    Remote,
    /// The packet may write what `Local` or `Remote` permits.
    Either,
}

/// Regions by their number.
#[derive(Default)]
pub(crate) struct Regions {
    pub(crate) slots: Vec<Option<Region>>,
    rule: Rule,
    /// The bytes that RETHs of peers and work requests of the application have named so far.
    named: Vec<Reth>,
    posted: Vec<Sge>,
    /// The protection domain of the queue pair the packet goes to.
    pd: Option<PdId>,
}

impl Regions {
    /// Stores what the packet `datagram` may write, and returns it.
    fn expect(&mut self, datagram: &[u8], pd: Option<PdId>) -> Rule {
        let packet = Packet::decode(datagram).ok();
        self.rule = packet.map_or(Rule::Nothing, |packet| rule(&packet));
        if let Some(reth) = packet.and_then(|packet| packet.reth)
            && !self.named.contains(&reth)
        {
            self.named.push(reth);
        }
        self.pd = pd;
        self.rule
    }

    fn alive(&self, id: RegionId) -> &Region {
        self.slots[id.0 as usize].as_ref().expect("only registered regions are touched")
    }

    /// Returns a region or a part of it, as the application names it in a work request.
    pub(crate) fn sge(&mut self, slot: usize, offset: u64, length: u32) -> Option<Sge> {
        let region = self.slots.get(slot)?.as_ref()?;
        let sge = Sge { addr: region.va.wrapping_add(offset), length, lkey: region.keys.lkey };
        self.posted.push(sge);
        Some(sge)
    }

    fn was_posted(&self, region: &Region, at: u64, len: usize) -> bool {
        let inside = |sge: &Sge| sge.lkey == region.keys.lkey && holds(sge.addr, sge.length, at, len);
        self.posted.iter().any(inside)
    }

    fn was_named(&self, region: &Region, at: u64, len: usize) -> bool {
        let inside = |reth: &Reth| reth.rkey == region.keys.rkey && holds(reth.addr, reth.length, at, len);
        self.named.iter().any(inside)
    }
}

impl RegionWriter for Regions {
    fn write(&mut self, region: RegionId, offset: u64, bytes: &[u8]) {
        let found = self.alive(region);
        assert_eq!(Some(found.pd), self.pd, "protection domain");
        let at = found.va + offset;
        match self.rule {
            Rule::Nothing => panic!("a packet that carries no data wrote"),
            Rule::Local => {
                assert!(found.access.local_write, "local write access");
                assert!(self.was_posted(found, at, bytes.len()), "where work requests say");
            }
            Rule::Remote => {
                assert!(found.access.remote_write, "remote write access");
                assert!(self.was_named(found, at, bytes.len()), "where RETHs say");
            }
            Rule::Either => {
                let local = found.access.local_write && self.was_posted(found, at, bytes.len());
                let remote = found.access.remote_write && self.was_named(found, at, bytes.len());
                assert!(local || remote, "where work requests or RETHs say");
            }
        }
        let found = self.slots[region.0 as usize].as_mut().expect("just found");
        found.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
}

/// One device on one address, with one queue for send and one for receive completions.
pub(crate) struct Device {
    pub(crate) endpoint: Endpoint,
    pub(crate) regions: Regions,
    pub(crate) send_cq: CqId,
    pub(crate) recv_cq: CqId,
    pub(crate) addr: SocketAddr,
    transmit: Transmit,
}

impl Device {
    pub(crate) fn new(config: Config, seed: u16, addr: SocketAddr, cq_depth: u32) -> Self {
        let mut endpoint = Endpoint::new(config, 4096, Box::new(Numbers::new(seed)));
        let [send_cq, recv_cq] = [0; 2].map(|_| endpoint.create_cq(cq_depth).expect("within the limits"));
        Self { endpoint, regions: Regions::default(), send_cq, recv_cq, addr, transmit: Transmit::default() }
    }

    pub(crate) fn register(&mut self, pd: PdId, va: u64, bytes: Vec<u8>, access: Access) -> usize {
        let (keys, id) = self.endpoint.reg_mr(pd, va, bytes.len() as u64, access).expect("within the limits");
        let slot = id.0 as usize;
        if self.regions.slots.len() <= slot {
            self.regions.slots.resize_with(slot + 1, || None);
        }
        let old = self.regions.slots[slot].replace(Region { keys, pd, va, access, bytes });
        assert!(old.is_none(), "region numbers of live regions differ");
        slot
    }

    pub(crate) fn create_qp(&mut self, pd: PdId, cap: QpCap) -> QpNum {
        let (send_cq, recv_cq) = (self.send_cq, self.recv_cq);
        self.endpoint.create_qp(&QpInit { pd, send_cq, recv_cq, cap }).expect("within the limits")
    }

    /// Lets the endpoint handle a datagram. `pd` is the protection domain of the queue pair that the datagram names.
    pub(crate) fn receive(&mut self, now: Time, from: SocketAddr, datagram: &[u8], pd: Option<PdId>) {
        self.regions.expect(datagram, pd);
        let meta = DatagramMeta { from, to: self.local(), index: 0 };
        self.endpoint.handle_datagram(now, &meta, datagram, &mut self.regions, &mut ());
    }

    /// Lets the endpoint handle the datagrams of a super-packet, all for queue pairs of the protection domain `pd`. What one of them may
    /// write, the others may write, too.
    pub(crate) fn receive_merged(&mut self, now: Time, from: SocketAddr, datagrams: &[Vec<u8>], pd: PdId) {
        let rules: Vec<_> =
            datagrams.iter().map(|datagram| self.regions.expect(datagram, Some(pd))).collect();
        let may = |rule| rules.contains(&rule);
        self.regions.rule = match (may(Rule::Local), may(Rule::Remote)) {
            (true, true) => Rule::Either,
            (true, false) => Rule::Local,
            (false, true) => Rule::Remote,
            (false, false) => Rule::Nothing,
        };
        let datagrams = datagrams.iter().zip(0..).map(|(datagram, index)| (index, &datagram[..]));
        let path = [from, self.local()];
        self.endpoint.handle_super_packet(now, path, datagrams, &mut self.regions, &mut ());
    }

    fn local(&self) -> SocketAddr {
        SocketAddr::new(self.addr.ip(), ROCE_PORT)
    }

    /// Builds the bytes of the next packet.
    pub(crate) fn send(&mut self, now: Time, ip_id: u16) -> Option<Vec<u8>> {
        let mut transmit = std::mem::take(&mut self.transmit);
        let sent = self.endpoint.poll_transmit(now, &mut transmit);
        let datagram = sent.then(|| self.gather(&transmit, ip_id));
        self.transmit = transmit;
        datagram
    }

    fn gather(&self, transmit: &Transmit, ip_id: u16) -> Vec<u8> {
        let mut bytes = transmit.header.as_slice().to_vec();
        bytes.extend_from_slice(&transmit.inline);
        let answer = opcode::info(bytes[0]).is_some_and(|info| info.operation == Operation::ReadResponse);
        for piece in &transmit.pieces {
            let region = self.regions.alive(piece.region);
            let (at, len) = (region.va + piece.offset, piece.len as usize);
            if answer {
                assert!(region.access.remote_read, "remote read access");
                assert!(self.regions.was_named(region, at, len), "where RETHs say");
            } else {
                assert!(self.regions.was_posted(region, at, len), "where work requests say");
            }
            bytes.extend_from_slice(&region.bytes[piece.offset as usize..][..piece.len as usize]);
        }
        bytes.resize(bytes.len() + transmit.pad(), 0);
        seal(&mut bytes, self.addr, transmit.to, ip_id);
        assert_eq!(bytes.len(), transmit.datagram_len());
        Packet::decode(&bytes).expect("own packets decode");
        bytes
    }

    /// Takes up to 64 completions.
    pub(crate) fn poll(&mut self, cq: CqId) -> Vec<Wc> {
        let mut out = vec![Wc::EMPTY; 64];
        let n = self.endpoint.poll_cq(cq, &mut out).expect("the queue exists");
        out.truncate(n);
        out
    }

    /// Lets the endpoint handle its due timers.
    pub(crate) fn expire(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        assert!(self.endpoint.poll_timeout().is_none_or(|at| at > now), "a timer that is due again at once");
    }
}

fn holds(start: u64, length: u32, at: u64, len: usize) -> bool {
    at.checked_sub(start).is_some_and(|offset| offset + len as u64 <= length.into())
}

fn rule(packet: &Packet<'_>) -> Rule {
    let request = opcode::carrier(packet.bth.opcode).unwrap_or(packet.bth.opcode);
    match opcode::info(request).map(|info| info.operation) {
        Some(Operation::Send | Operation::ReadResponse) => Rule::Local,
        Some(Operation::Write) => Rule::Remote,
        _ => Rule::Nothing,
    }
}

/// Appends the right ICRC. A datagram that is shorter than a BTH gets zeros.
pub(crate) fn seal(bytes: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, ip_id: u16) {
    let flow = Flow::new(from, to).expect("both ends are of one family");
    let icrc = match bytes.split_at_checked(Bth::LEN) {
        Some((header, rest)) => compute(&flow, ip_id, header, std::iter::once(rest)),
        None => [0; ICRC_LEN],
    };
    bytes.extend(icrc);
}
