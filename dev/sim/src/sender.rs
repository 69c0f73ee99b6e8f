//! A sender of EJFAT's segments, over a faulty link.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr},
};

use ejfat::{
    reassembly::EventKey,
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments, Ticks},
    wire::LbHeader,
};
use simnet::{Faults, Link, Random};

use super::plan::{self, US};

pub(super) struct Sender {
    /// What the receiver sees: none behind a load balancer.
    pub(super) address: Option<IpAddr>,
    data_id: u16,
    version: LbVersion,
    size: SegmentSize,
    pub(super) events: Vec<Vec<u8>>,
    ticks: Ticks,
    /// The index of the first event that has not begun.
    next: usize,
    segments: VecDeque<Vec<u8>>,
    at: u64,
    gap: u64,
    pub(super) link: Link<Vec<u8>>,
}

impl Sender {
    pub(super) fn draw(r: &mut Random, n: usize, behind_lb: bool, seed: u64) -> Self {
        let most = r.pick(&[1, 100, 3_000, 100_000]);
        let events = (0..r.range(1..=60)).map(|_| {
            let mut event = vec![0; r.range(1..=most) as usize];
            r.fill(&mut event);
            event
        });
        let events = events.collect();
        let mtu = r.pick(&[576, 1500, 9000]);
        let mut faults = if r.chance(200_000) { Faults::default() } else { plan::draw_faults(r, false) };
        // Nothing is sent again: faults last as long as there is something to lose.
        faults.until = u64::MAX;
        Self {
            address: (!behind_lb).then(|| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n as u8 + 1))),
            version: r.pick(&[LbVersion::V2, LbVersion::V3]),
            size: SegmentSize::of_mtu(mtu, IpVersion::V4).expect("an MTU that leaves room"),
            events,
            at: r.below(1_000 * US),
            gap: r.pick(&[0, US, 20 * US]),
            link: Link::new(faults, Random::new(seed, 60 + n as u64)),
            ..Self::faultless(n, seed)
        }
    }

    /// Over a link without faults, and without events so far.
    pub(super) fn faultless(n: usize, seed: u64) -> Self {
        Self {
            address: Some(IpAddr::V4(Ipv4Addr::new(10, 0, 1, n as u8))),
            data_id: n as u16,
            version: LbVersion::V2,
            size: SegmentSize::of_mtu(1500, IpVersion::V4).expect("an MTU that leaves room"),
            events: Vec::new(),
            ticks: Ticks::default(),
            next: 0,
            segments: VecDeque::new(),
            at: 0,
            gap: US,
            link: Link::new(Faults::default(), Random::new(seed, 60 + n as u64)),
        }
    }

    /// The event number and data id of one of the sender's events.
    pub(super) fn name(&self, event: usize) -> EventKey {
        EventKey { event: event as u64, data_id: self.data_id }
    }

    /// Lets the sender send nothing before `at`.
    pub(super) fn rest_until(&mut self, at: u64) {
        self.at = self.at.max(at);
    }

    pub(super) fn next_send(&self) -> Option<u64> {
        (self.next < self.events.len() || !self.segments.is_empty()).then_some(self.at)
    }

    pub(super) fn send(&mut self, now: u64) {
        if self.segments.is_empty() {
            let event = &self.events[self.next];
            let tick = self.ticks.next(now / US);
            let name = EventFields { tick, event: self.next as u64, data_id: self.data_id, entropy: 0 };
            let segments = Segments::new(self.version, self.size, name, event.len() as u64);
            let segments = segments.expect("neither empty nor too long");
            // A load balancer takes its header away.
            let from = if self.address.is_some() { 0 } else { LbHeader::LEN };
            self.segments = segments.map(|s| [&s.headers[from..], &event[s.payload]].concat()).collect();
            self.next += 1;
        }
        if let Some(segment) = self.segments.pop_front() {
            self.link.send_train(now, [segment]);
        }
        self.at = now + self.gap;
    }
}
