//! A device: the engine, the engine's lock, and the choice of the progress owner. The progress owner is the thread that
//! makes the engine's turns.

use std::{
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use naa_udp::{Ready, Waker, wait_beside};
use verbs::{DeviceAttr, Error, WaitMode, WaitOn, Wake};

use crate::{
    engine::{Engine, Turn},
    progress_owner::{OwnerSnapshot, ProgressOwner, ProgressOwnerWord, TAKEOVER},
    spin::{CpuContention, Next, Spinner},
    sys::fork,
    takeover_timer::TakeoverTimer,
    waiters::Notice,
};

/// The maximum time by which the progress owner may sleep past a timer that another thread sets during the sleep. If
/// the sleep would end more than this time after the timer is due, the thread that sets the timer wakes the progress
/// owner. The progress owner then sleeps again, but only until the timer is due.
const SLACK: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct EmbeddedDevice {
    pub(crate) attr: DeviceAttr,
    /// The reason why the device cannot listen; `None` if it can.
    pub(crate) cannot_listen: Option<String>,
    state: Mutex<State>,
    role: ProgressOwnerWord,
    /// The number of turns that callers made as progress owner: in a turn, a thread receives datagrams, handles due
    /// timers and sends packets. While the number of turns does not change, the progress owner is stalled or has
    /// nothing to do.
    rounds: AtomicU32,
    /// The number of threads that are about to take the lock; a spinning progress owner lets these threads go first.
    contenders: AtomicU32,
    /// The waker that ends the sleep of a caller that is the progress owner.
    caller_waker: Waker,
    /// The waker that ends the sleep of the progress thread.
    thread_waker: Waker,
    /// The timer that wakes the progress thread when no thread has been the progress owner for a while.
    takeover: TakeoverTimer,
    /// The time at which the device was opened.
    opened: Instant,
    closing: AtomicBool,
    forks: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    /// Describes the sleep of the progress owner in [`EmbeddedDevice::sleep`]; `None` while the progress owner does not
    /// sleep there. The first value is the time at which the sleep ends at the latest, or `None` if the sleep has no
    /// time limit. The second value names the objects for which the progress owner waits.
    asleep: Option<(Option<Instant>, WaitOn)>,
    blocked: bool,
    contention: CpuContention,
}

/// What remains to be done after a call of the driver interface has used the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// Notify the threads that wait for a completion queue or a channel that has become ready.
    Notify,
    /// Send the packets that are due, and then notify threads as `Notify` does.
    Transmit,
}

impl EmbeddedDevice {
    pub(crate) fn start(
        engine: Engine,
        attr: DeviceAttr,
        cannot_listen: Option<String>,
    ) -> Result<Arc<Self>, Error> {
        let waker = || Waker::new().map_err(|e| Error::io("cannot create an eventfd", e));
        let device = Arc::new(Self {
            attr,
            cannot_listen,
            state: Mutex::new(State {
                engine,
                asleep: None,
                blocked: false,
                contention: CpuContention::default(),
            }),
            role: ProgressOwnerWord::new(),
            rounds: AtomicU32::new(0),
            contenders: AtomicU32::new(0),
            caller_waker: waker()?,
            thread_waker: waker()?,
            takeover: TakeoverTimer::new().map_err(|e| Error::io("cannot create a timerfd", e))?,
            opened: Instant::now(),
            closing: AtomicBool::new(false),
            forks: fork::generation(),
            thread: Mutex::new(None),
        });
        let shared = device.clone();
        let thread = std::thread::Builder::new()
            .name("naa-progress".into())
            .spawn(move || shared.progress())
            .map_err(|e| Error::io("cannot start the progress thread", e))?;
        *device.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(device)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is taken as well: the panic of one thread is a bug, but must not stop the sessions of other
        // threads.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the engine for a call of the driver interface. In a forked child process, `enter` fails without trying to
    /// take the lock: the lock can be held by a thread that exists only in the parent process.
    fn enter(&self) -> Result<MutexGuard<'_, State>, Error> {
        if fork::generation() != self.forks {
            return Err(Error::Forked);
        }
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let state = self.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        Ok(state)
    }

    /// Executes `call` on the engine, and then does what `then` says.
    pub(crate) fn call<T>(&self, then: Then, call: impl FnOnce(&mut Engine) -> T) -> Result<T, Error> {
        let mut state = self.enter()?;
        let result = call(&mut state.engine);
        self.finish(&mut state, then);
        Ok(result)
    }

