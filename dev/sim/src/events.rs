//! Events of some senders over faulty networks to one worker, in virtual time. Each event that is delivered is compared
//! with what was sent; each other one must be counted in exactly one way, and the sums must be what was sent.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use ejfat::{
    Time,
    reassembly::{
        Config, CopyCommand, EventBufferId, EventKey, Incomplete, Numbering, Reassembler, SegmentDropCause,
    },
};
use simnet::Random;

use super::{plan::US, report::Summary, sender::Sender};

/// How an event ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventOutcome {
    Open,
    Delivered,
    GivenUp,
}

/// What became of a sender's events.
#[derive(Default)]
struct SenderEvents {
    outcomes: BTreeMap<u64, EventOutcome>,
    first: Option<u64>,
}

pub(super) struct Environment {
    now: u64,
    senders: Vec<Sender>,
    /// What was observed of each sender, in the order of `senders`.
    observed: Vec<SenderEvents>,
    reassembler: Reassembler,
    memory: Vec<Vec<u8>>,
    /// Complete events that the worker has not consumed yet.
    held: VecDeque<(u64, EventBufferId)>,
    hold: u64,
    random: Random,
    /// Corrupted datagrams do not arrive: their UDP checksum is wrong.
    checksums: bool,
    summary: Summary,
}

impl Environment {
    pub(super) fn new(seed: u64, verbose: bool) -> Self {
        let r = &mut Random::new(seed, 50);
        let behind_lb = r.chance(300_000);
        let senders: Vec<_> =
            (0..r.range(1..=3) as usize).map(|n| Sender::draw(r, n, behind_lb, seed)).collect();
        let slots = r.pick(&[4, 64, 256]) as u32;
        let max_open = slots.div_ceil(r.range(1..=4) as u32);
        let config = draw_config(r, slots, max_open, behind_lb, seed);
        let config = Config { numbering: Numbering::Consecutive, ..config };
        if verbose {
            let faults: Vec<_> = senders.iter().map(|sender| sender.link.faults()).collect();
            eprintln!("{config:#?}\n{faults:#?}");
        }
        Self {
            now: 0,
            observed: senders.iter().map(|_| SenderEvents::default()).collect(),
            senders,
            memory: vec![Vec::new(); config.slots as usize],
            reassembler: Reassembler::new(config).expect("bounds that fit"),
            held: VecDeque::new(),
            hold: r.pick(&[0, 10 * US, 5_000 * US]),
            random: Random::new(seed, 51),
            checksums: r.chance(900_000),
            summary: Summary::default(),
        }
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        while let Some(next) = self.next_time() {
            self.now = self.now.max(next);
            self.step().map_err(|why| format!("at {} ns: {why}", self.now))?;
        }
        self.finish()?;
        self.summary += Summary::of(self.senders.iter().map(|sender| sender.link.counters()));
        self.summary.virtual_nanos = self.now;
        Ok(self.summary)
    }

    fn next_time(&self) -> Option<u64> {
        let sends = self.senders.iter().filter_map(Sender::next_send);
        let arrivals = self.senders.iter().filter_map(|sender| sender.link.next_arrival());
        let timeout = self.reassembler.next_timeout().map(|at| at.0);
        let release = self.held.front().map(|&(at, _)| at);
        sends.chain(arrivals).chain(timeout).chain(release).min()
    }

    fn step(&mut self) -> Result<(), String> {
        while let Some(&(_, id)) = self.held.front().filter(|(at, _)| *at <= self.now) {
            self.held.pop_front();
            check(self.reassembler.release(id), || format!("{id:?} was not there to release"))?;
        }
        for n in 0..self.senders.len() {
            if self.senders[n].next_send().is_some_and(|at| at <= self.now) {
                self.senders[n].send(self.now);
            }
            while let Some(arrival) = self.senders[n].link.receive(self.now) {
                if arrival.corrupted.is_none() || !self.checksums {
                    self.arrive(n, &arrival.packet)?;
                }
            }
        }
        self.given_up_so_far()?;
        let config = self.reassembler.config();
        check(self.reassembler.open_events() <= config.max_open, || "too many open events".into())?;
        check(self.reassembler.touched_memory() <= config.memory, || "too much memory".into())
    }

    fn arrive(&mut self, n: usize, datagram: &[u8]) -> Result<(), String> {
        let place = match self.reassembler.handle(Time(self.now), self.senders[n].address, datagram) {
            Ok(place) => place,
            Err(
                SegmentDropCause::Conflict
                | SegmentDropCause::Overlap
                | SegmentDropCause::BeyondEnd
                | SegmentDropCause::Version
                | SegmentDropCause::Short
                | SegmentDropCause::Empty,
            ) if self.checksums => {
                return Err("an honest segment is refused".into());
            }
            Err(_) => return Ok(()),
        };
        let memory = &mut self.memory[place.id.slot()];
        if place.opened {
            memory.clear();
            memory.resize(place.length as usize, 0xee);
        }
        let end = place.offset as usize + place.payload.len();
        memory[place.offset as usize..end].copy_from_slice(&datagram[place.payload.clone()]);
        self.given_up_so_far()?;
        if place.opened {
            self.set(place.name, None, EventOutcome::Open)?;
        }
        if place.complete { self.complete(&place) } else { Ok(()) }
    }

