//! The thread pool for calls that are too long for the server loop.
//!
//! The pool bounds the numbers of calls, of threads and of abandoned calls. The limit on calls counts the calls that
//! wait, the calls that run, and the calls that are done and not collected. The module `schedule` decides which call
//! runs next. A running function cannot be interrupted. A running call is quarantined when its time is over or its
//! session ends. A quarantined call keeps its thread and its regions until its function returns. The thread of a
//! quarantined call runs only while a core has nothing else to do. The pool starts another thread in place of the
//! thread of a quarantined call. Quarantined calls count against the limits of their source network. The pool does not
//! watch deadlines: the server loop queries [`Pool::next_deadline`] and calls [`Pool::expire`].

mod refusal;
mod schedule;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use mrsp::plan::Part;
use verbs::{log_limit::LogLimit, source_network::SourceNetwork};

use crate::{
    call::{CallFailure, CallWork, ServerCall, SessionRegions, Stop},
    priority::{self, Thread},
};
pub use refusal::PoolRefusal;
pub use schedule::Calls;
use schedule::Schedule;

/// The limits on the threads and the calls of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The number of threads that take calls, at least one.
    pub pool_threads: usize,
    /// The number of calls that the pool accepts beyond `pool_threads`. The pool is full when `pool_threads + queue`
    /// calls wait, run, or are done and not collected.
    pub queue: usize,
    /// The maximum number of calls of one source network, including its abandoned calls.
    pub per_peer: usize,
    /// The maximum number of extra threads. An extra thread is for a source network that has no running call while all
    /// pool threads are taken.
    pub extra_threads: usize,
    /// The number of threads that the pool may start beyond `pool_threads` and `extra_threads`, in place of the threads
    /// of abandoned calls. A source network can make no calls while the number of its abandoned calls is at least
    /// `quarantine / 2`. A source network with an abandoned call can make no calls while all source networks together
    /// have at least `quarantine` abandoned calls.
    pub quarantine: usize,
}

/// Identifies a call of a pool. No two calls of a pool have the same `CallId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(u64);

/// A refused call, with its regions.
#[derive(Debug)]
pub struct RefusedCall {
    /// The reason of the refusal.
    pub why: PoolRefusal,
    /// The call, which did not start.
    pub call: ServerCall,
}

/// A call that ended, with its result and its regions, as [`Pool::next_done`] or [`Pool::expire`] returns it. Each call
/// is returned at most once.
#[derive(Debug)]
pub struct EndedCall {
    /// The number that [`Pool::submit`] returned for the call.
    pub id: CallId,
    /// The serial number of the session that made the call.
    pub session: u64,
    /// The part of each output that is sent to the host, as [`ServerCall::run`] returns it, or the reason for which the
    /// call has no result. The reason can come from the pool: the call did not run, or did not end in time.
    pub result: Result<Vec<Option<Part>>, CallFailure>,
    /// The regions of the call, or `None` if the function still runs. The regions of a running function are dropped
    /// when the function returns.
    pub regions: Option<SessionRegions>,
}

/// A thread pool. A dropped pool accepts no more calls and withdraws waiting calls. A dropped pool requests running
/// functions to stop, and does not wait for their ends.
pub struct Pool {
    shared: Arc<Shared>,
    /// The result of [`Self::uncollected`]. A server loop asks for ended calls and for the next deadline in each turn. While
    /// this number is 0, the answers need no lock.
    uncollected: AtomicUsize,
}

struct Shared {
    config: PoolConfig,
    /// The callback that a pool thread calls after a call is done.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    /// The condition variable on which idle pool threads wait. It is notified when a call can start on a pool thread,
    /// and when the pool is closed.
    work: Condvar,
    /// The condition variable on which idle extra threads wait. It is notified when a call can start on an extra
    /// thread, and when the pool is closed.
    extra_work: Condvar,
    /// The condition variable that is notified when a thread ended or a call is done.
    progress: Condvar,
    /// The channel to the thread that drops abandoned calls after their functions returned. The thread that drops
    /// abandoned calls has the priority of pool threads. While it frees gigabytes of memory, all other threads that map
    /// memory must wait. The thread that ran the function of an abandoned call would let them wait longer, because it
    /// has the lowest priority.
    returns: mpsc::Sender<(EndedCall, SourceNetwork)>,
}

