//! One subscription: the bridge's memory for it, the wire, and the worker.

use std::{collections::VecDeque, ops::Range};

use ejfat::{
    bridge::WorkerId,
    reassembly::EventKey,
    ring::{DeliveryMode, Descriptor},
};
use simnet::Random;

use super::{
    super::{events::check, sender::Sender},
    behaviour::{End, WorkerBehaviour},
    ledger,
    wire::{Wire, Write},
    worker::Worker,
};

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) id: WorkerId,
    pub(super) worker: Worker,
    pub(super) wire: Wire,
    /// The bridge's twin of the ring.
    staging: Vec<u8>,
    /// Credit words in the bridge's memory.
    words: Vec<u32>,
    /// When the bridge looks at them.
    look_at: Option<u64>,
    /// When the worker has its response.
    pub(super) ready_at: Option<u64>,
    /// Events that were announced but are not known to have arrived; with each its range of the staging ring, if it was
    /// written from there.
    unacknowledged: VecDeque<(EventKey, Option<Range<usize>>)>,
    /// The number of these events that are in shared memory: they arrive at the moment they are announced.
    arrived: u32,
    /// How the subscription will end.
    pub(super) end: End,
    /// When the bridge notices that the subscription ended.
    pub(super) found_at: Option<u64>,
    /// Whether the dispatcher has removed the worker.
    pub(super) gone: bool,
    /// When the dispatcher removed it (ns).
    pub(super) ended_at: Option<u64>,
    /// The bridge does not have its ring any more.
    pub(super) forgotten: bool,
    random: Random,
}

impl Subscriber {
    pub(super) fn new(id: WorkerId, behaviour: WorkerBehaviour, now: u64, seed: u64) -> Self {
        let stream = 100 + 4 * u64::from(id.number());
        let (wire, random) = (Random::new(seed, stream), Random::new(seed, stream + 1));
        let is_shared = behaviour.placing == DeliveryMode::Shared;
        let staging = if is_shared { 0 } else { behaviour.geometry.ring_bytes() };
        Self {
            id,
            wire: Wire::new(behaviour.delays.clone(), wire),
            staging: vec![0; staging],
            words: vec![0; behaviour.geometry.slots() as usize],
            look_at: None,
            ready_at: Some(now + behaviour.ready),
            unacknowledged: VecDeque::new(),
            arrived: 0,
            end: behaviour.end,
            found_at: None,
            gone: false,
            ended_at: None,
            forgotten: false,
            worker: Worker::new(id, behaviour, now, Random::new(seed, stream + 2)),
            random,
        }
    }

    pub(super) fn placing(&self) -> DeliveryMode {
        self.worker.behaviour().placing
    }

    /// Where the bridge reassembles, or puts what waited.
    fn memory(&mut self) -> &mut [u8] {
        match self.placing() {
            DeliveryMode::Store | DeliveryMode::Cut => &mut self.staging,
            DeliveryMode::Shared => &mut self.worker.ring,
        }
    }

    /// A segment of an event that has its home here.
    pub(super) fn place(&mut self, now: u64, offset: u64, bytes: &[u8]) {
        if self.placing() == DeliveryMode::Cut {
            self.wire.write(now, Write::Segment { offset, bytes: bytes.to_vec() });
        } else {
            self.put(offset, bytes);
        }
    }

    pub(super) fn put(&mut self, offset: u64, bytes: &[u8]) {
        self.memory()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn bytes(&mut self, offset: u64, length: u32) -> &[u8] {
        &self.memory()[offset as usize..][..length as usize]
    }

    /// The event is in its ring, or is to be written there.
    pub(super) fn deliver(&mut self, now: u64, its: &Descriptor, moved: bool) -> Result<(), String> {
        let (sequence, block) = (its.sequence, its.encode());
        let range = its.offset as usize..its.offset as usize + its.length as usize;
        let (range, arrives) = match self.placing() {
            DeliveryMode::Shared => (None, true),
            DeliveryMode::Cut if !moved => (None, false),
            DeliveryMode::Store | DeliveryMode::Cut => (Some(range), false),
        };
        self.unacknowledged.push_back((its.name, range.clone()));
        if arrives {
            self.arrived += 1;
            let late = self.random.below(1 + self.worker.behaviour().pace);
            return self.announce(now + late, sequence, &block);
        }
        if let Some(range) = range {
            self.wire.write(now, Write::Staged(range));
        }
        self.wire.write(now, Write::Descriptor { sequence, block });
        Ok(())
    }

    fn announce(&mut self, at: u64, sequence: u32, block: &[u8]) -> Result<(), String> {
        let entry = self.worker.behaviour().geometry.descriptor_at(sequence);
        self.worker.descriptors[entry..][..block.len()].copy_from_slice(block);
        self.worker.announce(at, sequence)
    }

    /// What arrives at either end.
    pub(super) fn pass(&mut self, now: u64) -> Result<(), String> {
        while let Some(write) = self.wire.written(now) {
            match write {
                Write::Segment { offset, bytes } => {
                    self.worker.ring[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                Write::Staged(range) => {
                    self.worker.ring[range.clone()].copy_from_slice(&self.staging[range]);
                }
                Write::Descriptor { sequence, block } => {
                    self.announce(now, sequence, &block)?;
                    self.wire.acknowledge(now);
                }
            }
        }
        while let Some((slot, value)) = self.wire.credited(now) {
            self.words[slot as usize] = value;
            self.look_at = self.look_at.or(Some(now + self.random.below(2_000)));
        }
        Ok(())
    }

    /// Whether another event is known to have arrived.
    pub(super) fn next_acknowledged(&mut self, now: u64, senders: &[Sender]) -> Result<bool, String> {
        if self.arrived == 0 && !self.wire.acknowledged(now) {
            return Ok(false);
        }
        self.arrived = self.arrived.saturating_sub(1);
        let (name, range) = self.unacknowledged.pop_front().ok_or("more is acknowledged than was told")?;
        // Until this moment the event may have to be sent again, so the staging ring must still hold it.
        if let Some(range) = range {
            let same = self.staging[range] == *ledger::sent(senders, name)?;
            check(same, || format!("{name:?} changed in the twin before it was acknowledged"))?;
        }
        Ok(true)
    }

    /// The credit words, if it is time to look at them.
    pub(super) fn words_at(&mut self, now: u64) -> Option<&[u32]> {
        self.look_at.take_if(|at| *at <= now)?;
        Some(&self.words)
    }

    pub(super) fn words(&self) -> &[u32] {
        &self.words
    }

    /// The bridge has nothing to do with it any more.
    pub(super) fn leave(&mut self, now: u64) {
        self.gone = true;
        self.wire.break_at(now);
        (self.look_at, self.ready_at, self.found_at, self.arrived) = (None, None, None, 0);
        self.end = End::Never;
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        let arrived = (self.arrived > 0).then_some(0);
        let times = [arrived, self.wire.next_arrival(), self.worker.next_act(), self.end.at(), self.found_at];
        times.into_iter().flatten().chain(self.look_at).chain(self.ready_at).min()
    }
}
