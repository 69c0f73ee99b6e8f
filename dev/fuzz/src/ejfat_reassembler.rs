//! The reassembler, beside a model with a flag for each byte: any segments, times and releases.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ejfat::{
    Time,
    reassembly::{Config, EventBufferId, Incomplete, LimitsBy, Numbering, Reassembler, SegmentDropCause},
    wire::ReHeader,
};

use crate::program::Program;

const MOST_BYTES: u32 = 600;

struct Watch {
    reassembler: Reassembler,
    /// Which bytes of the event in a slot are there.
    events: BTreeMap<usize, (EventBufferId, Vec<bool>)>,
}

pub fn run(data: &[u8]) {
    let mut program = Program::new(data);
    let config = Config {
        slots: 6,
        max_open: program.below(5) as u32 + 1,
        max_open_per_source: program.below(5) as u32 + 1,
        max_event: MOST_BYTES,
        memory: program.pick(&[8192, 1 << 20, 128]),
        page: program.pick(&[4096, 1]),
        limits_by: program.pick(&[LimitsBy::Address, LimitsBy::Stream]),
        timeout: Duration::from_nanos(50),
        numbering: program.pick(&[Numbering::Sparse, Numbering::Consecutive]),
        max_sources: 2,
        remembered: 4,
        chunks: 2,
        seed: 1,
        ..Config::default()
    };
    let reassembler = Reassembler::new(config).expect("bounds that fit");
    let mut watch = Watch { reassembler, events: BTreeMap::new() };
    let mut now = 0;
    while !program.is_over() {
        match program.below(16) {
            0 => now += program.below(100) as u64,
            1 => watch.expire(Time(now)),
            2 => watch.release(program.below(6)),
            3 => {
                let len = program.below(64);
                watch.datagram(Time(now), None, program.bytes(len));
            }
            _ => watch.segment(Time(now), &mut program),
        }
        watch.check();
    }
}

impl Watch {
    fn segment(&mut self, now: Time, program: &mut Program<'_>) {
        let source = program.below(4) as u32;
        let from = (source > 0).then(|| IpAddr::from([10, 0, 0, source as u8]));
        let event = if program.rarely(16) { program.u64() } else { program.below(8) as u64 };
        let data_id = program.below(2) as u16;
        let length = if program.rarely(16) { program.u32() } else { program.pick(&[1, 16, 100, MOST_BYTES]) };
        let offset = if program.rarely(16) { program.u32() } else { program.below(75) as u32 * 8 };
        let payload = vec![0xaa; program.pick(&[8, 8, 8, 1, 0, 7, 30])];
        let header = ReHeader { data_id, offset, length, event };
        let datagram = [&header.encode()[..], &payload].concat();
        self.datagram(now, from, &datagram);
    }

    fn datagram(&mut self, now: Time, from: Option<IpAddr>, datagram: &[u8]) {
        let Ok(place) = self.reassembler.handle(now, from, datagram) else { return };
        self.expire(now);
        if place.opened {
            let before = self.events.insert(place.id.slot(), (place.id, vec![false; place.length as usize]));
            assert!(before.is_none(), "the slot was taken");
        }
        let (id, there) = self.events.get_mut(&place.id.slot()).expect("it was opened");
        assert_eq!((*id, there.len()), (place.id, place.length as usize));
        let range = place.offset as usize..place.offset as usize + place.payload.len();
        assert!(datagram.get(place.payload).is_some_and(|payload| !payload.is_empty()));
        assert!(there[range.clone()].iter().all(|&there| !there), "a byte is placed twice");
        there[range].fill(true);
        assert_eq!(place.complete, there.iter().all(|&there| there));
    }

    fn given_up(&mut self, event: Incomplete) {
        let (id, there) = self.events.remove(&event.id.slot()).expect("it was opened");
        assert_eq!(id, event.id);
        assert_eq!(there.iter().filter(|&&there| there).count(), event.received as usize);
    }

    fn expire(&mut self, now: Time) {
        while let Some(expired) = self.reassembler.poll_given_up(now) {
            self.given_up(expired);
        }
    }

    fn release(&mut self, slot: usize) {
        let Some((id, _)) = self.events.remove(&slot) else { return };
        let is_abandoned = slot % 2 == 1;
        let ends = |by: &mut Reassembler| if is_abandoned { by.abandon(id) } else { by.release(id) };
        assert!(ends(&mut self.reassembler));
        assert!(!ends(&mut self.reassembler));
    }

    fn check(&self) {
        let (config, counters) = (self.reassembler.config(), self.reassembler.counters());
        assert!(self.reassembler.open_events() <= config.max_open);
        assert!(self.reassembler.touched_memory() <= config.memory);
        let claimed: u64 = self.events.values().map(|(_, there)| there.len() as u64).sum();
        assert!(claimed <= config.max_claimed());
        let ended =
            counters.complete + counters.timed_out + counters.evicted_for_any_reason() + counters.abandoned;
        assert_eq!(counters.opened, ended + u64::from(self.reassembler.open_events()));
        let dropped: u64 = SegmentDropCause::ALL.iter().map(|&cause| counters.dropped(cause)).sum();
        assert_eq!(dropped, counters.dropped_of_any_cause());
    }
}
