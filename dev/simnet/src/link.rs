//! One direction of a network path.

use std::collections::BTreeMap;

use crate::{Faults, Random};

/// Something a link can carry, repeat and damage.
pub trait Packet: Clone {
    /// The bytes faults may damage and rates are counted in.
    fn bytes_mut(&mut self) -> &mut [u8];
    fn len(&self) -> usize;
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Packet for Vec<u8> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// A packet at the end of the link, with the truth about it.
#[derive(Clone, Debug)]
pub struct Arrival<T> {
    pub at: u64,
    pub packet: T,
    /// The bit that was flipped, counted from the first byte's lowest.
    pub corrupted: Option<usize>,
}

/// What happened to packets so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    pub sent: u64,
    pub lost: u64,
    /// Lost packets that were dropped at the bottleneck; they also count as `lost`.
    pub overflowed: u64,
    pub duplicated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub delivered: u64,
}

/// A one-way link with its packets in flight.
#[derive(Clone, Debug)]
pub struct Link<T> {
    faults: Faults,
    random: Random,
    /// The packets on the wire, by the time of arrival and the sequence number.
    in_flight: BTreeMap<(u64, u64), Arrival<T>>,
    /// Orders packets that arrive at the same time as they were sent.
    sequence: u64,
    /// The bottleneck is busy until then.
    busy_until: u64,
    /// Arrival of the last packet of an ordinary train; trains do not overtake each other.
    last_arrival: u64,
    bad_state: bool,
    counters: LinkCounters,
}

impl<T: Packet> Link<T> {
    pub fn new(faults: Faults, random: Random) -> Self {
        Self {
            faults,
            random,
            in_flight: BTreeMap::new(),
            sequence: 0,
            busy_until: 0,
            last_arrival: 0,
            bad_state: false,
            counters: LinkCounters::default(),
        }
    }

