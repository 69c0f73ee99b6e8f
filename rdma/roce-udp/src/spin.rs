//! Decides how long a progress owner polls without work before it sleeps.

use std::time::{Duration, Instant};

use verbs::WaitMode;

use crate::{engine::Turn, waiters::SPIN};

/// The state of one wait of the progress owner. After each turn, [`Spinner::after`] decides whether the thread makes
/// another turn or sleeps.
#[derive(Debug)]
pub(crate) struct Spinner {
    mode: WaitMode,
    last_busy: Instant,
    idle_turns: u32,
}

/// Records whether other threads need the core on which a wait polls. While other threads need the core, an adaptive
/// wait sleeps and does not poll. One of these threads may belong to a peer on the same machine, and polling would
/// delay the response of this peer.
///
/// A thread that yields its core to a busy thread gets the core back only some milliseconds later. At the next
/// wake-ups, the Linux kernel also prefers the busy thread. A wait can find out only by spinning whether the contention
/// has ended, and may lose some milliseconds each time. After contention was found, there is therefore a pause, in
/// which adaptive waits do not spin. If contention is found again just after the pause, the next pause is twice as
/// long, but not longer than [`Self::LONGEST`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuContention {
    /// The time until which adaptive waits do not spin, and the length of this pause in spinning.
    pause: Option<(Instant, Duration)>,
}

/// The next action of the progress owner after a turn of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Turn,
    /// Make another turn after other threads had a chance to run.
    YieldThenTurn,
    Sleep,
}

impl Spinner {
    /// A wait in the mode `Spin` yields to other threads each time it has made this number of idle turns.
    const TURNS_PER_YIELD: u32 = 64;

    pub(crate) fn new(mode: WaitMode, now: Instant) -> Self {
        Self { mode, last_busy: now, idle_turns: 0 }
    }

    pub(crate) fn after(&mut self, turn: &Turn, now: Instant, contention: &CpuContention) -> Next {
        if turn.busy {
            // The thread goes on polling: while packets arrive, polling costs less than a wake-up of the thread for
            // each packet.
            (self.last_busy, self.idle_turns) = (now, 0);
            return Next::Turn;
        }
        if turn.more {
            // This turn received only datagrams that belong to no connection, and more datagrams may be waiting, so
            // another turn follows at once. `last_busy` is not changed, because datagrams that belong to no connection
            // must not prolong the polling.
            return Next::Turn;
        }
        self.idle_turns = self.idle_turns.wrapping_add(1);
        match self.mode {
            WaitMode::Block => Next::Sleep,
            WaitMode::Spin if self.idle_turns.is_multiple_of(Self::TURNS_PER_YIELD) => Next::YieldThenTurn,
            WaitMode::Spin => Next::Turn,
            WaitMode::Adaptive if contention.lasts(now) || now - self.last_busy >= SPIN => Next::Sleep,
            WaitMode::Adaptive => Next::YieldThenTurn,
        }
    }
}

impl CpuContention {
    /// If a yield takes longer than this time, a busy thread has had the core. A yield takes about a microsecond if no
    /// other thread gets the core. The progress thread and other threads that soon sleep again take up to a tenth of a
    /// millisecond, and a busy thread takes some milliseconds.
    const LONG_YIELD: Duration = Duration::from_micros(400);
    /// The time for which adaptive waits do not spin after contention was found for the first time.
    const FIRST: Duration = Duration::from_millis(20);
    /// The longest time for which adaptive waits do not spin after contention was found.
    const LONGEST: Duration = Duration::from_millis(640);
    /// If a wait finds contention within this time after a pause in spinning, the next pause is twice as long, up to
    /// [`Self::LONGEST`]. If a wait finds contention later, the next pause has the length [`Self::FIRST`].
    const AGAIN: Duration = Duration::from_millis(5);