    fn complete(&mut self, place: &CopyCommand) -> Result<(), String> {
        self.set(place.name, Some(EventOutcome::Open), EventOutcome::Delivered)?;
        let memory = &self.memory[place.id.slot()];
        if self.checksums {
            let sender = &self.senders[usize::from(place.name.data_id)];
            check(sender.events[place.name.event as usize] == *memory, || {
                format!("{place:?} is not what was sent")
            })?;
        }
        self.summary.completions += 1;
        self.summary.bytes += memory.len() as u64;
        let until = self.now + self.random.below(self.hold + 1);
        let until = self.held.back().map_or(until, |&(before, _)| before.max(until));
        self.held.push_back((until, place.id));
        Ok(())
    }

    fn given_up_so_far(&mut self) -> Result<(), String> {
        while let Some(event) = self.reassembler.poll_given_up(Time(self.now)) {
            self.given_up(event)?;
        }
        Ok(())
    }

    fn given_up(&mut self, event: Incomplete) -> Result<(), String> {
        check(event.received < event.length, || format!("{event:?} was complete"))?;
        self.set(event.name, Some(EventOutcome::Open), EventOutcome::GivenUp)
    }

    /// Damaged names may be anybody's.
    fn set(&mut self, name: EventKey, from: Option<EventOutcome>, to: EventOutcome) -> Result<(), String> {
        if !self.checksums {
            return Ok(());
        }
        let events = self.observed.get_mut(usize::from(name.data_id)).ok_or("an unknown stream")?;
        events.first = events.first.or(Some(name.event));
        let before = events.outcomes.insert(name.event, to);
        check(before == from, || format!("{name:?} is {to:?} after {before:?}"))
    }

    fn finish(&self) -> Result<(), String> {
        let counters = self.reassembler.counters();
        let ended =
            counters.complete + counters.timed_out + counters.evicted_for_any_reason() + counters.abandoned;
        check(counters.opened == ended, || {
            format!("opened is not the sum of how events ended: {counters:?}")
        })?;
        let segments = counters.dropped_of_any_cause();
        check(segments <= counters.segments, || format!("more dropped than came: {counters:?}"))?;
        check(self.reassembler.touched_memory() == 0, || "memory is still taken".into())?;
        if !self.checksums {
            return Ok(());
        }
        let of = |outcome| {
            let outcomes = self.observed.iter().flat_map(|events| events.outcomes.values());
            outcomes.filter(|&&of| of == outcome).count() as u64
        };
        check(of(EventOutcome::Open) == 0, || "an event is neither delivered nor given up".into())?;
        check(of(EventOutcome::Delivered) == counters.complete, || {
            format!("delivered is not {}", counters.complete)
        })?;
        check(of(EventOutcome::GivenUp) == ended - counters.complete, || {
            "given up is not the sum of its causes".into()
        })?;
        (0..self.senders.len()).try_for_each(|n| self.missing(n))
    }

    /// Events of which no segment was placed.
    fn missing(&self, n: usize) -> Result<(), String> {
        let (address, SenderEvents { outcomes, first }) = (self.senders[n].address, &self.observed[n]);
        let senders: Vec<_> = self.reassembler.senders().collect();
        let sender = senders.iter().find(|sender| sender.address == address);
        let stream =
            sender.and_then(|sender| sender.streams().find(|stream| usize::from(stream.data_id) == n));
        let Some(stats) = stream else {
            return check(outcomes.is_empty(), || "a stream is not followed".into());
        };
        let first = first.unwrap_or_default();
        let gaps = (first..=stats.highest).filter(|event| !outcomes.contains_key(event)).count() as u64;
        check(stats.missing == gaps, || format!("{gaps} events are missing, not {}", stats.missing))?;
        check(stats.seen == outcomes.len() as u64, || format!("{} events were seen", outcomes.len()))
    }
}

/// The bounds of a reassembler with so many slots, of which `max_open` may be open.
pub(super) fn draw_config(r: &mut Random, slots: u32, max_open: u32, behind_lb: bool, seed: u64) -> Config {
    Config {
        slots,
        max_open,
        max_open_per_source: max_open.div_ceil(r.range(1..=3) as u32),
        max_event: r.pick(&[50_000, 1 << 20]),
        memory: r.pick(&[300_000, 16 << 20]),
        // Without ticks, what is later than this is another event's.
        timeout: Duration::from_micros(if behind_lb { 100_000 } else { r.pick(&[200, 5_000, 100_000]) }),
        chunks: r.pick(&[2, 1000]),
        seed,
        ..Config::default()
    }
}

pub(super) fn check(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
