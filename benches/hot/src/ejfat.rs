//! EJFAT by itself: the segmenter, the reassembler, and the load balancer's tables.

use std::{
    hint::black_box,
    net::{IpAddr, Ipv4Addr},
};

use ejfat::{
    Time,
    lb::{self, DataPlane, Epoch, Forward, LbId, Member, Rule, Rules, Tables},
    reassembly::{Config, CopyCommand, Reassembler},
    segment::{EventFields, IpVersion, LbVersion, SegmentError, SegmentSize, Segments},
    wire::{LbHeader, ReHeader},
};

use crate::numbers::Numbers;

/// The segments of an event of so many bytes.
fn segments(bytes: usize, mtu: u16) -> Result<Segments, SegmentError> {
    let size = SegmentSize::of_mtu(mtu, IpVersion::V4)?;
    let name = EventFields { tick: 0, event: 0, data_id: 0, entropy: 0 };
    Segments::new(LbVersion::V2, size, name, bytes as u64)
}

/// Cuts an event again and again.
#[derive(Debug)]
pub struct Segmenting {
    all: Segments,
}

impl Segmenting {
    /// `None` if there are no such segments.
    pub fn new(bytes: usize, mtu: u16) -> Option<Self> {
        segments(bytes, mtu).ok().map(|all| Self { all })
    }

    /// The number of segments.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Makes the headers of all segments.
    pub fn run(&self) {
        for segment in black_box(&self.all).clone() {
            black_box(&segment);
        }
    }
}

/// Puts the same event together again and again, under another number each time.
#[derive(Debug)]
pub struct Reassembly {
    reassembler: Reassembler,
    datagrams: Vec<Vec<u8>>,
    memory: Vec<u8>,
    event: u64,
}

impl Reassembly {
    /// `None` if there are no such segments.
    pub fn new(bytes: usize, mtu: u16, shuffled: bool) -> Option<Self> {
        // As a worker gets them: without the load balancer's header.
        let datagram = |segment: ejfat::segment::Segment| {
            let mut datagram = segment.headers[LbHeader::LEN..].to_vec();
            datagram.resize(ReHeader::LEN + segment.payload.len(), 0x5a);
            datagram
        };
        let mut datagrams: Vec<_> = segments(bytes, mtu).ok()?.map(datagram).collect();
        if shuffled {
            let numbers = &mut Numbers(1);
            (1..datagrams.len()).for_each(|at| datagrams.swap(at, numbers.below(at + 1)));
        }
        let reassembler = Reassembler::new(Config::default()).ok()?;
        Some(Self { reassembler, datagrams, memory: vec![0; bytes], event: 0 })
    }

    /// The number of segments of the event.
    pub fn segments(&self) -> usize {
        self.datagrams.len()
    }

    /// `None` if the event is not complete with its last segment.
    pub fn run(&mut self) -> Option<()> {
        self.each(|memory, datagram, place| {
            let at = place.offset as usize;
            memory[at..at + place.payload.len()].copy_from_slice(&datagram[place.payload]);
        })
    }

    /// The same without copies of payload. `None` if the event is not complete with its last segment.
    pub fn account(&mut self) -> Option<()> {
        self.each(|_, _, place| {
            black_box(place);
        })
    }

    #[inline(always)]
    fn each(&mut self, mut carry_out: impl FnMut(&mut [u8], &[u8], CopyCommand)) -> Option<()> {
        self.event += 1;
        let mut complete = None;
        for datagram in &mut self.datagrams {
            datagram[12..ReHeader::LEN].copy_from_slice(&self.event.to_be_bytes());
            let place = self.reassembler.handle(Time(self.event), None, black_box(datagram)).ok()?;
            complete = place.complete.then_some(place.id);
            carry_out(&mut self.memory, datagram, place);
        }
        black_box(&self.memory);
        self.reassembler.release(complete?).then_some(())
    }
}

const PACKETS: usize = 4096;
const EPOCHS: u32 = 4;
const SLOTS: usize = 512;

fn address(last: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, (last >> 8) as u8, last as u8)
}

/// Eight load balancers with four epochs of 512 slots and 64 members each.
fn rules() -> Option<Rules> {
    let mut rules = Rules::default();
    let numbers = &mut Numbers(2);
    for lb in LbId::all().take(LbId::P4_COUNT) {
        let n = usize::from(lb.get());
        let mut add = |rule| rules.insert(rule, false).ok();
        add(Rule::Destination { address: address(n + 1).into(), lb })?;
        add(Rule::Source { lb, address: address(200).into() })?;
        for id in 0..EPOCHS {
            let (from, to) = (u64::from(id) << 40, (u64::from(id) + 1) << 40);
            for ticks in lb::prefixes(from..to) {
                add(Rule::Epoch { lb, ticks, epoch: Epoch::new(id) })?;
            }
            let members: Vec<_> = (0..SLOTS).map(|_| numbers.below(64) as u16).collect();
            lb::calendar(lb, id, &members).into_iter().try_for_each(&mut add)?;
        }
        for id in 0..64 {
            let address = address(1000 + usize::from(id)).into();
            let forward = Forward { mac: None, address, port: 10_000, port_bits: 4, keep_lb_header: false };
            add(Rule::Member { lb, ip: IpVersion::V4, id, member: Member::Forward(forward) })?;
        }
    }
    Some(rules)
}

