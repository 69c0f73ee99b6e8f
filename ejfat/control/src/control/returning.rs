//! How long a worker has to wait for events after it stopped being ready. Without a wait, a worker that is ready and not ready in turns
//! would cause a new epoch each time.

use std::time::Duration;

use ejfat::Time;

/// The wait after a worker stopped being ready for the first time. Each further time the wait is twice as long.
const FIRST: Duration = Duration::from_millis(250);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(8);
/// After a worker was ready for this long, its next wait is [`FIRST`] again.
const CALM: Duration = Duration::from_secs(60);

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returning {
    /// The last time at which the worker stopped being ready, and how long it has to wait from then on.
    stopped: Option<(Time, Duration)>,
}

impl Returning {
    /// Notes that the worker is not ready any more.
    pub(super) fn stop(&mut self, now: Time) {
        let again = self.stopped.filter(|(then, _)| now < *then + CALM);
        let wait = again.map_or(FIRST, |(_, wait)| (2 * wait).min(LONGEST));
        self.stopped = Some((now, wait));
    }

    /// Whether the worker may get events: its wait is over, or it has always been ready.
    pub(super) fn may(&self, now: Time) -> bool {
        self.stopped.is_none_or(|(then, wait)| now >= then + wait)
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
            worker.stop(now);
            let then = now;
            while !worker.may(now) {
                now = now + Duration::from_millis(50);
            }
            waited.push((now.0 - then.0) / 1_000_000);
        }
        assert_eq!(waited, [250, 500, 1000, 2000, 4000, 8000, 8000]);
        now = now + CALM;
        worker.stop(now);
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
                worker.stop(now);
            }
            changes += u32::from(gets != gets_events);
            gets_events = gets;
        }
        assert!(changes <= 24, "{changes} changes in a minute");
    }
}
