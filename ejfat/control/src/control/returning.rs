//! When a worker gets events again that got none for a while: one whose readiness comes and goes would make an epoch each time.

use std::time::Duration;

use ejfat::Time;

/// It waits so long after the first time that it lost its events, and twice as long after each further one.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(8);
/// A worker that did not lose them for so long begins anew.
const CALM: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returning {
    /// When it lost its events last, and how long it waits since then.
    lost: Option<(Time, Duration)>,
}

impl Returning {
    /// It gets no events from now on.
    pub(super) fn lose(&mut self, now: Time) {
        let again = self.lost.filter(|(then, _)| now < *then + CALM);
        let wait = again.map_or(FIRST, |(_, wait)| (2 * wait).min(LONGEST));
        self.lost = Some((now, wait));
    }

    /// Whether it may get events.
    pub(super) fn may(&self, now: Time) -> bool {
        self.lost.is_none_or(|(then, wait)| now >= then + wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_comes_and_goes_waits_longer_each_time_until_it_was_calm() {
        let mut worker = Returning::default();
        let mut now = Time(0);
        assert!(worker.may(now));
        let mut waited = Vec::new();
        for _ in 0..7 {
            worker.lose(now);
            let then = now;
            while !worker.may(now) {
                now = now + Duration::from_millis(50);
            }
            waited.push((now.0 - then.0) / 1_000_000);
        }
        assert_eq!(waited, [250, 500, 1000, 2000, 4000, 8000, 8000]);
        now = now + CALM;
        worker.lose(now);
        assert!(!worker.may(now + Duration::from_millis(249)) && worker.may(now + FIRST));
    }

    #[test]
    fn readiness_that_changes_every_tenth_of_a_second_makes_few_changes() {
        let mut worker = Returning::default();
        let (mut gets_events, mut changes) = (true, 0);
        for step in 0..600 {
            let now = Time(step * 100_000_000);
            let gets = step % 2 == 0 && worker.may(now);
            if gets_events && !gets {
                worker.lose(now);
            }
            changes += u32::from(gets != gets_events);
            gets_events = gets;
        }
        assert!(changes <= 24, "{changes} changes in a minute");
    }
}