#[derive(Debug)]
struct State {
    next_id: u64,
    schedule: Schedule,
    /// The calls that wait for a thread.
    waiting: BTreeMap<CallId, ServerCall>,
    /// The calls that wait or run, except those in quarantine.
    open: BTreeMap<CallId, Open>,
    deadlines: BTreeSet<(Instant, CallId)>,
    /// The source network of each abandoned call that still runs. A call is abandoned when its time is over or its
    /// session ended.
    quarantined: BTreeMap<CallId, SourceNetwork>,
    done: VecDeque<EndedCall>,
    /// The number of pool threads and extra threads, including the threads of abandoned calls.
    threads: usize,
    pool_threads: ThreadCounts,
    extra_threads: ThreadCounts,
    closed: bool,
    /// The log limit for one warning: no thread could be started in place of the thread of an abandoned call. If there
    /// were no limit, a host that repeatedly calls and disconnects could cause any number of log lines.
    stuck: LogLimit<()>,
}

/// The counts of the pool threads, or of the extra threads: how many there are, how many are idle, and how many run a
/// call. The threads of abandoned calls are not counted.
#[derive(Debug, Default)]
struct ThreadCounts {
    threads: usize,
    /// The number of threads that wait for a call.
    idle: usize,
    /// The number of threads that run a call. A thread that neither waits nor runs a call is searching for its next
    /// call.
    running: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pool,
    Extra,
}

/// A call that waits or runs, and whose end the pool will report as an [`EndedCall`].
#[derive(Debug)]
struct Open {
    session: u64,
    peer: SourceNetwork,
    deadline: Instant,
    stop: Arc<Stop>,
    /// The thread that runs the call, the kind of the thread, and the time at which the call started. The
    /// field is `None` while the call waits.
    runs_on: Option<(Thread, Kind, Instant)>,
    /// The time for which the pool waits for the end of a kernel's call after the deadline of the call. At the
    /// deadline, the thread that runs the call kills the process that runs the kernel. If the call has not ended when
    /// this time has passed, the call is abandoned. The field is `None` if the call runs no kernel, or if `deadline`
    /// already includes this time.
    kill_time: Option<Duration>,
}

/// A call that a thread has taken.
struct RunningCall {
    id: CallId,
    peer: SourceNetwork,
    call: ServerCall,
    stop: Arc<Stop>,
}

/// The time for which an extra thread waits for another call before it ends.
const EXTRA_THREAD_TIME: Duration = Duration::from_secs(1);
/// The longest time for which the pool waits until the process of a kernel has ended after it was killed. This time is
/// long, because a killed process ends only after all its memory was freed, and freeing much memory takes long.
const KILL_TIME: Duration = Duration::from_secs(10);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.shared.config).field(&*self.shared.lock()).finish()
    }
}

