//! A device: the engine under its lock, and who drives it.

use std::{
    os::fd::BorrowedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread::{JoinHandle, park_timeout},
    time::{Duration, Instant},
};

use verbs::{DeviceAttr, Error, WaitMode, WaitOn, Wake};

use crate::{
    engine::{Engine, Turn},
    role::{Role, RoleWord, Seen},
    socket::{self, Waker},
    spin::{Crowd, Next, Spinner},
    sys::fork,
    waiters::Notice,
};

/// A sleeper is woken for timers that are due earlier than its own by more than this.
const SLACK: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) attr: DeviceAttr,
    /// Why the device cannot listen, if it cannot.
    pub(crate) cannot_listen: Option<String>,
    state: Mutex<State>,
    role: RoleWord,
    /// Rounds that drivers made: one that stands still is stalled, or has nothing to do.
    rounds: AtomicU32,
    /// Threads about to take the lock: a spinning driver lets them.
    contenders: AtomicU32,
    /// Ends the sleep of a driving caller.
    caller_waker: Waker,
    /// Ends the sleep of the driving progress thread.
    thread_waker: Waker,
    closing: AtomicBool,
    /// A program is about to sleep on a descriptor: the progress thread takes the role without waiting for a caller.
    called: AtomicBool,
    forks: u32,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct State {
    engine: Engine,
    /// Whoever has the role sleeps on the socket until then, or for ever, for this.
    asleep: Option<(Option<Instant>, WaitOn)>,
    blocked: bool,
    crowd: Crowd,
}

/// The engine, locked. Dropping it sends what there is to send and wakes whom it concerns.
pub(crate) struct Access<'a> {
    device: &'a Device,
    state: MutexGuard<'a, State>,
    after: After,
}

/// What ends an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Nothing,
    /// Somebody may have got what they wait for.
    Notify,
    /// The same, and there may be something to send.
    Transmit,
}

