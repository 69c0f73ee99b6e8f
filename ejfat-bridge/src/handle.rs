//! The handle by which other threads read the state of a bridge.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use ejfat::{
    Time,
    bridge::{Counters, EventTrace, WorkerStats},
    reassembly,
};

use ejfat_udp::PortCounters;

use crate::Load;

/// The state of a worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    /// The state and counters that the dispatcher has for the worker.
    pub stats: WorkerStats,
    /// The address of a remote worker, or `None` for a worker on the bridge's machine.
    pub peer: Option<SocketAddr>,
    /// The time since the worker subscribed, in seconds.
    pub seconds: f64,
}

/// The state and counters of a bridge at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The counters of segments and of reassembled events.
    pub reassembly: reassembly::Counters,
    /// The counters of the dispatcher.
    pub events: Counters,
    /// The state of each subscribed worker.
    pub workers: Vec<WorkerReport>,
    /// The number of complete events that wait for room.
    pub waiting: usize,
    /// The number of events of ended workers that wait to be delivered to another worker.
    pub waiting_again: usize,
    /// The number of events that were lost because their worker ended. An event that was delivered again, or waits to
    /// be delivered again, is not counted. An event that a worker still has when the bridge ends is not counted.
    pub lost_with_workers: u64,
    /// The number of events that are lost because they are longer than the bridge accepts. The counters in `events` do
    /// not include the events that `too_long` counts.
    pub too_long: u64,
    /// Fill levels and totals for a control plane.
    pub load: Load,
    /// The number of bytes of the reassembler's memory that are in use by open events, and by complete events that wait
    /// for room.
    pub memory: u64,
    /// The number of datagrams that the Linux kernel dropped at the UDP ports of the bridge.
    pub kernel_drops: u64,
    /// The counters of each port at which datagrams arrived. The bridge updates this list about once a second. Until
    /// the bridge ends, each snapshot reads the counts of dropped datagrams for at most 256 ports. If more ports are
    /// bound, some of these counts are therefore older than the other counters.
    pub ports: Arc<[PortCounters]>,
    /// The number of ring slots in use, divided by the number of slots of all rings; 1 if there is no worker.
    pub fill: f64,
    /// The number of subscriptions that were refused.
    pub refused: u64,
    /// The error because of which no segments can be received; `None` while segments can be received.
    pub failed: Option<String>,
    /// The time of the snapshot by the bridge's clock. The times in event traces are also times of the bridge's clock.
    pub now: Time,
}

#[derive(Debug)]
struct Query {
    tick: u64,
    answer: mpsc::Sender<Vec<EventTrace>>,
}

#[derive(Debug, Default)]
pub(crate) struct QueryQueue {
    snapshot: Mutex<Snapshot>,
    has_queries: AtomicBool,
    queries: Mutex<Vec<Query>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The maximum number of queries for event traces that may wait.
const MOST_QUERIES: usize = 64;
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

impl QueryQueue {
    pub(crate) fn put(&self, snapshot: Snapshot) {
        *lock(&self.snapshot) = snapshot;
    }

    pub(crate) fn answer<'a, I: Iterator<Item = &'a EventTrace>>(&self, find: impl Fn(u64) -> I) {
        if !self.has_queries.load(Ordering::Acquire) {
            return;
        }
        // The server loop answers only one query in each turn. A query takes a millisecond, in which the server loop
        // does no other work.
        let query = {
            let mut queries = lock(&self.queries);
            let query = queries.pop();
            self.has_queries.store(!queries.is_empty(), Ordering::Release);
            query
        };
        if let Some(Query { tick, answer }) = query {
            // The answer has at most 100 event traces. Usually fewer events have the same tick, so this limit matters
            // only if a sender sends the same tick all the time.
            let _ = answer.send(find(tick).take(100).copied().collect());
        }
    }
}

/// A handle by which a thread reads the state of a bridge. All clones of a handle refer to the same bridge.
#[derive(Clone, Debug)]
pub struct BridgeHandle(pub(crate) Arc<QueryQueue>);

impl BridgeHandle {
    /// Returns the latest snapshot, which is at most 150 ms old.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0.snapshot).clone()
    }

    /// Returns the fill levels of the bridge, and its totals since its start. The returned numbers are at most 150 ms
    /// old. The call allocates nothing and does not wait for the server loop, so a thread may call this function many
    /// times a second.
    pub fn load(&self) -> Load {
        lock(&self.0.snapshot).load
    }

    /// Returns the event traces of the events whose tick is `tick`. The result begins with the newest event trace, and
    /// has at most 100 event traces. If an event has no tick, its event number is compared with `tick`. Returns `None`
    /// if the bridge does not answer within two seconds, or if too many queries wait.
    pub fn trace(&self, tick: u64) -> Option<Vec<EventTrace>> {
        let (answer, records) = mpsc::channel();
        {
            let mut queries = lock(&self.0.queries);
            if queries.len() >= MOST_QUERIES {
                return None;
            }
            queries.push(Query { tick, answer });
            self.0.has_queries.store(true, Ordering::Release);
        }
        records.recv_timeout(QUERY_TIMEOUT).ok()
    }
}