impl Pool {
    /// Starts the pool threads. When a call has run and [`Pool::next_done`] can return it, the thread that ran the call
    /// calls `wake`.
    ///
    /// # Errors
    /// Fails if no thread can be started.
    pub fn new(config: PoolConfig, wake: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let config = PoolConfig { pool_threads: config.pool_threads.max(1), ..config };
        let state = State {
            next_id: 0,
            schedule: Schedule::new(config),
            waiting: BTreeMap::new(),
            open: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            quarantined: BTreeMap::new(),
            done: VecDeque::new(),
            threads: 0,
            pool_threads: ThreadCounts::default(),
            extra_threads: ThreadCounts::default(),
            closed: false,
            stuck: LogLimit::default(),
        };
        let (returns, returned) = mpsc::channel();
        let shared = Arc::new(Shared {
            config,
            returns,
            wake: Box::new(wake),
            state: Mutex::new(state),
            work: Condvar::new(),
            extra_work: Condvar::new(),
            progress: Condvar::new(),
        });
        let of = Arc::downgrade(&shared);
        thread::Builder::new().name("naa-returns".into()).spawn(move || take_returned(&of, &returned))?;
        let mut state = shared.lock();
        while state.pool_threads.threads < config.pool_threads {
            match shared.start(&mut state, Kind::Pool) {
                Ok(()) => {}
                Err(error) if state.threads == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "fewer worker threads than asked for; raise `ulimit -u`");
                    break;
                }
            }
        }
        drop(state);
        Ok(Self { shared, uncollected: AtomicUsize::new(0) })
    }

    /// Puts a call into the pool, where the call waits for a thread, and returns the id of the call.
    ///
    /// # Errors
    /// Returns the call together with the reason of the refusal. The pool can refuse a call if the pool is full or
    /// closed, if too many abandoned calls still run, or if the source network has too many calls.
    pub fn submit(&self, call: ServerCall) -> Result<CallId, Box<RefusedCall>> {
        let mut state = self.shared.lock();
        let state = &mut *state;
        if state.closed {
            return Err(Box::new(RefusedCall { why: PoolRefusal::Closed, call }));
        }
        let (id, session, peer, deadline) = (CallId(state.next_id), call.session, call.peer, call.deadline);
        match state.schedule.admit(peer, id, state.done.len()) {
            Ok(None) => {}
            Ok(Some(displaced)) => state.displace(displaced),
            Err(why) => return Err(Box::new(RefusedCall { why, call })),
        }
        state.next_id += 1;
        state.deadlines.insert((deadline, id));
        let kill_time = matches!(call.work, CallWork::Kernel { .. }).then_some(KILL_TIME);
        let stop = Arc::new(Stop::at(deadline));
        state.open.insert(id, Open { session, peer, deadline, stop, runs_on: None, kill_time });
        state.waiting.insert(id, call);
        self.uncollected.fetch_add(1, Ordering::Relaxed);
        self.shared.wake_or_start_thread(state);
        Ok(id)
    }

    /// Returns the oldest call that ended and was not collected yet.
    pub fn next_done(&self) -> Option<EndedCall> {
        if self.uncollected() == 0 {
            return None;
        }
        let done = self.shared.lock().done.pop_front()?;
        self.uncollected.fetch_sub(1, Ordering::Relaxed);
        Some(done)
    }

    /// Returns the number of calls that wait, run, or are done and not collected. Abandoned calls are not counted.
    pub fn uncollected(&self) -> usize {
        // `submit` raises the number while it has the lock, before a thread can take the call. A thread that learns of the
        // end of a call therefore finds the number raised.
        self.uncollected.load(Ordering::Relaxed)
    }

    /// Returns the time at which the caller must call [`Self::expire`] next. Abandoned calls have no deadline. The
    /// result is `None` if no other call waits or runs.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.uncollected() == 0 {
            return None;
        }
        self.shared.lock().deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Ends calls whose time is over at `now`, and returns how each of them ended. [`Self::next_done`] does not return
    /// the calls that `expire` has returned.
    pub fn expire(&self, now: Instant) -> Vec<EndedCall> {
        if self.uncollected() == 0 {
            return Vec::new();
        }
        let mut state = self.shared.lock();
        let mut expired = Vec::new();
        while let Some(&(deadline, id)) = state.deadlines.first()
            && deadline <= now
        {
            if state.is_being_killed(id) {
                continue;
            }
            let (session, regions) = state.give_up(id).expect("only open calls have a deadline");
            self.uncollected.fetch_sub(1, Ordering::Relaxed);
            expired.push(EndedCall { id, session, result: Err(CallFailure::TimedOut), regions });
        }
        if !expired.is_empty() {
            self.shared.replace_threads(&mut state);
        }
        expired
    }

    /// Abandons a call whose session ended. The pool requests the function of the call to stop, and does not report the
    /// end of the call. Returns the regions of the call if the call was not running.
    pub fn abandon(&self, id: CallId) -> Option<SessionRegions> {
        let mut state = self.shared.lock();
        if let Some(at) = state.done.iter().position(|done| done.id == id) {
            self.uncollected.fetch_sub(1, Ordering::Relaxed);
            return state.done.remove(at)?.regions;
        }
        let (_, regions) = state.give_up(id)?;
        self.uncollected.fetch_sub(1, Ordering::Relaxed);
        self.shared.replace_threads(&mut state);
        regions
    }

    /// Returns the number of abandoned calls that still run.
    pub fn quarantined(&self) -> usize {
        self.shared.lock().quarantined.len()
    }

    /// Returns how many calls of `peer` wait, run and are abandoned.
    pub fn calls(&self, peer: SourceNetwork) -> Calls {
        self.shared.lock().schedule.calls(peer)
    }

    /// Closes the pool, which accepts no more calls afterwards. Waiting calls end with [`CallFailure::Abandoned`], and
    /// running calls continue.
    pub fn close(&self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let waiting: Vec<_> = state.waiting.keys().copied().collect();
        for id in waiting {
            let Some((session, regions)) = state.give_up(id) else { continue };
            state.done.push_back(EndedCall { id, session, result: Err(CallFailure::Abandoned), regions });
        }
        self.shared.work.notify_all();
        self.shared.extra_work.notify_all();
    }

    /// Closes the pool, waits until every call has returned or `deadline` has passed, and requests the remaining
    /// functions to stop. Returns the number of threads that have not ended. If a function never returns, its thread
    /// runs until the process ends.
    pub fn shutdown(&self, deadline: Instant) -> usize {
        self.close();
        let mut state = self.shared.lock();
        while state.threads > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                break;
            };
            state = self.shared.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.abandon_all();
        state.threads
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
        self.shared.lock().abandon_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is used as if it were not poisoned. Functions run outside the lock, so a function that panics
        // leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(self: &Arc<Self>, state: &mut State, kind: Kind) -> io::Result<()> {
        let shared = self.clone();
        thread::Builder::new().name("naa-worker".into()).spawn(move || shared.work(kind))?;
        state.threads += 1;
        state.counts(kind).threads += 1;
        Ok(())
    }

    /// Starts pool threads in place of the threads of abandoned calls, up to the limit of threads. Afterwards, the
    /// method wakes or starts a thread if a waiting call can start.
    fn replace_threads(self: &Arc<Self>, state: &mut State) {
        while !state.closed
            && state.pool_threads.threads < self.config.pool_threads
            && state.threads < state.schedule.most_threads()
        {
            if let Err(error) = self.start(state, Kind::Pool) {
                if let Some(left_out) = state.stuck.take((), Instant::now()) {
                    tracing::warn!(%error, left_out, "cannot replace a stuck worker thread; raise `ulimit -u`");
                }
                break;
            }
        }
        self.wake_or_start_thread(state);
    }

    /// Wakes or starts a thread if a waiting call can start.
    fn wake_or_start_thread(self: &Arc<Self>, state: &mut State) {
        if !state.schedule.is_due() {
            return;
        }
        for (counts, work) in [(&state.pool_threads, &self.work), (&state.extra_threads, &self.extra_work)] {
            if counts.running < counts.threads {
                if counts.idle > 0 {
                    work.notify_one();
                }
                return;
            }
        }
        let missing = state.pool_threads.threads < self.config.pool_threads;
        let kind = if missing { Kind::Pool } else { Kind::Extra };
        if state.threads < state.schedule.most_threads()
            && let Err(error) = self.start(state, kind)
        {
            // If no thread can be started, the existing threads take the call later.
            tracing::debug!(%error, "cannot start a worker thread; raise `ulimit -u`");
        }
    }

    /// The main function of a pool thread or an extra thread.
    fn work(self: &Arc<Self>, kind: Kind) {
        match kind {
            Kind::Pool => priority::nicer_by(priority::POOL_THREAD),
            Kind::Extra => priority::nicer_by(priority::EXTRA_THREAD),
        }
        let own = Thread::current();
        while let Some(RunningCall { id, peer, mut call, stop }) = self.take(own, kind) {
            let begun = Instant::now();
            let result = call.run(&stop);
            let done = EndedCall { id, session: call.session, result, regions: Some(call.regions) };
            if self.finish(done, peer, kind, begun.elapsed()) {
                (self.wake)();
            } else {
                // The call was abandoned, and this thread got the lowest priority at that time. The thread cannot raise
                // its priority again, so it ends.
                return;
            }
        }
    }

    /// Waits for the next call and returns it. Returns `None` if this thread is to end.
    fn take(self: &Arc<Self>, own: Thread, kind: Kind) -> Option<RunningCall> {
        let mut state = self.lock();
        let mut timeout = (kind == Kind::Extra).then_some(EXTRA_THREAD_TIME);
        loop {
            if let Some(id) = state.schedule.next() {
                let call = state.waiting.remove(&id).expect("a call that is due waits");
                let open = state.open.get_mut(&id).expect("a call that waits is open");
                open.runs_on = Some((own, kind, Instant::now()));
                let running = RunningCall { id, peer: open.peer, call, stop: open.stop.clone() };
                state.counts(kind).running += 1;
                // A caller that submitted several calls may have woken only one thread, so this thread wakes the next
                // one.
                self.wake_or_start_thread(&mut state);
                return Some(running);
            }
            let is_over = state.closed && state.waiting.is_empty() || timeout == Some(Duration::ZERO);
            if is_over || state.counts(kind).threads > self.thread_limit(kind) {
                state.counts(kind).threads -= 1;
                state.threads -= 1;
                self.progress.notify_all();
                return None;
            }
            state.counts(kind).idle += 1;
            state = match timeout {
                None => self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(time) => {
                    let (state, waited) =
                        self.extra_work.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner);
                    timeout = Some(if waited.timed_out() { Duration::ZERO } else { time });
                    state
                }
            };
            state.counts(kind).idle -= 1;
        }
    }

    fn thread_limit(&self, kind: Kind) -> usize {
        match kind {
            Kind::Pool => self.config.pool_threads,
            Kind::Extra => self.config.extra_threads,
        }
    }

    /// Records the end of a call that ran for `time`. Returns true if [`Pool::next_done`] will return `done`. Returns
    /// false if the call was in quarantine, because nobody waits for the end of such a call.
    fn finish(&self, done: EndedCall, peer: SourceNetwork, kind: Kind, time: Duration) -> bool {
        let mut state = self.lock();
        if state.quarantined.remove(&done.id).is_some() {
            drop(state);
            // The receiver of the channel lives as long as this pool, so sending cannot fail.
            let _ = self.returns.send((done, peer));
            return false;
        }
        if let Some(open) = state.open.remove(&done.id) {
            state.deadlines.remove(&(open.deadline, done.id));
        }
        state.counts(kind).running -= 1;
        state.schedule.finished(peer, time);
        state.done.push_back(done);
        self.progress.notify_all();
        true
    }
}