    fn finish(&self, state: &mut State, then: Then) {
        let turn = match then {
            Then::Nothing => return,
            Then::Notify => Turn::default(),
            Then::Transmit => state.engine.transmit(),
        };
        state.engine.notify();
        state.blocked |= turn.blocked;
        let Some((until, on)) = state.asleep else { return };
        let timer = state.engine.deadline();
        let earlier = timer.is_some_and(|timer| until.is_none_or(|until| timer + SLACK < until));
        if earlier || turn.more || turn.blocked || state.engine.ready(&on) {
            state.asleep = None;
            self.waker(self.role.get().0).wake();
        }
    }

    /// Makes the caller the progress owner; returns false if another caller is the progress owner. If the progress
    /// thread was the progress owner, it is woken and stops making turns.
    fn take_role(&self, state: &mut State) -> bool {
        let taken = self.role.take();
        if taken == Some(ProgressOwner::Thread) {
            state.asleep = None;
            self.thread_waker.wake();
        }
        taken.is_some()
    }

    pub(crate) fn wait(
        &self,
        on: WaitOn,
        mode: WaitMode,
        beside: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        /// The time limit of a wait that has a file descriptor `beside` while another thread is the progress owner. The
        /// progress owner does not watch `beside`. The wait therefore ends after at most this time, so that the program
        /// can check `beside` itself.
        const TURN: Duration = Duration::from_micros(500);
        let mut state = self.enter()?;
        // An unknown completion queue or channel is refused, because a wait for it could never end.
        on.cq.map_or(Ok(0), |cq| state.engine.endpoint.poll_cq(cq, &mut []))?;
        on.channel.map_or(Ok(()), |channel| state.engine.endpoint.check_channel(channel))?;
        if state.engine.ready(&on) {
            return Ok(Wake::Ready);
        }
        if state.engine.waiters.take_interrupt(&on) {
            return Ok(Wake::Interrupted);
        }
        if self.take_role(&mut state) {
            return Ok(self.drive(state, on, mode, beside, deadline));
        }
        let waiter = state.engine.waiters.join(on);
        drop(state);
        let turn = beside.map(|_| Instant::now() + TURN);
        let deadline = deadline.into_iter().chain(turn).min();
        let mut notice = waiter.wait(mode, deadline);
        if notice == Notice::TimedOut {
            // Another thread may have left a notice for this waiter just before the time limit. Such a notice must not
            // be ignored, because the notice `Drive` makes this thread the progress owner.
            notice = self.enter()?.engine.waiters.leave(&waiter).unwrap_or(notice);
        }
        Ok(match notice {
            Notice::Ready => Wake::Ready,
            Notice::Interrupted => Wake::Interrupted,
            Notice::TimedOut => Wake::TimedOut,
            Notice::Drive => self.drive(self.lock(), on, mode, beside, deadline),
        })
    }

    /// Makes turns of the engine until an object of `on` is ready, another thread ends the wait by
    /// `interrupt`, `beside` is readable, or `deadline` has passed. The calling thread is the progress owner
    /// when the function is called, and is not the progress owner any more when the function returns. The first turn is
    /// made with the lock `state` that the caller holds.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        on: WaitOn,
        mode: WaitMode,
        beside: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Wake {
        let mut spinner = Spinner::new(mode, Instant::now());
        loop {
            let (turn, now) = state.turn(&on);
            self.rounds.fetch_add(1, Ordering::Relaxed);
            let wake = if state.engine.ready(&on) {
                Some(Wake::Ready)
            } else if state.engine.waiters.take_interrupt(&on) {
                Some(Wake::Interrupted)
            } else {
                deadline.is_some_and(|d| now >= d).then_some(Wake::TimedOut)
            };
            if let Some(wake) = wake {
                self.stop_driving(&mut state, now);
                return wake;
            }
            let next = spinner.after(&turn, now, &state.contention);
            if next == Next::Sleep {
                if self.sleep(state, ProgressOwner::Caller, (on, beside), deadline) {
                    self.stop_driving(&mut self.lock(), Instant::now());
                    return Wake::Ready;
                }
                state = self.lock();
                continue;
            }
            drop(state);
            self.yield_to_contenders();
            if next == Next::YieldThenTurn {
                let begin = Instant::now();
                std::thread::yield_now();
                // The duration of a yield shows whether other threads need this core. If other threads need it,
                // adaptive waits sleep instead of spinning. A wait in the mode `Spin` never sleeps, so its yields are
                // not recorded.
                let end = (mode == WaitMode::Adaptive).then(Instant::now);
                state = self.lock();
                end.inspect(|end| state.contention.yielded(begin, *end));
            } else {
                state = self.lock();
            }
        }
    }