/// An IPv4 packet of so many bytes to a load balancer.
fn packet(bytes: usize, numbers: &mut Numbers) -> Vec<u8> {
    let select = ejfat::wire::Select::V2 { entropy: numbers.below(1 << 16) as u16 };
    let tick = (numbers.below(EPOCHS as usize) as u64) << 40 | numbers.below(1 << 30) as u64;
    let header = LbHeader { select, protocol: LbHeader::REASSEMBLY, tick };
    let mut packet = vec![0x45, 0];
    packet.extend((bytes as u16).to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    packet.extend(address(200).octets());
    packet.extend(address(numbers.below(LbId::P4_COUNT) + 1).octets());
    packet.extend(40_000u16.to_be_bytes());
    packet.extend(ejfat::wire::DATA_PORT.to_be_bytes());
    packet.extend((bytes as u16 - 20).to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(header.encode());
    packet.resize(bytes, 0x5a);
    packet
}

/// Packets that are copied to a buffer and looked up there.
#[derive(Debug)]
pub struct Forwarding {
    balancer: DataPlane,
    tables: Tables,
    packets: Vec<Vec<u8>>,
    to: Vec<u8>,
    next: usize,
    members: [u16; SLOTS],
}

impl Forwarding {
    /// `None` if the tables do not hold the rules.
    pub fn new(bytes: usize) -> Option<Self> {
        let tables = Tables::new(&rules()?);
        let balancer = DataPlane::new(&tables, 1);
        let numbers = &mut Numbers(3);
        let packets = (0..PACKETS).map(|_| packet(bytes, numbers)).collect();
        Some(Self { balancer, tables, packets, to: vec![0; bytes], next: 0, members: [0; SLOTS] })
    }

    fn copy(&mut self) {
        self.next = (self.next + 1) % PACKETS;
        self.to.copy_from_slice(&self.packets[self.next]);
    }

    /// Looks a packet up where it is, and counts it. Returns `None` if the packet is dropped.
    pub fn route(&mut self) -> Option<()> {
        self.next = (self.next + 1) % PACKETS;
        let packet = black_box(&self.packets[self.next]);
        let address = |at: usize| Some(Ipv4Addr::from(*packet[at..].first_chunk::<4>()?).into());
        black_box(self.balancer.route(address(16)?, address(12)?, &packet[28..]).ok()?);
        Some(())
    }

    /// Looks a copy of a packet up, and rewrites it, without counters. Returns `None` if the packet is dropped.
    pub fn rewrite(&mut self) -> Option<()> {
        self.copy();
        black_box(lb::rewrite(&self.tables, black_box(&mut self.to)).ok()?);
        Some(())
    }

    /// Chooses a member by the tables of the load balancer. Returns `None` if the packet is dropped.
    pub fn forward(&mut self) -> Option<()> {
        self.copy();
        let forwarded = self.balancer.forward(black_box(&mut self.to)).ok()?;
        matches!(black_box(forwarded).route.to.ip(), IpAddr::V4(_)).then_some(())
    }

    /// Chooses a member by an array.
    pub fn pick(&mut self) {
        self.copy();
        let tick = usize::from(black_box(&self.to)[43]);
        black_box(self.members[tick % SLOTS]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_complete() {
        for (mtu, shuffled) in [(1500, false), (1500, true), (9000, true)] {
            let mut reassembly = Reassembly::new(1 << 20, mtu, shuffled).unwrap();
            for _ in 0..3 {
                reassembly.account().unwrap();
                reassembly.run().unwrap();
            }
            assert!(reassembly.memory.iter().all(|&byte| byte == 0x5a));
        }
    }

    #[test]
    fn segments_are_counted() {
        let segmenting = Segmenting::new(1 << 20, 1500).unwrap();
        segmenting.run();
        assert_eq!(segmenting.count(), (1_usize << 20).div_ceil(1436));
        assert_eq!(Reassembly::new(1 << 20, 1500, true).unwrap().segments(), segmenting.count());
    }

    #[test]
    fn packets_are_forwarded() {
        let mut forwarding = Forwarding::new(1500).unwrap();
        for _ in 0..PACKETS {
            forwarding.forward().unwrap();
            forwarding.rewrite().unwrap();
            forwarding.route().unwrap();
            forwarding.pick();
        }
    }
}
