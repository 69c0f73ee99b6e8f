//! A clock that may be looked at each time a program tests for the end of a call.

use std::time::Instant;

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Tells when time has gone on by a tick of the kernel, 1 to 10 ms. The kernel's tick costs a third of the time itself,
/// so a program that tests all the time pays little, and one that tests once a second is served each time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The tick at the last look; `None`: the next look reads the time whatever the tick is.
    tick: Option<Timespec>,
    now: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { tick: None, now: Instant::now() }
    }

    /// The time, if a tick has passed since the last look.
    pub(crate) fn look(&mut self) -> Option<Instant> {
        let tick = Some(clock_gettime(ClockId::MonotonicCoarse));
        if tick == self.tick {
            return None;
        }
        self.tick = tick;
        self.now = Instant::now();
        Some(self.now)
    }

    /// The time, at most a tick ago.
    pub(crate) fn now(&mut self) -> Instant {
        self.look();
        self.now
    }

    /// The next look reads the time: a wait ended because of it.
    pub(crate) fn rang(&mut self) {
        self.tick = None;
    }
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
        // Ticks of 1 ms make 101.
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
        clock.rang();
        let before = Instant::now();
        assert!(clock.look().is_some_and(|now| now >= before), "whatever the tick is");
    }
}
