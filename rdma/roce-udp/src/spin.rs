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
    last_turn: Instant,
    idle_turns: u32,
}

/// Records whether other threads need the core on which a wait polls. While other threads need the core, an adaptive
/// wait sleeps and does not poll. One of these threads may belong to a peer on the same machine, and polling would
/// delay the response of this peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CpuContention {
    until: Option<Instant>,
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
    /// If a turn of the engine without packets takes longer than this time, another thread has had the core meanwhile.
    /// A turn without packets usually takes a microsecond if no other thread interrupts it.
    const LONG_TURN: Duration = Duration::from_micros(25);
    /// The time for which a core counts as contended after another thread has interrupted the spinning thread on this
    /// core.
    const CONTENDED: Duration = Duration::from_millis(20);
    /// A wait in the mode `Spin` yields to other threads each time it has made this number of idle turns.
    const TURNS_PER_YIELD: u32 = 64;

    pub(crate) fn new(mode: WaitMode, now: Instant) -> Self {
        Self { mode, last_busy: now, last_turn: now, idle_turns: 0 }
    }

    pub(crate) fn after(&mut self, turn: &Turn, now: Instant, contention: &mut CpuContention) -> Next {
        let took = now - self.last_turn;
        self.last_turn = now;
        if turn.busy {
            // While packets arrive, polling costs less than a wake-up of the thread for each packet.
            (self.last_busy, self.idle_turns) = (now, 0);
            return Next::Turn;
        }
        if turn.more {
            // The turn received only datagrams that belong to no connection, and more datagrams may be waiting.
            // `last_busy` is not changed, because datagrams that belong to no connection must not prolong the polling.
            return Next::Turn;
        }
        self.idle_turns = self.idle_turns.wrapping_add(1);
        let next = self.when_idle(took, now, contention);
        if next == Next::Sleep {
            // The duration `took` of the next idle turn will include the sleep of the thread. `idle_turns` is set to 0,
            // because `when_idle` ignores the duration of the first idle turn.
            self.idle_turns = 0;
        }
        next
    }

    fn when_idle(&self, took: Duration, now: Instant, contention: &mut CpuContention) -> Next {
        match self.mode {
            WaitMode::Block => Next::Sleep,
            WaitMode::Spin if self.idle_turns.is_multiple_of(Self::TURNS_PER_YIELD) => Next::YieldThenTurn,
            WaitMode::Spin => Next::Turn,
            WaitMode::Adaptive => {
                if self.idle_turns > 1 && took > Self::LONG_TURN {
                    contention.until = Some(now + Self::CONTENDED);
                }
                let contended = contention.until.is_some_and(|until| now < until);
                if contended || now - self.last_busy >= SPIN { Next::Sleep } else { Next::YieldThenTurn }
            }
        }
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
    fn idle_turns(
        spinner: &mut Spinner,
        now: &mut Instant,
        step: Duration,
        contention: &mut CpuContention,
    ) -> usize {
        let mut idle = || {
            *now += step;
            spinner.after(&IDLE, *now, contention)
        };
        (0..1000).take_while(|_| idle() != Next::Sleep).count()
    }

    #[test]
    fn modes_spin_as_long_as_they_say() {
        let (start, mut contention) = (Instant::now(), CpuContention::default());
        for (mode, turns) in [(WaitMode::Block, 0), (WaitMode::Adaptive, 49), (WaitMode::Spin, 1000)] {
            let (mut spinner, mut now) = (Spinner::new(mode, start), start);
            assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), turns, "{mode:?}");
        }
    }

    #[test]
    fn traffic_prolongs_an_adaptive_spin() {
        let (start, mut contention) = (Instant::now(), CpuContention::default());
        let (mut spinner, mut now) = (Spinner::new(WaitMode::Adaptive, start), start + 40 * STEP);
        assert_eq!(spinner.after(&BUSY, now, &mut contention), Next::Turn);
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 49);
    }

    #[test]
    fn junk_prolongs_nothing() {
        let (mut now, mut contention) = (Instant::now(), CpuContention::default());
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        for _ in 0..40 {
            now += STEP;
            assert_eq!(spinner.after(&JUNK, now, &mut contention), Next::Turn);
        }
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 9);
    }

    #[test]
    fn ones_own_sleep_is_no_crowd() {
        let (mut now, mut contention) = (Instant::now(), CpuContention::default());
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 49);
        // The thread is woken after 200 us although nothing is ready, and sleeps again.
        now += Duration::from_micros(200);
        assert_eq!(spinner.after(&IDLE, now, &mut contention), Next::Sleep);
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 49);
    }

    #[test]
    fn a_crowded_core_is_left_at_once_for_a_while() {
        let (mut now, mut contention) = (Instant::now(), CpuContention::default());
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        assert_eq!(idle_turns(&mut spinner, &mut now, Duration::from_micros(30), &mut contention), 1);
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 0);
        now += Spinner::CONTENDED;
        let mut spinner = Spinner::new(WaitMode::Adaptive, now);
        assert_eq!(idle_turns(&mut spinner, &mut now, STEP, &mut contention), 49);
    }
}
