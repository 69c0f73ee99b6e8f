//! The boundary between two epochs: the first tick that the new calendar applies to.
//!
//! A plane splits an event when a tick from the boundary on reaches it before the new tables do. So the boundary is above every
//! tick that a sender can have reached by then. What a sender does later than its last sign of life is bounded by its rate:
//! it may be [`Margins::rate_factor`] times as fast as it ever was.

use std::time::Duration;

/// What is added to what is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// How many times faster than its highest known rate a sender may become. The default is 2.
    pub rate_factor: f64,
    /// How much later than another a sync may arrive. The default is 0.2 s.
    pub sync_delay: Duration,
    /// How far clocks of senders that number events together may be apart. The default is 12 ms.
    pub skew: Duration,
}

impl Default for Margins {
    fn default() -> Self {
        Self { rate_factor: 2.0, sync_delay: Duration::from_millis(200), skew: Duration::from_millis(12) }
    }
}

/// What is known of a sender by its syncs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sender {
    /// The tick of its newest sync.
    pub tick: u64,
    /// How long ago that came.
    pub age: Duration,
    /// Its highest known rate, in ticks per second.
    pub rate: f64,
}

impl Margins {
    /// The boundary for planes that tell the highest tick that they have routed. `rate` is the highest known one of all senders
    /// in ticks per second, `delay` the time from that answer until the last plane has the new tables.
    pub fn beyond_routed(&self, highest: u64, rate: f64, delay: Duration) -> u64 {
        self.beyond_leap(highest, 0.0, rate, delay)
    }

    /// Like [`Self::beyond_routed`], for senders whose next event may be `leap` ticks ahead of the newest one whatever the rate is. The
    /// boundary allows for such a leap or for a higher rate, whichever is more.
    pub fn beyond_leap(&self, highest: u64, leap: f64, rate: f64, delay: Duration) -> u64 {
        // The boundary is the lowest tick that cannot be reached: a part of a tick does not count. A product that is no number, or
        // negative, counts as 0, and one beyond all ticks as the highest.
        let known = rate * delay.as_secs_f64();
        let ticks = (self.rate_factor * known).max(leap + known) as u64;
        highest.saturating_add(ticks).saturating_add(1)
    }

    /// The boundary for planes that tell nothing, from the newest sync of each sender. `delay` is the time until the last plane
    /// has the new tables. `None` if there is no sender.
    pub fn beyond_syncs(&self, senders: impl IntoIterator<Item = Sender>, delay: Duration) -> Option<u64> {
        let beyond = |sender: Sender| {
            let time =
                sender.age.saturating_add(self.sync_delay).saturating_add(delay).saturating_add(self.skew);
            self.beyond_routed(sender.tick, sender.rate, time)
        };
        senders.into_iter().map(beyond).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_a_plane_has_routed_is_passed_by_what_a_sender_may_do_meanwhile() {
        let margins = Margins::default();
        assert_eq!(margins.beyond_routed(1000, 100.0, 25 * MS), 1006);
        assert_eq!(margins.beyond_routed(1000, 101.0, 25 * MS), 1006);
        assert_eq!(margins.beyond_routed(1000, 120.0, 25 * MS), 1007);
        assert_eq!(margins.beyond_routed(1000, 0.0, 25 * MS), 1001);
        assert_eq!(margins.beyond_leap(1000, 2.5, 90.0, 25 * MS), 1005);
        assert_eq!(margins.beyond_leap(1000, 3.5, 90.0, 25 * MS), 1006);
        let wary = Margins { rate_factor: 10.0, ..margins };
        assert_eq!(wary.beyond_routed(1000, 100.0, 25 * MS), 1026);
    }

    #[test]
    fn without_planes_that_tell_it_each_sender_is_taken_at_its_newest_sync() {
        let margins = Margins::default();
        let of = |tick, age, rate| Sender { tick, age, rate };
        // 2 * 1000 ticks a second for 300 + 200 + 50 + 12 ms.
        assert_eq!(margins.beyond_syncs([of(5000, 300 * MS, 1000.0)], 50 * MS), Some(6125));
        let both = [of(5000, 300 * MS, 1000.0), of(6200, Duration::ZERO, 0.0)];
        assert_eq!(margins.beyond_syncs(both, 50 * MS), Some(6201));
        assert_eq!(margins.beyond_syncs([], 50 * MS), None);
    }

    #[test]
    fn no_figure_is_too_large_or_too_odd() {
        let margins = Margins { rate_factor: f64::MAX, ..Margins::default() };
        assert_eq!(margins.beyond_routed(1, f64::MAX, Duration::MAX), u64::MAX);
        assert_eq!(margins.beyond_routed(u64::MAX, 1.0, MS), u64::MAX);
        assert_eq!(margins.beyond_routed(7, f64::NAN, MS), 8);
        assert_eq!(margins.beyond_routed(7, -1.0, MS), 8);
        let old = Sender { tick: 1, age: Duration::MAX, rate: 0.0 };
        assert_eq!(margins.beyond_syncs([old], Duration::MAX), Some(2));
    }
}