impl Device {
    pub(crate) fn start(
        engine: Engine,
        attr: DeviceAttr,
        cannot_listen: Option<String>,
    ) -> Result<Arc<Self>, Error> {
        let waker = || Waker::new().map_err(|e| Error::io("cannot create an eventfd", e));
        let device = Arc::new(Self {
            attr,
            cannot_listen,
            state: Mutex::new(State { engine, asleep: None, blocked: false, crowd: Crowd::default() }),
            role: RoleWord::new(),
            rounds: AtomicU32::new(0),
            contenders: AtomicU32::new(0),
            caller_waker: waker()?,
            thread_waker: waker()?,
            closing: AtomicBool::new(false),
            called: AtomicBool::new(false),
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
        // A panic under the lock is a bug; other sessions may go on all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the engine for a call. In a forked child the lock may be held for ever, so it is not even tried.
    pub(crate) fn access(&self) -> Result<Access<'_>, Error> {
        if fork::generation() != self.forks {
            return Err(Error::Forked);
        }
        Ok(Access { device: self, state: self.contend(), after: After::Nothing })
    }

    /// Locks the engine as one who does not drive it.
    fn contend(&self) -> MutexGuard<'_, State> {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let state = self.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        state
    }

    pub(crate) fn wait(&self, on: WaitOn, mode: WaitMode, deadline: Option<Instant>) -> Result<Wake, Error> {
        self.wait_for(on, mode, None, deadline)
    }

    pub(crate) fn wait_beside(
        &self,
        on: WaitOn,
        beside: BorrowedFd<'_>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        self.wait_for(on, WaitMode::Block, Some(beside), deadline)
    }

    fn wait_for(
        &self,
        on: WaitOn,
        mode: WaitMode,
        beside: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Result<Wake, Error> {
        /// While another thread drives, nobody watches what is beside.
        const TURN: Duration = Duration::from_micros(500);
        let waiter = {
            let mut access = self.access()?;
            let engine = access.engine();
            if let Some(cq) = on.cq {
                // Nobody could ever end a wait for what does not exist.
                engine.endpoint.poll_cq(cq, &mut [])?;
            }
            if engine.ready(&on) {
                return Ok(Wake::Ready);
            }
            if engine.waiters.take_interrupt(&on) {
                return Ok(Wake::Interrupted);
            }
            if access.take_role() { None } else { Some(access.engine().waiters.join(on)) }
        };
        let Some(waiter) = waiter else { return Ok(self.drive(on, mode, beside, deadline)) };
        let turn = beside.map(|_| Instant::now() + TURN);
        let deadline = deadline.into_iter().chain(turn).min();
        let mut notice = waiter.wait(mode, deadline);
        if notice == Notice::TimedOut {
            // What was told at the last moment counts; above all the role must not be lost.
            notice = self.contend().engine.waiters.leave(&waiter).unwrap_or(notice);
        }
        Ok(match notice {
            Notice::Ready => Wake::Ready,
            Notice::Interrupted => Wake::Interrupted,
            Notice::TimedOut => Wake::TimedOut,
            Notice::Drive => self.drive(on, mode, beside, deadline),
        })
    }

    /// Drives the device until `on` is ready. The role is the caller's on entry and another's on return.
    fn drive(
        &self,
        on: WaitOn,
        mode: WaitMode,
        beside: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> Wake {
        let mut spinner = Spinner::new(mode, Instant::now());
        loop {
            let mut state = self.lock();
            let turn = state.turn(&on);
            self.rounds.fetch_add(1, Ordering::Relaxed);
            let now = Instant::now();
            let wake = if state.engine.ready(&on) {
                Some(Wake::Ready)
            } else if state.engine.waiters.take_interrupt(&on) {
                Some(Wake::Interrupted)
            } else {
                deadline.is_some_and(|d| now >= d).then_some(Wake::TimedOut)
            };
            if let Some(wake) = wake {
                self.stop_driving(&mut state);
                return wake;
            }
            let next = spinner.after(&turn, now, &mut state.crowd);
            if next == Next::Sleep {
                if self.sleep(state, Role::Caller, (on, beside), deadline, now) {
                    self.stop_driving(&mut self.lock());
                    return Wake::Ready;
                }
                continue;
            }
            drop(state);
            self.yield_to_contenders();
            if next == Next::YieldThenTurn {
                std::thread::yield_now();
            }
        }
    }

    fn stop_driving(&self, state: &mut State) {
        if self.role.pass_on(&mut state.engine.waiters) {
            self.rouse_thread();
        }
    }

    /// Lets threads that want the lock have it; a mutex is not fair by itself.
    fn yield_to_contenders(&self) {
        for _ in 0..64 {
            if self.contenders.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }

    /// The one who has `role` sleeps on the socket until it, what is beside, a timer, `until` or a waker calls. True if there
    /// is something beside.
    fn sleep(
        &self,
        mut state: MutexGuard<'_, State>,
        role: Role,
        (on, beside): (WaitOn, Option<BorrowedFd<'_>>),
        until: Option<Instant>,
        now: Instant,
    ) -> bool {
        let timer = state.engine.deadline();
        let wake_at = match (timer, until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        state.asleep = Some((wake_at, on));
        let want_write = state.blocked;
        // The port lives as long as the device; only its descriptor is needed without the lock.
        let port = state.engine.port.clone();
        drop(state);
        let timeout = wake_at.map(|at| at.saturating_duration_since(now));
        let waker = self.waker(role);
        let ready = socket::wait_beside(&[&port], Some(waker), beside, want_write, timeout);
        let ready = ready.unwrap_or_default();
        if ready.woken {
            waker.drain();
        }
        let mut state = self.lock();
        // A caller that took the role from the thread may sleep by now.
        if self.role.get().0 == role {
            state.asleep = None;
        }
        ready.beside
    }

    /// The progress thread: one-sided operations go on while the application computes.
    fn progress(&self) {
        /// A caller that waits again within this keeps the device.
        const LINGER: Duration = Duration::from_micros(400);
        /// Rounds without a change of role after which the thread sleeps deeply.
        const QUIET_ROUNDS: u32 = 8;
        let (mut last, mut quiet) = (u32::MAX, 0_u32);
        while !self.closing.load(Ordering::Acquire) {
            let seen @ (role, changes) = self.role.get();
            quiet = if changes == last { quiet.saturating_add(1) } else { 0 };
            last = changes;
            let at_once = quiet > 0 || self.called.swap(false, Ordering::AcqRel);
            match role {
                Role::None if at_once && self.role.change(Role::None, Role::Thread) => self.drive_as_thread(),
                Role::Caller if quiet > QUIET_ROUNDS && self.role.fall_asleep(seen) => {
                    self.watch(seen, LINGER);
                    self.role.awake();
                }
                _ => park_timeout(LINGER),
            }
        }
    }

    /// Sleeps deeply while a caller drives; should that one be stalled, stands in for it until it moves again.
    fn watch(&self, seen: Seen, linger: Duration) {
        /// So long a driver may have nothing to do before the thread does a turn to see whether that is true.
        const WATCHDOG: Duration = Duration::from_secs(1);
        let rounds = self.rounds.load(Ordering::Relaxed);
        park_timeout(WATCHDOG);
        let mut last_busy = None;
        while self.role.get() == seen
            && self.rounds.load(Ordering::Relaxed) == rounds
            && !self.closing.load(Ordering::Acquire)
        {
            let now = Instant::now();
            let state = match self.state.try_lock() {
                Ok(state) => Some(state),
                Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
                // If the driver is stalled in its turn, nothing can be done.
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(state) = state {
                // Its end wakes a driver that is not stalled but missed what this turn took from the socket.
                let mut access = Access { device: self, state, after: After::Transmit };
                if access.state.turn(&WaitOn::default()).busy {
                    last_busy = Some(now);
                }
            }
            if last_busy.is_none_or(|at| now - at > WATCHDOG) {
                return;
            }
            park_timeout(linger);
        }
    }

    fn drive_as_thread(&self) {
        loop {
            let mut state = self.lock();
            if self.role.get().0 != Role::Thread {
                return;
            }
            if self.closing.load(Ordering::Acquire) {
                self.role.change(Role::Thread, Role::None);
                return;
            }
            let turn = state.turn(&WaitOn::default());
            if turn.more || turn.busy {
                drop(state);
                self.yield_to_contenders();
                continue;
            }
            self.sleep(state, Role::Thread, (WaitOn::default(), None), None, Instant::now());
        }
    }

    /// Needed after a deep sleep only; otherwise the thread looks again soon by itself.
    fn rouse_thread(&self) {
        if let Ok(thread) = self.thread.try_lock()
            && let Some(handle) = thread.as_ref()
        {
            handle.thread().unpark();
        }
    }

    /// Sees to it that peers learn of the end although a goodbye may be lost: it is repeated after 250 ms. Peers that
    /// never confirm one, as C servers of NAAICE, cost that time.
    fn part(&self) {
        const LONGEST: Duration = Duration::from_millis(300);
        const STEP: Duration = Duration::from_millis(2);
        let start = Instant::now();
        while start.elapsed() < LONGEST && self.lock().engine.endpoint.is_parting() {
            let _ = self.wait(WaitOn::default(), WaitMode::Block, Some(Instant::now() + STEP));
        }
    }

    pub(crate) fn close(&self) {
        if fork::generation() != self.forks {
            return;
        }
        self.part();
        self.closing.store(true, Ordering::Release);
        self.thread_waker.wake();
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(handle) = handle {
            handle.thread().unpark();
            // The last reference may be dropped by the thread itself.
            if handle.thread().id() != std::thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

impl State {
    fn turn(&mut self, on: &WaitOn) -> Turn {
        let turn = self.engine.turn(on);
        self.blocked = turn.blocked;
        turn
    }
}

impl Access<'_> {
    /// The caller becomes the driver, unless another caller is. The thread, if it was the driver, leaves.
    fn take_role(&mut self) -> bool {
        let taken = self.device.role.take();
        if taken == Some(Role::Thread) {
            self.state.asleep = None;
            self.device.thread_waker.wake();
        }
        taken.is_some()
    }

    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.state.engine
    }

    /// What was done may have given the core something to send, or somebody something to wait for.
    pub(crate) fn flush_after(&mut self) -> &mut Engine {
        self.after = After::Transmit;
        &mut self.state.engine
    }

    /// The same, after acknowledgements that were left for later: what is done may end their connection.
    pub(crate) fn settled(&mut self) -> &mut Engine {
        self.after = After::Transmit;
        self.state.blocked |= self.state.engine.settle().blocked;
        &mut self.state.engine
    }

    /// What was done gave the core nothing to send.
    pub(crate) fn notify_after(&mut self) -> &mut Engine {
        self.after = After::Notify;
        &mut self.state.engine
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        let turn = match self.after {
            After::Nothing => return,
            After::Notify => Turn::default(),
            After::Transmit => self.state.engine.transmit(),
        };
        self.state.engine.notify();
        self.state.blocked |= turn.blocked;
        let Some((until, on)) = self.state.asleep else { return };
        let timer = self.state.engine.deadline();
        let earlier = match (timer, until) {
            (Some(timer), Some(until)) => timer + SLACK < until,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier || turn.more || turn.blocked || self.state.engine.ready(&on) {
            self.state.asleep = None;
            self.device.waker(self.device.role.get().0).wake();
        }
    }
}

impl Device {
    /// Ends the sleep of the one with `role` on the socket.
    fn waker(&self, role: Role) -> &Waker {
        match role {
            Role::Thread => &self.thread_waker,
            _ => &self.caller_waker,
        }
    }

    /// Arms the descriptor of `on`; false if there is something already.
    pub(crate) fn arm(&self, on: WaitOn) -> Result<bool, Error> {
        let mut access = self.access()?;
        let engine = access.engine();
        if engine.ready(&on) {
            return Ok(false);
        }
        engine.bells.arm(&on)?;
        drop(access);
        if self.role.get().0 == Role::None {
            self.called.store(true, Ordering::Release);
            self.rouse_thread();
        }
        Ok(true)
    }

    /// Ends one wait on `on`.
    pub(crate) fn interrupt(&self, on: WaitOn) {
        let Ok(mut access) = self.access() else { return };
        let waiters = &mut access.engine().waiters;
        waiters.interrupt(on);
        if access.state.asleep.is_some_and(|(_, sleeper)| sleeper == on) {
            self.waker(self.role.get().0).wake();
        }
    }
}
