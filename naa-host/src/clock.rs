//! A clock that is cheap enough to be read each time a program tests for the end of a call.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::CallTimeout;

/// Reads the exact time only when the coarse time of the Linux kernel has advanced. The coarse time advances every 1 to
/// 10 ms, and reading it costs a third of reading the exact time. Even if a program tests in a tight loop whether a
/// call has ended, the clock seldom reads the exact time. If a program tests only once a second whether a call has
/// ended, the clock reads the exact time at each test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The coarse time of the Linux kernel at the last call of [`look`](Self::look). If `coarse` is `None`, the next
    /// call of `look` reads the exact time, even if the coarse time has not advanced.
    coarse: Option<Timespec>,
    now: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { coarse: None, now: Instant::now() }
    }

    /// Returns the exact time if the coarse time has advanced since the last call of this method, else `None`.
    pub(crate) fn look(&mut self) -> Option<Instant> {
        let coarse = Some(clock_gettime(ClockId::MonotonicCoarse));
        if coarse == self.coarse {
            return None;
        }
        self.coarse = coarse;
        self.now = Instant::now();
        Some(self.now)
    }

    /// Returns the time, which may be behind the exact time by up to one step of the coarse time (1 to 10 ms).
    pub(crate) fn now(&mut self) -> Instant {
        self.look();
        self.now
    }

    /// Makes the next call of [`look`](Self::look) read the exact time. Callers use this method after a wait that a
    /// timer may have ended. The coarse time may not have advanced during the wait.
    pub(crate) fn refresh(&mut self) {
        self.coarse = None;
    }
}

/// Returns the current time plus `limit`. A `limit` above [`CallTimeout::LONGEST`] counts as [`CallTimeout::LONGEST`],
/// so a program may pass [`Duration::MAX`].
pub(crate) fn after(limit: Duration) -> Instant {
    Instant::now() + limit.min(CallTimeout::LONGEST)
}

/// Returns `time` in the form that system calls of the Linux kernel take. A time of more than `i64::MAX` seconds
/// becomes a time of `i64::MAX` seconds.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;

    #[test]
    fn a_spinning_program_reads_the_time_once_a_tick() {
        let mut clock = Clock::new();
        let start = Instant::now();
        let (mut looks, mut reads) = (0_u32, 0_u32);
        while start.elapsed() < Duration::from_millis(100) {
            looks += 1;
            reads += u32::from(clock.look().is_some());
        }
        // The first call of `look` reads the exact time, and each advance of the coarse time causes one more reading.
        // The coarse time advances at most once in 1 ms, and so at most 101 times in this loop of 100 ms.
        assert!((1..=102).contains(&reads) && reads < looks, "{reads} of {looks}");
    }

    #[test]
    fn a_program_that_looks_now_and_then_gets_the_time_each_time() {
        let mut clock = Clock::new();
        for _ in 0..3 {
            sleep(Duration::from_millis(25));
            let before = Instant::now();
            assert!(clock.look().is_some_and(|now| now >= before));
        }
        clock.refresh();
        let before = Instant::now();
        assert!(clock.look().is_some_and(|now| now >= before), "whatever the coarse time is");
    }
}
