//! Threads that wait for completions or CM events without being the progress owner.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use verbs::{WaitMode, WaitOn};

use crate::sync::{AtomicU8, Thread, current, park, park_timeout};

const WAITING: u8 = 0;
/// A completion or CM event for which the waiter waits can be polled.
const READY: u8 = 1;
/// The waiter becomes the progress owner.
const DRIVE: u8 = 2;
const INTERRUPTED: u8 = 3;

/// The time for which an adaptive wait spins before it sleeps.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct Waiter {
    on: WaitOn,
    /// True if there are at least as many other waiters as spare cores ([`Waiters::spare_cores`]). In an adaptive wait,
    /// this waiter then sleeps at once, because by spinning it would take the progress owner's core.
    contended: bool,
    state: AtomicU8,
    thread: Thread,
}

/// The reason why a waiter woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Ready,
    Drive,
    Interrupted,
    TimedOut,
}

impl Waiter {
    fn wake(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.thread.unpark();
    }

    fn notice(&self) -> Option<Notice> {
        match self.state.load(Ordering::Acquire) {
            READY => Some(Notice::Ready),
            DRIVE => Some(Notice::Drive),
            INTERRUPTED => Some(Notice::Interrupted),
            _ => None,
        }
    }

    /// Sleeps or spins until another thread calls [`Self::wake`] or until `deadline`, and returns the reason for the
    /// end of the wait.
    pub(crate) fn wait(&self, mode: WaitMode, deadline: Option<Instant>) -> Notice {
        let start = Instant::now();
        loop {
            if let Some(notice) = self.notice() {
                return notice;
            }
            let now = Instant::now();
            if deadline.is_some_and(|d| now >= d) {
                return Notice::TimedOut;
            }
            let spin = match mode {
                WaitMode::Spin => true,
                WaitMode::Adaptive => !self.contended && now - start < SPIN,
                WaitMode::Block => false,
            };
            match deadline {
                // A spinning waiter yields, because the progress owner may need this waiter's core.
                _ if spin => std::thread::yield_now(),
                Some(deadline) => park_timeout(deadline - now),
                None => park(),
            }
        }
    }
}

/// The waiting threads of a device except the progress owner, and the calls of [`Waiters::interrupt`] that have not
/// ended a wait yet.
#[derive(Debug)]
pub(crate) struct Waiters {
    waiting: Vec<Arc<Waiter>>,
    /// The number of cores that are left when the progress owner uses one core.
    spare_cores: usize,
    interrupts: Vec<WaitOn>,
}

impl Default for Waiters {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { waiting: Vec::new(), spare_cores: cores - 1, interrupts: Vec::new() }
    }
}

impl Waiters {
    pub(crate) fn join(&mut self, on: WaitOn) -> Arc<Waiter> {
        let contended = self.waiting.len() >= self.spare_cores;
        let waiter = Arc::new(Waiter { on, contended, state: AtomicU8::new(WAITING), thread: current() });
        self.waiting.push(waiter.clone());
        waiter
    }

    /// Removes a waiter whose time limit has passed. If another thread woke the waiter just before the removal, returns
    /// the reason for which it woke the waiter.
    pub(crate) fn leave(&mut self, waiter: &Arc<Waiter>) -> Option<Notice> {
        self.waiting.retain(|w| !Arc::ptr_eq(w, waiter));
        waiter.notice()
    }

    /// Wakes the waiters whose completions or CM events can be polled. `ready` returns true for the [`WaitOn`] of such
    /// a waiter.
    pub(crate) fn notify(&mut self, ready: impl Fn(&WaitOn) -> bool) {
        self.waiting.retain(|waiter| {
            let done = ready(&waiter.on);
            if done {
                waiter.wake(READY);
            }
            !done
        });
    }

    /// Makes a waiting thread the progress owner. Returns false if no thread waits.
    pub(crate) fn hand_over(&mut self) -> bool {
        let next = self.waiting.pop();
        if let Some(waiter) = &next {
            waiter.wake(DRIVE);
        }
        next.is_some()
    }

    /// Ends one wait on `on`. If a thread in `waiting` waits on `on`, the wait of this thread ends. Otherwise the call
    /// is remembered until [`Self::take_interrupt`] is called for `on`, or until [`Self::forget`] forgets the call.
    /// Several remembered calls end only one wait.
    pub(crate) fn interrupt(&mut self, on: WaitOn) {
        if let Some(at) = self.waiting.iter().position(|w| w.on == on) {
            self.waiting.swap_remove(at).wake(INTERRUPTED);
        } else if !self.interrupts.contains(&on) {
            self.interrupts.push(on);
        }
    }

    /// Forgets the calls of [`Self::interrupt`] that are remembered for a destroyed completion queue or channel. `gone`
    /// must return true for a [`WaitOn`] that contains such a destroyed object.
    pub(crate) fn forget(&mut self, gone: impl Fn(&WaitOn) -> bool) {
        self.interrupts.retain(|on| !gone(on));
    }

    /// Returns true if a wait on `on` must end at once, because [`Self::interrupt`] was called and found no waiter that
    /// waited on `on`. The method then forgets this call of [`Self::interrupt`], because one call must end only one
    /// wait.
    pub(crate) fn take_interrupt(&mut self, on: &WaitOn) -> bool {
        let at = self.interrupts.iter().position(|i| i == on);
        at.map(|at| self.interrupts.swap_remove(at)).is_some()
    }
}