    pub fn counters(&self) -> &LinkCounters {
        &self.counters
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Sends packets that left together. They arrive at the same time and in order, but for faults and a bottleneck.
    pub fn send_train(&mut self, now: u64, train: impl IntoIterator<Item = T>) {
        let jitter = self.random.range(0..=self.faults.jitter);
        for packet in train {
            self.send_one(now, jitter, packet);
        }
    }

    fn send_one(&mut self, now: u64, jitter: u64, mut packet: T) {
        self.counters.sent += 1;
        let faulty = now < self.faults.until;
        if self.faults.blacked_out(now) || faulty && self.is_lost() {
            self.counters.lost += 1;
            return;
        }
        let Some(departure) = self.pass_bottleneck(now, packet.len() as u64) else {
            self.counters.lost += 1;
            self.counters.overflowed += 1;
            return;
        };
        let mut at = (departure + self.faults.latency + jitter).max(self.last_arrival);
        if faulty && self.random.chance(self.faults.reorder) {
            self.counters.reordered += 1;
            at += self.random.range(1..=self.faults.reorder_delay.max(1));
        } else {
            self.last_arrival = at;
        }
        if faulty && self.random.chance(self.faults.duplicate) {
            self.counters.duplicated += 1;
            let late = self.random.range(0..=self.faults.reorder_delay);
            self.deliver(at + late, packet.clone(), None);
        }
        let mut corrupted = None;
        if faulty && self.random.chance(self.faults.corrupt) && !packet.is_empty() {
            self.counters.corrupted += 1;
            let bit = self.random.below(packet.len() as u64 * 8) as usize;
            packet.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
            corrupted = Some(bit);
        }
        self.deliver(at, packet, corrupted);
    }

    fn is_lost(&mut self) -> bool {
        if let Some(bursts) = self.faults.bursts {
            self.bad_state = if self.bad_state {
                !self.random.chance(bursts.leave)
            } else {
                self.random.chance(bursts.enter)
            };
            if self.bad_state && self.random.chance(bursts.loss) {
                return true;
            }
        }
        self.random.chance(self.faults.loss)
    }

    /// When a packet of `len` bytes has left the bottleneck; `None` when its queue was full.
    fn pass_bottleneck(&mut self, now: u64, len: u64) -> Option<u64> {
        let Some(bottleneck) = self.faults.bottleneck else { return Some(now) };
        let rate = bottleneck.bytes_per_us.max(1);
        let backlog = self.busy_until.saturating_sub(now) * rate / 1000;
        if backlog + len > bottleneck.buffer {
            return None;
        }
        self.busy_until = self.busy_until.max(now) + (len * 1000).div_ceil(rate);
        Some(self.busy_until)
    }

    fn deliver(&mut self, at: u64, packet: T, corrupted: Option<usize>) {
        self.sequence += 1;
        self.in_flight.insert((at, self.sequence), Arrival { at, packet, corrupted });
    }

    /// When the next packet arrives.
    pub fn next_arrival(&self) -> Option<u64> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    /// The next packet that has arrived by `now`.
    pub fn receive(&mut self, now: u64) -> Option<Arrival<T>> {
        if self.next_arrival()? > now {
            return None;
        }
        self.counters.delivered += 1;
        self.in_flight.pop_first().map(|(_, arrival)| arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bottleneck, Bursts};

    fn run(faults: Faults, seed: u64) -> (LinkCounters, Vec<(u64, Vec<u8>)>) {
        let mut link = Link::new(faults, Random::new(seed, 0));
        for n in 0..1000u64 {
            let train = (0..4).map(|k| vec![n as u8, k, 0, 0]);
            link.send_train(n * 1000, train);
        }
        let mut got = Vec::new();
        while let Some(arrival) = link.receive(u64::MAX) {
            got.push((arrival.at, arrival.packet));
        }
        (*link.counters(), got)
    }

    #[test]
    fn a_perfect_link_keeps_everything_in_order() {
        let (counters, got) = run(Faults { latency: 500, jitter: 3000, ..Faults::default() }, 1);
        assert_eq!((counters.sent, counters.delivered, counters.lost), (4000, 4000, 0));
        let sent = (0..1000u64).flat_map(|n| (0..4).map(move |k| vec![n as u8, k, 0, 0]));
        assert!(got.iter().map(|(_, p)| p.clone()).eq(sent));
    }

    #[test]
    fn equal_seeds_give_equal_runs_and_faults_end() {
        let faults = Faults {
            loss: 50_000,
            duplicate: 50_000,
            reorder: 50_000,
            reorder_delay: 10_000,
            corrupt: 50_000,
            bursts: Some(Bursts { enter: 10_000, leave: 200_000, loss: 800_000 }),
            until: 500_000,
            ..Faults::default()
        };
        let (counters, got) = run(faults.clone(), 7);
        assert_eq!((counters, got), run(faults.clone(), 7));
        assert_ne!(counters, run(faults.clone(), 8).0);
        assert_eq!(counters.delivered, counters.sent - counters.lost + counters.duplicated);
        for count in [counters.lost, counters.duplicated, counters.reordered, counters.corrupted] {
            assert!((20..600).contains(&count), "{counters:?}");
        }
        let (never, _) = run(Faults { until: 0, ..faults }, 7);
        assert_eq!((never.lost, never.corrupted, never.duplicated), (0, 0, 0));
    }

    #[test]
    fn a_bottleneck_spaces_packets_and_overflows() {
        let bottleneck = Some(Bottleneck { bytes_per_us: 16, buffer: 12 });
        let (counters, got) = run(Faults { bottleneck, ..Faults::default() }, 1);
        assert_eq!(counters.overflowed, 1000, "the fourth of every train does not fit");
        assert!(got.windows(2).all(|w| w[1].0 - w[0].0 >= 250));
    }

    #[test]
    fn blackouts_lose_everything() {
        let (counters, _) =
            run(Faults { blackouts: vec![0..10_000, 20_000..30_000], ..Faults::default() }, 1);
        assert_eq!(counters.lost, 80);
    }
}