/// The main function of the thread that drops abandoned calls after their functions returned.
fn take_returned(pool: &Weak<Shared>, returned: &mpsc::Receiver<(EndedCall, SourceNetwork)>) {
    priority::nicer_by(priority::POOL_THREAD);
    while let Ok((done, peer)) = returned.recv() {
        // Dropping `done` deregisters the regions of the call, which may take long, so `done` is dropped before the
        // lock is taken. The schedule counts the call as an abandoned call of its source network until its regions are
        // dropped.
        drop(done);
        let Some(shared) = pool.upgrade() else { return };
        let mut state = shared.lock();
        state.schedule.returned(peer);
        state.threads -= 1;
        shared.progress.notify_all();
        shared.replace_threads(&mut state);
    }
}

impl State {
    fn counts(&mut self, kind: Kind) -> &mut ThreadCounts {
        match kind {
            Kind::Pool => &mut self.pool_threads,
            Kind::Extra => &mut self.extra_threads,
        }
    }

    fn abandon_all(&self) {
        self.open.values().for_each(|open| open.stop.abandon());
    }

    /// Extends the deadline of call `id` by the time for killing the process that runs the call's kernel, and returns
    /// true. Returns false if call `id` waits for a thread, if it runs no kernel, or if its deadline was already
    /// extended.
    fn is_being_killed(&mut self, id: CallId) -> bool {
        let Some(open) = self.open.get_mut(&id).filter(|open| open.runs_on.is_some()) else { return false };
        let Some(more) = open.kill_time.take() else { return false };
        self.deadlines.remove(&(open.deadline, id));
        open.deadline += more;
        self.deadlines.insert((open.deadline, id));
        true
    }