    fn stop_driving(&self, state: &mut State, now: Instant) {
        let now = now.saturating_duration_since(self.opened).as_nanos() as u64;
        if self.role.pass_on(&mut state.engine.waiters, now) {
            self.takeover.set(TAKEOVER);
        }
    }

    /// Yields until the other threads that want the lock have taken it, but at most 64 times. A mutex does not give the
    /// lock to the thread that has waited the longest. Without yields, the calling thread could take the lock again and
    /// again while other threads wait for it.
    fn yield_to_contenders(&self) {
        for _ in 0..64 {
            if self.contenders.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
    }

    /// Makes the calling thread, which is the progress owner, sleep. The sleep ends when the socket or the file
    /// descriptor `beside` becomes readable, or when the thread's waker is used. If the socket's send buffer was full,
    /// the sleep also ends when the socket becomes writable. At the latest, the sleep ends when a timer of the engine
    /// becomes due, or at the time `until`. `role` says if the calling thread is the progress thread or a caller.
    /// Returns true if `beside` became readable.
    fn sleep(
        &self,
        mut state: MutexGuard<'_, State>,
        role: ProgressOwner,
        (on, beside): (WaitOn, Option<BorrowedFd<'_>>),
        until: Option<Instant>,
    ) -> bool {
        let wake_at = state.engine.deadline().into_iter().chain(until).min();
        state.asleep = Some((wake_at, on));
        let want_write = state.blocked;
        // The device's lock is released during the sleep, so that other threads can use the engine. The sleep needs
        // only the engine's UDP socket (`port`). The sleeping thread has its own reference to this socket, so the
        // socket stays open during the sleep.
        let port = state.engine.port.clone();
        drop(state);
        let timeout = wake_at.map(|at| at.saturating_duration_since(Instant::now()));
        let waker = self.waker(role);
        let ready = wait_beside(&[&port], Some(waker), beside, want_write, timeout);
        let ready = ready.unwrap_or_default();
        if ready.woken {
            waker.drain();
        }
        let mut state = self.lock();
        // While the progress thread slept, a caller may have become the progress owner. If this caller sleeps now,
        // `asleep` describes the sleep of the caller, so the progress thread must not clear `asleep`.
        if self.role.get().0 == role {
            state.asleep = None;
        }
        ready.beside
    }

    /// Runs the progress thread, so that one-sided operations go on while the application computes. The thread becomes
    /// the progress owner when no thread is the progress owner and the takeover timer has expired or the thread's waker
    /// was used.
    fn progress(&self) {
        /// While a caller is the progress owner, the progress thread checks once in this time whether the caller makes
        /// turns.
        const WATCHDOG: Duration = Duration::from_secs(1);
        self.takeover.set(TAKEOVER);
        let mut before = None;
        while !self.closing.load(Ordering::Acquire) {
            let timed_out = !self.sleep_as_thread(Some(WATCHDOG));
            self.role.timer_expired();
            let seen = (self.role.get(), self.rounds.load(Ordering::Relaxed));
            match seen.0.0 {
                ProgressOwner::None if self.role.change(ProgressOwner::None, ProgressOwner::Thread) => {
                    self.drive_as_thread();
                }
                ProgressOwner::Caller if timed_out && before == Some(seen) => self.stand_in(seen, WATCHDOG),
                _ => {}
            }
            before = Some(seen);
        }
    }

    /// Makes the progress thread sleep until its waker is used, the takeover timer expires or `time` has passed. Returns
    /// false in the last case.
    fn sleep_as_thread(&self, time: Option<Duration>) -> bool {
        let timer = Some(self.takeover.as_fd());
        let ready = wait_beside(&[], Some(&self.thread_waker), timer, false, time);
        let Ready { beside, woken, .. } = ready.unwrap_or_default();
        if woken {
            self.thread_waker.drain();
        }
        if beside {
            self.takeover.drain();
        }
        beside || woken
    }

    /// Makes turns in place of the progress owner, a caller that has made no turn for a while. The function returns when
    /// the caller makes turns again, when another thread is the progress owner, or when there was no work for `idle`.
    fn stand_in(&self, (owner, rounds): (OwnerSnapshot, u32), idle: Duration) {
        let mut last_busy = Instant::now();
        while self.role.get() == owner
            && self.rounds.load(Ordering::Relaxed) == rounds
            && !self.closing.load(Ordering::Acquire)
            && last_busy.elapsed() <= idle
        {
            let state = match self.state.try_lock() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
                // Another thread holds the engine's lock, so the progress thread cannot make a turn now. For example,
                // the progress owner can be stalled while it holds the lock.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(mut state) = state {
                if state.turn(&WaitOn::default()).0.busy {
                    last_busy = Instant::now();
                }
                // A sleeping progress owner is woken if one of the objects that it waits for is ready.
                self.finish(&mut state, Then::Transmit);
            }
            self.sleep_as_thread(Some(TAKEOVER));
        }
    }

    fn drive_as_thread(&self) {
        loop {
            let mut state = self.lock();
            if self.role.get().0 != ProgressOwner::Thread {
                return;
            }
            if self.closing.load(Ordering::Acquire) {
                self.role.change(ProgressOwner::Thread, ProgressOwner::None);
                return;
            }
            let (turn, _) = state.turn(&WaitOn::default());
            if turn.more || turn.busy {
                drop(state);
                self.yield_to_contenders();
                continue;
            }
            self.sleep(state, ProgressOwner::Thread, (WaitOn::default(), None), None);
        }
    }

    /// Waits until peers have confirmed the disconnects, at most for 300 ms. A disconnect request is sent again after
    /// 250 ms, because the first one may be lost. NAAICE's C servers never confirm a disconnect, so the function waits
    /// for the full 300 ms if such a server is the peer.
    fn wait_for_disconnects(&self) {
        const LONGEST: Duration = Duration::from_millis(300);
        const STEP: Duration = Duration::from_millis(2);
        let start = Instant::now();
        while start.elapsed() < LONGEST && self.lock().engine.endpoint.is_disconnecting() {
            let _ = self.wait(WaitOn::default(), WaitMode::Block, None, Some(Instant::now() + STEP));
        }
    }

    pub(crate) fn close(&self) {
        if fork::generation() != self.forks {
            return;
        }
        self.wait_for_disconnects();
        self.closing.store(true, Ordering::Release);
        self.thread_waker.wake();
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            // If the progress thread drops the last reference to the device, `close` runs on the progress thread. A
            // thread must not join itself.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

impl State {
    fn turn(&mut self, on: &WaitOn) -> (Turn, Instant) {
        let (turn, at) = self.engine.turn(on);
        self.blocked = turn.blocked;
        (turn, at)
    }
}

impl EmbeddedDevice {
    /// Returns the waker that ends the sleep of the progress owner. `role` says if the progress owner is the
    /// progress thread or a caller.
    fn waker(&self, role: ProgressOwner) -> &Waker {
        match role {
            ProgressOwner::Thread => &self.thread_waker,
            _ => &self.caller_waker,
        }
    }

    /// Arms the file descriptor for the objects `on`: it will become readable when a completion or a CM event of these
    /// objects can be polled. If one can already be polled, returns false and does not arm the file descriptor.
    pub(crate) fn arm(&self, on: WaitOn) -> Result<bool, Error> {
        let mut state = self.enter()?;
        if state.engine.ready(&on) {
            return Ok(false);
        }
        state.engine.notifiers.arm(&on)?;
        drop(state);
        if self.role.get().0 == ProgressOwner::None {
            self.thread_waker.wake();
        }
        Ok(true)
    }

    /// Ends one wait for the objects `on`. If threads wait for these objects now, the wait of one of these threads
    /// ends. Otherwise the next wait of any thread for these objects ends.
    pub(crate) fn interrupt(&self, on: WaitOn) {
        let Ok(mut state) = self.enter() else { return };
        state.engine.waiters.interrupt(on);
        if state.asleep.is_some_and(|(_, sleeper)| sleeper == on) {
            self.waker(self.role.get().0).wake();
        }
    }
}
