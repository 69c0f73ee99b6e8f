//! A worker: its ring, what it reads there, and what it gives back.

use std::collections::VecDeque;

use ejfat::{
    bridge::WorkerId,
    ring::{BLOCK, Given, Reader},
};
use simnet::Random;

use super::{
    super::{events::check, plan::MS, sender::Sender},
    behaviour::{Manner, WorkerBehaviour},
    ledger::{self, Ledger},
};

/// A credit word's number and what is written to it.
pub(super) type Credit = (u32, u32);

#[derive(Debug)]
pub(super) struct Worker {
    id: WorkerId,
    behaviour: WorkerBehaviour,
    reader: Reader,
    pub(super) ring: Vec<u8>,
    pub(super) descriptors: Vec<u8>,
    /// Immediates that came, and when it can know.
    announced: VecDeque<(u64, u32)>,
    /// Events that it has, and until when.
    held: Vec<(u64, Given)>,
    next_read: u64,
    lies: VecDeque<u64>,
    credited: Option<Credit>,
    /// It lied, so its events may be overwritten.
    harmed: bool,
    /// Its lies came back to it: the ring makes no sense any more.
    gave_up: bool,
    dead: bool,
    random: Random,
}

impl Worker {
    pub(super) fn new(id: WorkerId, behaviour: WorkerBehaviour, now: u64, mut random: Random) -> Self {
        let geometry = behaviour.geometry;
        let lies = match behaviour.manner {
            Manner::WritesNonsense | Manner::Lies => random.range(1..=30),
            Manner::Honest | Manner::Hoards => 0,
        };
        let mut lies: Vec<_> = (0..lies).map(|_| now + random.below(5 * MS)).collect();
        lies.sort_unstable();
        Self {
            id,
            reader: Reader::new(geometry, behaviour.redelivery),
            ring: vec![0; geometry.ring_bytes()],
            descriptors: vec![0; geometry.descriptors_bytes()],
            announced: VecDeque::new(),
            held: Vec::new(),
            next_read: now,
            lies: lies.into(),
            credited: None,
            harmed: false,
            gave_up: false,
            dead: false,
            random,
            behaviour,
        }
    }

    pub(super) fn behaviour(&self) -> &WorkerBehaviour {
        &self.behaviour
    }

    /// Whether it never gives back events that it did not read.
    pub(super) fn is_truthful(&self) -> bool {
        self.behaviour.manner != Manner::Lies
    }

    pub(super) fn is_honest(&self) -> bool {
        self.behaviour.manner == Manner::Honest
    }

    pub(super) fn die(&mut self) {
        self.dead = true;
    }

    /// It wants to end the subscription, because the ring makes no sense.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up && !self.dead
    }

    /// An immediate came.
    pub(super) fn announce(&mut self, at: u64, sequence: u32) -> Result<(), String> {
        self.announced.push_back((at, sequence));
        let unread = self.announced.len();
        check(self.harmed || unread <= self.behaviour.geometry.slots() as usize, || {
            format!("{unread} descriptors are unread")
        })
    }

    pub(super) fn next_act(&self) -> Option<u64> {
        if self.dead || self.gave_up {
            return None;
        }
        let read = self.announced.front().map(|&(at, _)| at.max(self.next_read));
        let gives = self.behaviour.manner != Manner::Hoards;
        let release = self.held.iter().map(|&(at, _)| at).min().filter(|_| gives);
        let next = read.into_iter().chain(release).chain(self.lies.front().copied()).min()?;
        let stall = &self.behaviour.stall;
        Some(if stall.contains(&next) { stall.end } else { next })
    }

    /// Everything that is due. Returns what it writes to credit words.
    pub(super) fn act(
        &mut self,
        now: u64,
        senders: &[Sender],
        ledger: &mut Ledger,
    ) -> Result<Vec<Credit>, String> {
        let mut credits = Vec::new();
        if self.next_act().is_none_or(|at| at > now) {
            return Ok(credits);
        }
        while self.lies.front().is_some_and(|&at| at <= now) {
            self.lies.pop_front();
            credits.push(self.lie());
        }
        if self.behaviour.manner != Manner::Hoards {
            while let Some(at) = self.held.iter().position(|&(until, _)| until <= now) {
                let (_, given) = self.held.swap_remove(at);
                self.compare(&given, senders)?;
                let credit = self.reader.credit(given);
                self.credited = Some(credit);
                credits.push(credit);
            }
        }
        while !self.gave_up && self.next_read <= now {
            let next = self.announced.front().copied();
            let Some((_, sequence)) = next.filter(|&(at, _)| at <= now) else { break };
            self.announced.pop_front();
            self.read(now, sequence, senders, ledger)?;
            self.next_read = now + self.random.below(self.behaviour.pace + 1);
        }
        Ok(credits)
    }

    fn read(
        &mut self,
        now: u64,
        sequence: u32,
        senders: &[Sender],
        ledger: &mut Ledger,
    ) -> Result<(), String> {
        let at = self.reader.descriptor_at();
        let block: &[u8; BLOCK] = self.descriptors[at..].first_chunk().expect("it lies inside");
        let given = match self.reader.handle(sequence, block) {
            Ok(given) => given,
            Err(_) if self.harmed => {
                self.gave_up = true;
                return Ok(());
            }
            Err(why) => return Err(format!("{:?} is told nonsense: {why}", self.id)),
        };
        let its = given.descriptor();
        ledger.read(its.name, self.id, its.delivered_again)?;
        self.compare(&given, senders)?;
        self.held.push((now + self.random.below(self.behaviour.hold + 1), given));
        Ok(())
    }

    /// Whether an event that it has is what was sent.
    fn compare(&self, given: &Given, senders: &[Sender]) -> Result<(), String> {
        if self.harmed {
            return Ok(());
        }
        let its = given.descriptor();
        let from = its.offset as usize;
        let bytes = self.ring.get(from..from + its.length as usize);
        let sent = ledger::sent(senders, its.name)?;
        check(bytes == Some(sent), || format!("{its:?} of {:?} is not what was sent", self.id))
    }

    /// Whether all that it has is still what was sent.
    pub(super) fn compare_all(&self, senders: &[Sender]) -> Result<(), String> {
        self.held.iter().try_for_each(|(_, given)| self.compare(given, senders))
    }

    fn lie(&mut self) -> Credit {
        let r = &mut self.random;
        let somewhere = r.below(self.behaviour.geometry.slots().into()) as u32;
        if self.behaviour.manner == Manner::WritesNonsense {
            // No slot has that many events.
            return (somewhere, r.next_u32() | 1 << 31);
        }
        self.harmed = true;
        let held = (!self.held.is_empty()).then(|| self.held[r.below(self.held.len() as u64) as usize].1);
        let held = held.map(|given| (given.descriptor().slot, given.descriptor().generation));
        let (slot, generation) = held.unwrap_or((somewhere, 1));
        match r.below(6) {
            0 => (somewhere, r.next_u32()),
            1 => (slot, generation),
            2 => (slot, generation.wrapping_add(1)),
            3 => (slot, generation.wrapping_sub(1)),
            4 => (somewhere, r.range(1..=4) as u32),
            _ => self.credited.unwrap_or((somewhere, 1)),
        }
    }
}
