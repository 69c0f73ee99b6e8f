//! What a dispatcher counts.

use super::Histogram;

/// Why an event was not delivered though the reassembler did not give it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Loss {
    /// No worker may have it.
    NoWorker,
    /// No worker had room, and it could not wait.
    NoCredit,
    /// It is longer than every ring it may go to.
    TooLarge,
    /// It waited, and a newer one took its place.
    Displaced,
    /// It waited too long for room.
    Expired,
    /// It was on its way into the ring of a worker that ended.
    WorkerEnded,
}

impl Loss {
    pub const ALL: [Self; 6] =
        [Self::NoWorker, Self::NoCredit, Self::TooLarge, Self::Displaced, Self::Expired, Self::WorkerEnded];

    /// As counters call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NoWorker => "no_worker",
            Self::NoCredit => "no_credit",
            Self::TooLarge => "too_large",
            Self::Displaced => "displaced",
            Self::Expired => "expired",
            Self::WorkerEnded => "worker_ended",
        }
    }
}

/// Numbers of events. `opened` is the sum of `open`, `sent`, `incomplete` and all of `lost`. `sent + delivered_again` is the sum of
/// `released`, `held_by_ended` and the events that workers have.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub opened: u64,
    /// Not ended yet, those that wait included.
    pub open: u64,
    pub incomplete: u64,
    pub lost: [u64; Loss::ALL.len()],
    /// The bytes of the longest event that was longer than every ring it might go to; 0 if there was none.
    pub longest_too_large: u32,
    /// Events that a worker was told of. An event that is delivered again counts once.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Known to have arrived.
    pub delivered: u64,
    pub released: u64,
    /// Events that a worker had not given back when it ended. An event counts for each such worker.
    pub held_by_ended: u64,
    /// Events of `held_by_ended` that the bridge gave to another worker afterwards.
    pub delivered_again: u64,
    /// Were complete in spill memory: there was no room when their first segment came, or their worker ended.
    pub spilled: u64,
    /// Changes of credit words that were no credit.
    pub wrong_credits: u64,
    /// Workers that subscribed.
    pub workers: u64,
    /// From the first segment to the known arrival.
    pub latency: Histogram,
    /// From the known arrival to the credit.
    pub held: Histogram,
}

impl Counters {
    pub fn lost(&self, cause: Loss) -> u64 {
        self.lost[cause as usize]
    }

    pub fn lost_of_any_cause(&self) -> u64 {
        self.lost.iter().sum()
    }
}
