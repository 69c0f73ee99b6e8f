//! What the planes sent, in packets and in events.

use std::time::Duration;

use crate::calendar::MemberId;

/// Counters of all planes together.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlaneCounters<'a> {
    /// The packets that were sent to each member since the planes began. A member may be missing.
    pub packets: &'a [(MemberId, u64)],
    /// Ticks per second of all senders; 0 if that is unknown. It stands for the rate of events until workers have
    /// counted some.
    pub ticks: f64,
}

/// Periods that are remembered, which bounds the age of workers' states.
pub(super) const PERIODS: usize = 8;
/// What is left of a window's sums after a period.
const KEPT: f64 = 0.95;
/// Events, and packets, before their ratio says something.
const ENOUGH: f64 = 50.0;

/// What the planes sent to a member, and what it says that it got.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sent {
    before: Option<u64>,
    /// Packets per second in the newest periods, the newest first.
    rates: [f64; PERIODS],
    /// Events since the newest period.
    arrived: u64,
    /// Sums over some periods, from the first event that the member counted.
    counted: f64,
    sent: f64,
}

impl Sent {
    /// Adds events that the worker says it got.
    pub(super) fn add_arrived(&mut self, events: u64) {
        self.arrived = self.arrived.saturating_add(events);
    }

    /// Ends a period with the counter of the planes, if they told one. Returns the packets of the period.
    pub(super) fn period(&mut self, counter: Option<u64>, period: Duration) -> u64 {
        // A plane that began again, or is missing, tells nothing of this period; so the rate is taken to be the same.
        let packets = match (self.before, counter) {
            (Some(before), Some(counter)) => counter.checked_sub(before),
            _ => None,
        };
        self.before = counter;
        let rate = packets.map_or(self.rates[0], |packets| packets as f64 / period.as_secs_f64());
        self.rates.rotate_right(1);
        self.rates[0] = rate;
        let arrived = std::mem::take(&mut self.arrived);
        if let Some(packets) = packets {
            self.counted = KEPT * self.counted + arrived as f64;
            self.sent = if self.counted > 0.0 { KEPT * self.sent + packets as f64 } else { 0.0 };
        }
        packets.unwrap_or(0)
    }

    /// Packets per second in the newest period.
    pub(super) fn rate(&self) -> f64 {
        self.rates[0]
    }

    /// The least packets per second in a number of the newest periods.
    pub(super) fn least_rate(&self, periods: usize) -> f64 {
        self.rates[..periods.clamp(1, PERIODS)].iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Events for each packet, as far as the worker tells.
    pub(super) fn ratio(&self) -> Option<f64> {
        (self.counted >= ENOUGH && self.sent >= ENOUGH).then(|| self.counted / self.sent)
    }
}

/// The middle one of ratios, which a minority of false ones moves little.
pub(super) fn median(ratios: &mut [f64]) -> Option<f64> {
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.len() / 2;
    match ratios.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(ratios[middle]),
        _ => Some(f64::midpoint(ratios[middle - 1], ratios[middle])),
    }
}
