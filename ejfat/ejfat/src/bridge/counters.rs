//! The counters of a dispatcher.

use super::Histogram;

/// The cause for which an event was not delivered, although the reassembler did not give it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Loss {
    /// No subscribed worker takes such events.
    NoWorker,
    /// No worker had room, and the event could not wait.
    NoCredit,
    /// The event is longer than every ring that it may go to.
    TooLarge,
    /// The event waited, and a newer one took its place.
    Displaced,
    /// The event waited too long for room.
    Expired,
    /// The event was being written into the ring of a worker that ended.
    WorkerEnded,
}

impl Loss {
    pub const ALL: [Self; 6] =
        [Self::NoWorker, Self::NoCredit, Self::TooLarge, Self::Displaced, Self::Expired, Self::WorkerEnded];

    /// Returns the name of this cause in counters.
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
    /// Events that have not ended yet, including those that wait.
    pub open: u64,
    pub incomplete: u64,
    pub lost: [u64; Loss::ALL.len()],
    /// The bytes of the longest event that was longer than every ring it might go to; 0 if there was none.
    pub longest_too_large: u32,
    /// Events that were announced to a worker. An event that is delivered again counts once.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Events that are known to have arrived at a worker.
    pub delivered: u64,
    pub released: u64,
    /// Events that a worker had not released when it ended. An event counts for each such worker.
    pub held_by_ended: u64,
    /// Events of `held_by_ended` that the bridge gave to another worker afterwards.
    pub delivered_again: u64,
    /// Events that became complete in spill memory, because there was no room when their first segment arrived, or
    /// because their worker ended.
    pub spilled: u64,
    /// Changes of credit words that were no valid credit.
    pub wrong_credits: u64,
    /// Workers that subscribed.
    pub workers: u64,
    /// The time from the first segment of an event until it is known to have arrived.
    pub latency: Histogram,
    /// The time from the known arrival of an event until its release.
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