    /// Records that an adaptive wait yielded its core at `begin` and got it back at `end`.
    pub(crate) fn yielded(&mut self, begin: Instant, end: Instant) {
        if end.saturating_duration_since(begin) <= Self::LONG_YIELD {
            return;
        }
        let last = self.pause.filter(|(until, _)| begin < *until + Self::AGAIN);
        let time = last.map_or(Self::FIRST, |(_, time)| (time * 2).min(Self::LONGEST));
        self.pause = Some((end + time, time));
    }

    fn lasts(&self, now: Instant) -> bool {
        self.pause.is_some_and(|(until, _)| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(1);
    const IDLE: Turn = Turn { busy: false, more: false, blocked: false };
    const BUSY: Turn = Turn { busy: true, ..IDLE };
    const JUNK: Turn = Turn { more: true, ..IDLE };

    /// The number of idle turns until `spinner` sleeps, at most 1000.
    fn idle_turns(spinner: &mut Spinner, now: &mut Instant, contention: &CpuContention) -> usize {
        let mut idle = || {
            *now += STEP;
            spinner.after(&IDLE, *now, contention)
        };
        (0..1000).take_while(|_| idle() != Next::Sleep).count()
    }

    #[test]
    fn modes_spin_as_long_as_they_say() {
        let (start, contention) = (Instant::now(), CpuContention::default());
        for (mode, turns) in [(WaitMode::Block, 0), (WaitMode::Adaptive, 49), (WaitMode::Spin, 1000)] {
            let (mut spinner, mut now) = (Spinner::new(mode, start), start);
            assert_eq!(idle_turns(&mut spinner, &mut now, &contention), turns, "{mode:?}");
        }
    }

    #[test]
    fn traffic_prolongs_an_adaptive_spin() {
        let (start, contention) = (Instant::now(), CpuContention::default());
        let (mut spinner, mut now) = (Spinner::new(WaitMode::Adaptive, start), start + 40 * STEP);
        assert_eq!(spinner.after(&BUSY, now, &contention), Next::Turn);
        assert_eq!(idle_turns(&mut spinner, &mut now, &contention), 49);
    }

    #[test]
    fn junk_prolongs_nothing() {
        let (mut now, contention) = (Instant::now(), CpuContention::default());
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        for _ in 0..40 {
            now += STEP;
            assert_eq!(spinner.after(&JUNK, now, &contention), Next::Turn);
        }
        assert_eq!(idle_turns(&mut spinner, &mut now, &contention), 9);
    }

    #[test]
    fn a_contended_core_is_left_at_once_for_a_while() {
        let (mut now, mut contention) = (Instant::now(), CpuContention::default());
        contention.yielded(now, now + STEP);
        assert_eq!(idle_turns(&mut Spinner::new(WaitMode::Adaptive, now), &mut now, &contention), 49);
        // A thread that soon sleeps again, as the progress thread does, is no contention.
        contention.yielded(now - 100 * STEP, now);
        assert_eq!(idle_turns(&mut Spinner::new(WaitMode::Adaptive, now), &mut now, &contention), 49);
        contention.yielded(now - CpuContention::LONG_YIELD - STEP, now);
        assert_eq!(idle_turns(&mut Spinner::new(WaitMode::Adaptive, now), &mut now, &contention), 0);
        now += CpuContention::FIRST;
        assert_eq!(idle_turns(&mut Spinner::new(WaitMode::Adaptive, now), &mut now, &contention), 49);
    }

    #[test]
    fn contention_that_lasts_is_looked_for_ever_more_rarely() {
        let (mut now, mut contention) = (Instant::now(), CpuContention::default());
        let mut find_after = |pause: Duration| {
            // The yield takes 7 ms, because a busy thread keeps the core for some milliseconds.
            let begin = now + pause;
            now = begin + Duration::from_millis(7);
            contention.yielded(begin, now);
            contention.pause.unwrap().1.as_millis()
        };
        let mut pause = Duration::ZERO;
        for millis in [20, 40, 80, 160, 320, 640, 640] {
            assert_eq!(find_after(pause), millis);
            pause = Duration::from_millis(millis as u64);
        }
        assert_eq!(
            find_after(pause + CpuContention::AGAIN),
            20,
            "contention that comes later is another one"
        );
    }
}
