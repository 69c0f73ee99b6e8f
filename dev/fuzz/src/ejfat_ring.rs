//! Event rings: blocks as they are; then both ends, in front of any credit words, descriptors and order of things.

use std::collections::VecDeque;

use ejfat::{
    reassembly::EventKey,
    ring::{
        BLOCK, CreditCounts, Descriptor, Geometry, Given, Reader, ReaderError, RingSlots, Run,
        SubscribeResponse, Subscription,
    },
};

use crate::program::Program;

pub fn run(data: &[u8]) {
    if let Some((block, rest)) = data.split_first_chunk() {
        blocks(block);
        let mut program = Program::new(rest);
        Watch::new(&mut program).run(&mut program);
    }
}

/// What is read can be written and read again.
fn blocks(block: &[u8; BLOCK]) {
    if let Ok(subscription) = Subscription::decode(block) {
        assert_eq!(subscription.encode(), *block);
        let geometry = subscription.geometry;
        assert!(geometry.ring_bytes() <= u32::MAX as usize);
        assert!(geometry.descriptors_bytes() >= geometry.slots() as usize * BLOCK);
        assert!(geometry.shared_bytes() > geometry.ring_bytes());
    }
    if let Ok(answer) = SubscribeResponse::decode(block) {
        assert_eq!(SubscribeResponse::decode(&SubscribeResponse::encode(&answer)), Ok(answer));
    }
    if let Ok(descriptor) = Descriptor::decode(block) {
        assert_eq!(descriptor.encode(), *block);
    }
}

/// An event in the ring.
#[derive(Clone, Copy)]
struct Sent {
    run: Run,
    sequence: u32,
    acknowledged: bool,
    /// Taken as given back, which lies can bring about.
    credited: bool,
}

/// Both ends, and a slow model of the bridge's.
struct Watch {
    geometry: Geometry,
    /// Whether the subscription has version 2, in which events can be delivered again.
    redelivery: bool,
    slots: RingSlots,
    words: Vec<u32>,
    filling: Vec<Run>,
    /// Told, and not free yet.
    sent: Vec<Sent>,
    /// Told, and not read yet.
    announced: VecDeque<Descriptor>,
    reader: Reader,
    held: Vec<Given>,
    /// The worker wrote a word that it was not to write: events may lie over others.
    lied: bool,
}

impl Watch {
    fn new(program: &mut Program<'_>) -> Self {
        let geometry = Geometry::new(program.pick(&[1, 2, 3, 8, 65, 130]), 64).expect("it is a small one");
        let redelivery = program.flag();
        Self {
            geometry,
            redelivery,
            slots: RingSlots::new(geometry),
            words: vec![0; geometry.slots() as usize],
            filling: Vec::new(),
            sent: Vec::new(),
            announced: VecDeque::new(),
            reader: Reader::new(geometry, redelivery),
            held: Vec::new(),
            lied: false,
        }
    }

    fn run(mut self, program: &mut Program<'_>) {
        while !program.is_over() {
            match program.below(10) {
                0 | 1 => self.take(program.u16().into()),
                2 => self.give_back(program.byte().into()),
                3 | 4 => self.send(program.byte().into()),
                5 => self.acknowledge(),
                6 => self.read(),
                7 => self.credit(program.byte().into()),
                8 => self.look(),
                _ => self.misbehave(program),
            }
            self.check();
        }
    }

    fn take(&mut self, length: u32) {
        let length = length % (64 * (self.geometry.slots() + 1));
        let room = self.slots.has_room(length);
        let taken = self.slots.take(length);
        assert_eq!(room, taken.is_some());
        let wanted = length.div_ceil(64).max(1);
        let Some(run) = taken else {
            assert!(self.longest_free_run() < wanted, "{wanted} slots were free side by side");
            return;
        };
        assert_eq!(run.slots, wanted);
        assert!(self.used()[run.slot as usize..][..run.slots as usize].iter().all(|&used| !used));
        self.filling.push(run);
    }

    fn give_back(&mut self, at: usize) {
        if at < self.filling.len() {
            self.slots.give_back(self.filling.swap_remove(at).slot);
        }
    }

    fn send(&mut self, at: usize) {
        if at >= self.filling.len() {
            return;
        }
        let run = self.filling.swap_remove(at);
        let sequence = self.slots.send(run.slot, run.slot ^ 77);
        let Run { slot, slots, generation } = run;
        self.announced.push_back(Descriptor {
            sequence,
            generation,
            slot,
            slots,
            offset: self.geometry.offset(slot),
            length: slots * 64,
            name: EventKey { event: 1, data_id: 2 },
            tick: None,
            first: 3,
            assembly: 4,
            delivered_again: self.redelivery && !sequence.is_multiple_of(2),
        });
        self.sent.push(Sent { run, sequence, acknowledged: false, credited: false });
    }

