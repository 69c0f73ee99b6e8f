//! The counters and the fill level of a receiver, for other threads.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use ejfat::reassembly::Reassembler;
use naa_udp::ReceiveSocket;

/// The most sockets whose buffers are looked at. If a receiver has more ports, these are a sample: segments are spread over all ports at random.
pub(crate) const SAMPLE: usize = 16;

/// Tells other threads what a receiver has done so far and how full it is, also while the receiver waits for its caller to take an event.
/// Clones tell of the same receiver.
#[derive(Clone, Debug)]
pub struct Gauge(pub(crate) Arc<Levels>);

/// What a receiver has done up to a moment, and how full it is then.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The part that is in use of the fullest socket's receive buffer, or of the memory for events, whichever is more: 0 to 1.
    /// What was received and not looked at, because the caller still has an earlier event, counts as if it were in the buffer.
    pub fill: f64,
    /// Events of which a segment has come.
    pub opened: u64,
    /// Events that were complete.
    pub complete: u64,
    /// Events that the receiver's caller has taken: its function for them has returned.
    pub delivered: u64,
    /// Events that were given up while they were incomplete.
    pub incomplete: u64,
    /// The number of received datagrams, including the dropped ones.
    pub segments: u64,
    /// The number of bytes of the received datagrams, without IP and UDP headers.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Levels {
    sockets: Vec<ReceiveSocket>,
    /// The most bytes of memory for events.
    memory: u64,
    /// The bytes of it that are in use.
    touched: AtomicU64,
    /// Bytes that were received and are not looked at yet.
    waiting: AtomicU64,
    opened: AtomicU64,
    complete: AtomicU64,
    delivered: AtomicU64,
    incomplete: AtomicU64,
    segments: AtomicU64,
    bytes: AtomicU64,
}

impl Levels {
    pub(crate) fn new(sockets: Vec<ReceiveSocket>, memory: u64) -> Self {
        Self { sockets, memory, ..Self::default() }
    }

    /// One more event was taken.
    pub(crate) fn delivered(&self) {
        self.delivered.fetch_add(1, Relaxed);
    }

    /// Tells the counters of a reassembler. `waiting` bytes were received that it has not seen.
    pub(crate) fn put(&self, of: &Reassembler, waiting: u64) {
        let counters = of.counters();
        let incomplete = counters.timed_out + counters.evicted_for_any_reason() + counters.abandoned;
        for (level, value) in [
            (&self.touched, of.touched_memory()),
            (&self.waiting, waiting),
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
    /// The counters as of the last event that the receiver delivered or the end of its last poll, and the fill level of the
    /// sockets now.
    pub fn read(&self) -> Reading {
        let levels = &*self.0;
        let memory = levels.touched.load(Relaxed) as f64 / levels.memory.max(1) as f64;
        // If the kernel does not tell how full sockets are, the memory alone counts.
        let waiting = levels.waiting.load(Relaxed);
        let buffers = levels.sockets.iter().filter_map(|socket| socket.fill(waiting).ok());
        Reading {
            fill: buffers.fold(memory, f64::max).clamp(0.0, 1.0),
            opened: levels.opened.load(Relaxed),
            complete: levels.complete.load(Relaxed),
            delivered: levels.delivered.load(Relaxed),
            incomplete: levels.incomplete.load(Relaxed),
            segments: levels.segments.load(Relaxed),
            bytes: levels.bytes.load(Relaxed),
        }
    }
}
