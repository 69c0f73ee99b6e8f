//! The handle by which other threads ask a bridge for its state.

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
    bridge::{Counters, Record},
    reassembly,
};

use ejfat_udp::PortCounters;

use crate::{Level, Load};

/// The state of a worker at one moment.
#[derive(Clone, Debug)]
pub struct WorkerReport {
    pub level: Level,
    /// "store", "cut" or "shared".
    pub placing: &'static str,
    pub peer: Option<SocketAddr>,
    pub slots: u32,
    pub slot_bytes: u32,
    pub in_use: u32,
    pub outstanding: u32,
    pub sent: u64,
    pub bytes: u64,
    pub released: u64,
    pub wrong_credits: u64,
    /// How long it has been subscribed, in seconds.
    pub seconds: f64,
}

/// The state and counters of a bridge as of a moment ago.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub reassembly: reassembly::Counters,
    pub events: Counters,
    pub workers: Vec<WorkerReport>,
    /// The number of complete events that wait for room.
    pub waiting: usize,
    /// The number of events of ended workers that wait to be delivered to another worker.
    pub waiting_again: usize,
    /// The number of events that workers had when they ended, which were not delivered to another worker and do not wait for that.
    /// Events that workers have when the bridge ends are not counted.
    pub lost_with_workers: u64,
    /// The number of events that are lost because they are longer than the bridge accepts. They are not counted in `events`.
    pub too_long: u64,
    /// Fill levels and totals for a control plane.
    pub load: Load,
    /// Bytes of memory that segments have used so far.
    pub memory: u64,
    /// Datagrams that the Linux kernel dropped at the ports.
    pub kernel_drops: u64,
    /// The counters of the ports that received something, at most a second old. Their drops may be older if more than 256 ports are
    /// bound.
    pub ports: Arc<[PortCounters]>,
    /// The part of all rings' slots that is in use, 0 to 1.
    pub fill: f64,
    /// Subscriptions that were refused.
    pub refused: u64,
    /// Why nothing can be received, if so.
    pub failed: Option<String>,
    /// The time of the snapshot by the bridge's clock, which also the times in traces are from.
    pub now: Time,
}

#[derive(Debug)]
struct Question {
    tick: u64,
    answer: mpsc::Sender<Vec<Record>>,
}

#[derive(Debug, Default)]
pub(crate) struct Desk {
    snapshot: Mutex<Snapshot>,
    asked: AtomicBool,
    questions: Mutex<Vec<Question>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most queries that may wait.
const MOST_QUESTIONS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(2);

impl Desk {
    pub(crate) fn put(&self, snapshot: Snapshot) {
        *lock(&self.snapshot) = snapshot;
    }

    pub(crate) fn answer<'a, I: Iterator<Item = &'a Record>>(&self, find: impl Fn(u64) -> I) {
        if !self.asked.load(Ordering::Acquire) {
            return;
        }
        // Only one query is answered in a turn, since it takes a millisecond.
        let question = {
            let mut questions = lock(&self.questions);
            let question = questions.pop();
            self.asked.store(!questions.is_empty(), Ordering::Release);
            question
        };
        if let Some(Question { tick, answer }) = question {
            // There are few events of one tick, unless somebody sends the same tick for ever. The limit is for that case.
            let _ = answer.send(find(tick).take(100).copied().collect());
        }
    }
}

/// The handle of a bridge. Clones refer to the same bridge.
#[derive(Clone, Debug)]
pub struct Handle(pub(crate) Arc<Desk>);

impl Handle {
    /// The latest snapshot, at most a tenth of a second old.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0.snapshot).clone()
    }

    /// How full the bridge is, and its totals since it began; at most 150 ms old. This allocates nothing and does not wait for the
    /// bridge's loop, so any thread may call it many times a second.
    pub fn load(&self) -> Load {
        lock(&self.0.snapshot).load
    }

    /// The traces of events with this tick, or with this number if they have no tick; the latest first, at most 100. `None` if the
    /// bridge does not answer within two seconds.
    pub fn trace(&self, tick: u64) -> Option<Vec<Record>> {
        let (answer, records) = mpsc::channel();
        {
            let mut questions = lock(&self.0.questions);
            if questions.len() >= MOST_QUESTIONS {
                return None;
            }
            questions.push(Question { tick, answer });
            self.0.asked.store(true, Ordering::Release);
        }
        records.recv_timeout(PATIENCE).ok()
    }
}
