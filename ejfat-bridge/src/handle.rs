//! What others are told of a bridge.

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

/// A worker, at a moment.
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
    /// Seconds that it is subscribed.
    pub seconds: f64,
}

/// What a bridge did until a moment ago.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub reassembly: reassembly::Counters,
    pub events: Counters,
    pub workers: Vec<WorkerReport>,
    /// Complete events that wait for room.
    pub waiting: usize,
    /// Events of workers that ended, which wait to be delivered to another worker.
    pub waiting_again: usize,
    /// Events that workers had when they ended, which no other worker was told of, and which do not wait for that. What workers have
    /// when the bridge ends is not among them.
    pub lost_with_workers: u64,
    /// Events that are lost because they are longer than the bridge takes; none of `events`.
    pub too_long: u64,
    /// Fill levels and totals for a control plane.
    pub load: Load,
    /// Bytes of memory that segments have touched.
    pub memory: u64,
    /// Datagrams that the kernel dropped at the ports.
    pub kernel_drops: u64,
    /// The counters of the ports to which something came, at most a second old; their drops may be older, where more than 256
    /// ports are bound.
    pub ports: Arc<[PortCounters]>,
    /// Of all rings together, 0 to 1.
    pub fill: f64,
    /// Subscriptions that were refused.
    pub refused: u64,
    /// Why nothing is received any more.
    pub failed: Option<String>,
    /// By the bridge's clock, as the times of records.
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

/// Questions that wait, at most.
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
        // One at a time: it takes a millisecond.
        let question = {
            let mut questions = lock(&self.questions);
            let question = questions.pop();
            self.asked.store(!questions.is_empty(), Ordering::Release);
            question
        };
        if let Some(Question { tick, answer }) = question {
            // Events of one tick are few, unless somebody sends the same one for ever.
            let _ = answer.send(find(tick).take(100).copied().collect());
        }
    }
}

/// Asks a bridge. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Handle(pub(crate) Arc<Desk>);

impl Handle {
    /// At most a tenth of a second old.
    pub fn snapshot(&self) -> Snapshot {
        lock(&self.0.snapshot).clone()
    }

    /// How full the bridge is, and its totals since it began; at most 150 ms old. This allocates nothing and does not wait for an
    /// answer of the bridge's loop, so it may be called many times a second, from any thread.
    pub fn load(&self) -> Load {
        lock(&self.0.snapshot).load
    }

    /// What is remembered of events with a tick, or with this number where they have none; the latest first, at most 100.
    /// `None` if the bridge does not answer within two seconds.
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
