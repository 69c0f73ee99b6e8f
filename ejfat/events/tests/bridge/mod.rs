//! A small bridge for tests: one worker, which is given what the test says.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

pub mod local;
pub mod remote;

use std::{
    thread,
    time::{Duration, Instant},
};

use ejfat::{
    reassembly::EventKey,
    ring::{BLOCK, CreditCounts, Descriptor, RingSlots, Run},
};
use naa_events::{BridgeAddress, Config, Event, Geometry, SessionConfig, Worker};

/// The bridge model's access to the worker's ring.
pub trait RingModel {
    /// Puts an event and its descriptor there, and tells the worker.
    fn put(&mut self, run: Run, bytes: &[u8], descriptor_at: usize, descriptor: &[u8; BLOCK], sequence: u32);
    /// Writes bytes of the ring from `offset` on, and tells nobody.
    fn overwrite(&mut self, offset: u64, bytes: &[u8]);
    /// Events that are known to have arrived since the last time.
    fn arrived(&mut self) -> u32;
    /// The words of the credits.
    fn words(&self, words: &mut [u32]);
    /// Their count.
    fn count(&self) -> u32;
}

/// The bridge's side of a subscription.
pub struct BridgeSide<M> {
    pub ring: M,
    pub slots: RingSlots,
    pub wrong: u32,
    words: Vec<u32>,
}

impl<M: RingModel> BridgeSide<M> {
    pub fn new(ring: M, slots: RingSlots) -> Self {
        let words = vec![0; slots.geometry().slots() as usize];
        Self { ring, slots, wrong: 0, words }
    }

    /// False without room for it.
    pub fn put(&mut self, event: u64, bytes: &[u8]) -> bool {
        self.put_with(event, bytes, |_| {})
    }

    /// Puts an event like [`put`](Self::put), with a descriptor that `change` changed.
    pub fn put_with(&mut self, event: u64, bytes: &[u8], change: impl FnOnce(&mut Descriptor)) -> bool {
        self.look();
        let length = bytes.len() as u32;
        let Some(run) = self.slots.take(length) else { return false };
        let sequence = self.slots.send(run.slot, event as u32);
        let geometry = self.slots.geometry();
        let mut descriptor = Descriptor {
            sequence,
            generation: run.generation,
            slot: run.slot,
            slots: run.slots,
            offset: geometry.offset(run.slot),
            length,
            name: EventKey { event, data_id: event as u16 % 4 },
            tick: event.is_multiple_of(2).then_some(event),
            first: 1,
            assembly: 2,
            delivered_again: false,
        };
        let at = geometry.descriptor_at(sequence);
        change(&mut descriptor);
        self.ring.put(run, bytes, at, &descriptor.encode(), sequence);
        true
    }

    /// Breaks the protocol: writes an event that the worker has.
    pub fn overwrite(&mut self, event: &Event, bytes: &[u8]) {
        self.ring.overwrite(event.descriptor().offset, bytes);
    }

    pub fn look(&mut self) -> CreditCounts {
        for _ in 0..self.ring.arrived() {
            self.slots.acknowledge();
        }
        self.ring.words(&mut self.words);
        let looked = self.slots.look(&self.words, |_| {});
        self.wrong += looked.wrong;
        looked
    }
}

pub fn config(slots: u32, slot_bytes: u32) -> Config {
    let session = SessionConfig {
        // Half a second: not less, since tests share the processors.
        ack_timeout: 14,
        probe_interval: Some(Duration::from_millis(50)),
        ..SessionConfig::default()
    };
    let geometry = Geometry::new(slots, slot_bytes).unwrap();
    Config { geometry, session, reconnect: None, ..Config::default() }
}

pub fn local_pair(
    name: &str,
    config: &Config,
) -> (local::LocalBridgeModel, BridgeSide<local::SharedRingModel>, Worker) {
    let bridge = local::LocalBridgeModel::start(name);
    let source = BridgeAddress::Local(bridge.path.clone());
    let (worker, side) = thread::scope(|scope| {
        let side = scope.spawn(|| bridge.accept());
        (Worker::open(&source, config), side.join().unwrap())
    });
    (bridge, side, worker.unwrap())
}

pub fn remote_pair(
    ip: &str,
    config: &Config,
    early: &[&[u8]],
) -> (remote::RemoteBridgeModel, BridgeSide<remote::RdmaRingModel>, Worker) {
    let bridge = remote::RemoteBridgeModel::start(ip, 0);
    let source = BridgeAddress::Remote(bridge.address);
    let (worker, side) = thread::scope(|scope| {
        let side = scope.spawn(|| bridge.accept(early));
        (Worker::open(&source, config), side.join().unwrap())
    });
    (bridge, side, worker.unwrap())
}

/// Bytes of an event that tell which it is.
pub fn content(event: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (event as usize * 31 + at * 7) as u8).collect()
}

pub fn check(event: &Event) {
    let descriptor = event.descriptor();
    let number = descriptor.name.event;
    assert_eq!(event.to_vec(), content(number, descriptor.length as usize), "event {number}");
    assert_eq!(descriptor.tick, number.is_multiple_of(2).then_some(number));
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}
