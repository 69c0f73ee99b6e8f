//! How a receiver is, for other threads.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use ejfat::reassembly::Reassembler;

use crate::drops;

/// Sockets that are looked at. Of more ports these are a sample: events are spread over all by chance.
pub(crate) const SAMPLE: usize = 16;

/// What a receiver has done so far, and how full it is. It tells so while the receiver waits for whoever takes an event.
/// Clones are of the same receiver.
#[derive(Clone, Debug)]
pub struct Gauge(pub(crate) Arc<Levels>);

/// How a receiver is, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The part that is in use of a socket's receive buffer or of the memory for events, whichever is more: 0 to 1.
    pub fill: f64,
    /// Of which a segment came.
    pub opened: u64,
    pub complete: u64,
    /// Given up while they were incomplete.
    pub incomplete: u64,
    pub segments: u64,
    pub bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Levels {
    sockets: Vec<UdpSocket>,
    /// Bytes of memory for events; at most, and in use.
    memory: u64,
    touched: AtomicU64,
    opened: AtomicU64,
    complete: AtomicU64,
    incomplete: AtomicU64,
    segments: AtomicU64,
    bytes: AtomicU64,
}

impl Levels {
    pub(crate) fn new(sockets: Vec<UdpSocket>, memory: u64) -> Self {
        let [touched, opened, complete, incomplete, segments, bytes] = [0; 6].map(AtomicU64::new);
        Self { sockets, memory, touched, opened, complete, incomplete, segments, bytes }
    }

    pub(crate) fn put(&self, of: &Reassembler) {
        let counters = of.counters();
        let incomplete = counters.timed_out + counters.evicted_for_any_reason() + counters.abandoned;
        for (level, value) in [
            (&self.touched, of.touched_memory()),
            (&self.opened, counters.opened),
            (&self.complete, counters.complete),
            (&self.incomplete, incomplete),
            (&self.segments, counters.segments),
            (&self.bytes, counters.bytes),
        ] {
            level.store(value, Relaxed);
        }
    }
}

impl Gauge {
    pub fn read(&self) -> Reading {
        let levels = &*self.0;
        let memory = levels.touched.load(Relaxed) as f64 / levels.memory.max(1) as f64;
        // A kernel that does not tell leaves the memory.
        let buffers = levels.sockets.iter().filter_map(|socket| drops::fill(socket).ok());
        Reading {
            fill: buffers.fold(memory, f64::max).clamp(0.0, 1.0),
            opened: levels.opened.load(Relaxed),
            complete: levels.complete.load(Relaxed),
            incomplete: levels.incomplete.load(Relaxed),
            segments: levels.segments.load(Relaxed),
            bytes: levels.bytes.load(Relaxed),
        }
    }
}
