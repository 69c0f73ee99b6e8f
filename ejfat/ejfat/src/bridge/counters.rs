//! The counters of a dispatcher.

use super::Histogram;

named! {
    /// The cause for which a bridge lost an event. An event that the reassembler gave up does not count as lost.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(usize)]
    pub enum EventLossCause {
        /// No worker that may get the event was subscribed when the event was dropped.
        NoWorker = "no_worker",
        /// No ring had room for the event, and the back-pressure policy dropped the event.
        /// [`BackPressure::DropNewest`](super::BackPressure::DropNewest) drops every complete event for which no ring
        /// has room. [`BackPressure::Hold`](super::BackPressure::Hold) drops an event if more than
        /// [`Config::most_waiting`](super::Config::most_waiting) events wait.
        NoCredit = "no_credit",
        /// The event is longer than the ring of every worker that may get the event.
        TooLarge = "too_large",
        /// The event waited for room, and was dropped when a newer event began to wait.
        Displaced = "displaced",
        /// The event waited for room longer than [`Config::hold`](super::Config::hold).
        Expired = "expired",
        /// The event was being written into the ring of a worker that ended.
        WorkerEnded = "worker_ended",
    }

    /// All causes of loss, in the order of their discriminants.
    ALL;
    /// Returns the name of this cause in counters.
    name;
}

/// The counters of the events of a bridge. `opened` is the sum of `open`, `sent`, `incomplete` and all numbers in
/// `lost`. `sent` plus `delivered_again` is the sum of `released`, `held_by_ended` and the number of events that
/// subscribed workers have not released yet.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// The number of events of which at least one segment arrived.
    pub opened: u64,
    /// The number of events in reassembly and of complete events that wait for room.
    pub open: u64,
    /// The number of events that the reassembler gave up before they were complete.
    pub incomplete: u64,
    /// The number of lost events by cause. The index in the array is the discriminant of an [`EventLossCause`].
    pub lost: [u64; EventLossCause::ALL.len()],
    /// The length in bytes of the longest event that was lost as [`EventLossCause::TooLarge`], or 0 if no event was
    /// lost as `TooLarge`.
    pub longest_too_large: u32,
    /// The number of events that were announced to a worker. An event that is delivered again is not counted again.
    pub sent: u64,
    /// The sum of the lengths of all announced events, in bytes. An event that is delivered again is not counted again.
    pub sent_bytes: u64,
    /// The number of times that the bridge learned that an event has arrived at its worker.
    pub delivered: u64,
    /// The number of times that a worker released an event.
    pub released: u64,
    /// The number of events that a worker had not released when it ended. If several workers ended while they had the
    /// same event, the event is counted once for each of these workers.
    pub held_by_ended: u64,
    /// The number of times that an event of an ended worker was delivered again to another worker.
    pub delivered_again: u64,
    /// The number of events that became complete in spill memory. An event is in spill memory because no ring had room
    /// for the event when its first segment arrived, or because its worker ended.
    pub spilled: u64,
    /// The number of times that a credit word changed to a value that releases no event. Each ring slot has one credit
    /// word, into which the worker writes a credit to release an event.
    pub wrong_credits: u64,
    /// The number of workers that have subscribed, including workers that ended.
    pub workers: u64,
    /// The durations from the arrival of an event's first segment at the bridge to the arrival of the event at its
    /// worker. Each duration ends when the bridge learns that the event has arrived at its worker.
    pub latency: Histogram,
    /// The durations from the arrival of an event's last segment at the bridge to the arrival of the event at its
    /// worker. Each duration ends when the bridge learns that the event has arrived at its worker.
    pub delivery: Histogram,
    /// The durations from the arrival of an event at its worker to the release of the event. Each duration begins when
    /// the bridge learns of the arrival, and ends when the bridge learns of the release.
    pub held: Histogram,
}

impl Counters {
    /// Returns the number of events that were lost for one cause.
    pub fn lost(&self, cause: EventLossCause) -> u64 {
        self.lost[cause as usize]
    }

    /// Returns the number of all lost events.
    pub fn lost_of_any_cause(&self) -> u64 {
        self.lost.iter().sum()
    }
}