    /// Reports the end of a waiting call that lost its place in the pool to another call. The schedule has already
    /// removed call `id`.
    fn displace(&mut self, id: CallId) {
        let Some(open) = self.open.remove(&id) else { return };
        self.deadlines.remove(&(open.deadline, id));
        let regions = self.waiting.remove(&id).map(|call| call.regions);
        let result = Err(CallFailure::Refused(PoolRefusal::Displaced));
        self.done.push_back(EndedCall { id, session: open.session, result, regions });
    }

    /// Removes call `id` from the open calls, because its time is over or its session ended. Returns the serial number
    /// of its session, and the call's regions if the call has not started. Returns `None` if the call is not open. If
    /// the call runs, its function is requested to stop, and the call is put into the quarantine.
    fn give_up(&mut self, id: CallId) -> Option<(u64, Option<SessionRegions>)> {
        let open = self.open.remove(&id)?;
        self.deadlines.remove(&(open.deadline, id));
        open.stop.abandon();
        let Some((thread, kind, since)) = open.runs_on else {
            self.schedule.withdraw(open.peer, id);
            return Some((open.session, self.waiting.remove(&id).map(|call| call.regions)));
        };
        // The end of call `id` is not recorded yet, so `thread` still runs call `id`. The caller of `give_up` has the
        // lock of the pool, so `thread` cannot take another call before its priority is lowered.
        thread.demote();
        let counts = self.counts(kind);
        (counts.threads, counts.running) = (counts.threads - 1, counts.running - 1);
        self.schedule.gave_up(open.peer, since.elapsed());
        self.quarantined.insert(id, open.peer);
        Some((open.session, None))
    }
}