    fn acknowledge(&mut self) {
        let next = self.sent.iter_mut().filter(|sent| !sent.acknowledged).min_by_key(|sent| sent.sequence);
        let done = self.slots.acknowledge();
        assert_eq!(done.map(|done| done.slot), next.as_ref().map(|sent| sent.run.slot));
        if let (Some(done), Some(next)) = (done, next) {
            assert_eq!((done.tag, done.acknowledged), (next.run.slot ^ 77, next.credited));
            next.acknowledged = true;
        }
        self.forget_free();
    }

    fn forget_free(&mut self) {
        self.sent.retain(|sent| !(sent.acknowledged && sent.credited));
    }

    fn read(&mut self) {
        let Some(descriptor) = self.announced.front() else { return };
        match self.reader.handle(descriptor.sequence, &descriptor.encode()) {
            Ok(given) => {
                assert_eq!(given.descriptor(), descriptor);
                self.held.push(given);
                self.announced.pop_front();
            }
            Err(why) => assert!(self.lied && why == ReaderError::Taken, "{why}"),
        }
    }

    fn credit(&mut self, at: usize) {
        if at < self.held.len() {
            let (slot, value) = self.reader.credit(self.held.swap_remove(at));
            self.words[slot as usize] = value;
        }
    }

    fn look(&mut self) {
        let mut credited = Vec::new();
        let looked = self.slots.look(&self.words, |its| credited.push(its));
        assert_eq!(looked.credits as usize, credited.len());
        assert!(self.lied || looked.wrong == 0);
        for its in credited {
            let word = self.words[its.slot as usize];
            let mut sent = self.sent.iter_mut().filter(|sent| sent.run.slot == its.slot);
            let sent = sent.next().expect("an event begins there");
            assert_eq!((word, its.tag), (sent.run.generation, sent.run.slot ^ 77));
            assert_eq!((sent.credited, sent.acknowledged), (false, its.acknowledged));
            sent.credited = true;
        }
        self.forget_free();
        assert_eq!(self.slots.look(&self.words, |_| unreachable!()), CreditCounts::default());
    }

    /// A word or a descriptor that should not be.
    fn misbehave(&mut self, program: &mut Program<'_>) {
        if program.flag() {
            let at = program.below(self.words.len());
            self.words[at] = if program.flag() { program.u32() } else { program.byte().into() };
            self.lied = true;
            return;
        }
        let outstanding = self.reader.outstanding();
        let mut block = self.announced.front().map_or([0; BLOCK], Descriptor::encode);
        let at = program.below(BLOCK);
        block[at] ^= program.byte();
        let sequence = self.reader.next_sequence().wrapping_add(u32::from(program.rarely(4)));
        if let Ok(given) = self.reader.handle(sequence, &block) {
            let its = given.descriptor();
            assert!(self.redelivery || !its.delivered_again, "version 1 delivers nothing again");
            assert!(its.offset as usize + its.length as usize <= self.geometry.ring_bytes());
            assert_eq!(self.reader.outstanding(), outstanding + 1);
            // The worker believes it; its credit is one that the bridge may not expect.
            self.lied = true;
            self.held.push(given);
            self.announced.pop_front();
        } else {
            assert_eq!(self.reader.outstanding(), outstanding);
        }
    }

    fn used(&self) -> Vec<bool> {
        let mut used = vec![false; self.geometry.slots() as usize];
        for run in self.filling.iter().copied().chain(self.sent.iter().map(|sent| sent.run)) {
            for used in &mut used[run.slot as usize..][..run.slots as usize] {
                assert!(!*used, "a slot has two events");
                *used = true;
            }
        }
        used
    }

    fn longest_free_run(&self) -> u32 {
        let runs = self.used().split(|&used| used).map(<[bool]>::len).max();
        runs.unwrap_or_default() as u32
    }

    fn check(&self) {
        let used = self.used().iter().filter(|&&used| used).count();
        assert_eq!(self.slots.in_use() as usize, used);
        let filling: u32 = self.filling.iter().map(|run| run.slots).sum();
        assert_eq!(self.slots.filling(), filling);
        let of = |which: fn(&Sent) -> bool| self.sent.iter().filter(|sent| which(sent)).count();
        assert_eq!(self.slots.outstanding() as usize, of(|sent| !sent.credited));
        assert_eq!(self.slots.unacknowledged(), of(|sent| !sent.acknowledged));
        assert_eq!(self.slots.held().count(), of(|sent| !sent.credited));
        assert_eq!(self.reader.outstanding() as usize, self.held.len());
        let unread = self.announced.len();
        assert!(self.lied || unread <= self.geometry.slots() as usize, "{unread} descriptors are unread");
    }
}
