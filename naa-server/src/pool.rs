//! Worker threads for calls too long for the server's loop.
//!
//! Everything is bounded: calls waiting, running and done but not collected; threads; and calls past their
//! time. A call cannot be killed, so one that is past its time is reported once and then quarantined: it keeps
//! its thread and its regions until it returns, and another thread takes over the work. The pool has no clock
//! of its own; the server's loop asks [`Pool::next_deadline`] and calls [`Pool::expire`].

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use mrsp::plan::Prefix;

use crate::call::{Failed, Failure, Regions, Stop, Task};

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that take calls, at least one.
    pub workers: usize,
    /// Calls that wait or are done and not collected.
    pub queue: usize,
    /// Calls past their time, and threads started in their place.
    pub quarantine: usize,
}

/// Names a call for the life of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "all workers of the server are busy and its queue is full; call again later or start it with more"
    )]
    Busy,
    #[error("too many calls of the server are past their time; restart it, or find the function that hangs")]
    Quarantine,
    #[error("the server shuts down; call another one")]
    Closed,
}

/// A call not taken, with its regions.
#[derive(Debug)]
pub struct Refused {
    pub why: Refusal,
    pub task: Task,
}

/// The end of a call, reported once.
#[derive(Debug)]
pub struct Done {
    pub id: TaskId,
    /// How much of each parameter is a result, or why there is none.
    pub result: Result<Vec<Prefix>, Failed>,
    /// `None` if the function still runs: then they go when it returns.
    pub regions: Option<Regions>,
}

/// The pool. Dropping it closes it and leaves running calls to themselves.
pub struct Pool(Arc<Shared>);

struct Shared {
    settings: Settings,
    /// Called after a call is done, from a worker.
    wake: Box<dyn Fn() + Send + Sync>,
    state: Mutex<State>,
    /// Work arrived, or the pool was closed.
    work: Condvar,
    /// A thread ended or a call is done.
    progress: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    waiting: VecDeque<(TaskId, Task)>,
    /// Calls waiting or running, except those in quarantine.
    open: BTreeMap<TaskId, Open>,
    deadlines: BTreeSet<(Instant, TaskId)>,
    /// Running calls nobody waits for: past their time, or abandoned.
    quarantined: BTreeSet<TaskId>,
    done: VecDeque<Done>,
    threads: usize,
    closed: bool,
}

/// A call whose end will be reported.
#[derive(Debug)]
struct Open {
    deadline: Instant,
    stop: Arc<Stop>,
    /// A kernel's process is killed at the deadline by the thread that waits for it. Only if that takes
    /// longer than this the call is given up.
    kill_time: Option<Duration>,
}

/// A killed process gives back its memory first, which takes a while if that is large.
const KILL_TIME: Duration = Duration::from_secs(10);

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.0.settings).field(&*self.0.lock()).finish()
    }
}

impl Pool {
    /// Starts the workers. `wake` is called from a worker after each call that [`Pool::next_done`] then gives.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn new(settings: Settings, wake: impl Fn() + Send + Sync + 'static) -> io::Result<Self> {
        let settings = Settings { workers: settings.workers.max(1), ..settings };
        let shared = Arc::new(Shared {
            settings,
            wake: Box::new(wake),
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
        });
        shared.staff(&mut shared.lock())?;
        Ok(Self(shared))
    }

    /// Takes a call.
    ///
    /// # Errors
    /// Gives it back if the pool is full, has too much in quarantine, or is closed.
    pub fn submit(&self, task: Task) -> Result<TaskId, Box<Refused>> {
        let mut state = self.0.lock();
        if let Some(why) = state.refusal(&self.0.settings) {
            return Err(Box::new(Refused { why, task }));
        }
        // A thread that could not be started earlier may be by now; the others do the work if not.
        if let Err(error) = self.0.staff(&mut state) {
            tracing::warn!(%error, "cannot start a worker thread; raise `ulimit -u`");
        }
        let id = TaskId(state.next_id);
        state.next_id += 1;
        let deadline = task.deadline;
        state.deadlines.insert((deadline, id));
        let kill_time = task.function.kernel().map(|_| KILL_TIME);
        state.open.insert(id, Open { deadline, stop: Arc::new(Stop::at(deadline)), kill_time });
        state.waiting.push_back((id, task));
        self.0.work.notify_one();
        Ok(id)
    }

    /// The oldest end of a call not yet collected.
    pub fn next_done(&self) -> Option<Done> {
        self.0.lock().done.pop_front()
    }

    /// When [`Self::expire`] is next to be called.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.0.lock().deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// Calls whose time is over at `now`. What is given here, [`Self::next_done`] does not give.
    pub fn expire(&self, now: Instant) -> Vec<Done> {
        let mut state = self.0.lock();
        let mut expired = Vec::new();
        while let Some(&(deadline, id)) = state.deadlines.first()
            && deadline <= now
        {
            if state.is_being_killed(id) {
                continue;
            }
            let regions = state.give_up(id);
            expired.push(Done { id, result: Err(Failure::TimedOut.into()), regions });
        }
        if let Err(error) = self.0.staff(&mut state) {
            tracing::warn!(%error, "cannot replace a stuck worker thread; raise `ulimit -u`");
        }
        expired
    }

    /// Forgets a call whose session ended: its end is not reported, and the function is asked to stop.
    /// Gives the regions if it was not running.
    pub fn abandon(&self, id: TaskId) -> Option<Regions> {
        let mut state = self.0.lock();
        if let Some(at) = state.done.iter().position(|done| done.id == id) {
            return state.done.remove(at)?.regions;
        }
        state.give_up(id)
    }

    /// Calls that still run though nobody waits for them.
    pub fn quarantined(&self) -> usize {
        self.0.lock().quarantined.len()
    }

    /// Takes no more calls; those waiting end as abandoned, those running go on.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let waiting: Vec<_> = state.waiting.iter().map(|(id, _)| *id).collect();
        for id in waiting {
            let regions = state.give_up(id);
            state.done.push_back(Done { id, result: Err(Failure::Abandoned.into()), regions });
        }
        self.0.work.notify_all();
    }

    /// Whether no thread is left, which only happens after [`Self::close`].
    pub fn is_stopped(&self) -> bool {
        self.0.lock().threads == 0
    }

    /// Closes, waits until every call has returned or it is `deadline`, and asks those left to stop. Gives
    /// the number of threads still in a function; they end with the process at the latest.
    pub fn shutdown(&self, deadline: Instant) -> usize {
        self.close();
        let mut state = self.0.lock();
        while state.threads > 0 {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            else {
                break;
            };
            state = self.0.progress.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.abandon_all();
        state.threads
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.close();
        self.0.lock().abandon_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Functions run outside the lock, so a poisoned state is whole all the same.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts threads until `workers` are free of quarantined calls, as far as the cap allows.
    fn staff(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let Settings { workers, quarantine, .. } = self.settings;
        while !state.closed
            && state.threads.saturating_sub(state.quarantined.len()) < workers
            && state.threads < workers.saturating_add(quarantine)
        {
            let shared = self.clone();
            let started = thread::Builder::new().name("naa-worker".into()).spawn(move || shared.work());
            match started {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "fewer worker threads than asked for; raise `ulimit -u`");
                    break;
                }
            }
        }
        Ok(())
    }

    /// The life of a thread.
    fn work(&self) {
        while let Some((id, mut task, stop)) = self.take() {
            let result = task.run(&stop);
            let regions = task.regions;
            if self.finish(Done { id, result, regions: Some(regions) }) {
                (self.wake)();
            }
        }
    }

    /// The next call, or `None` if this thread is to end.
    fn take(&self) -> Option<(TaskId, Task, Arc<Stop>)> {
        let mut state = self.lock();
        loop {
            let surplus = state.threads.saturating_sub(state.quarantined.len()) > self.settings.workers;
            if surplus || (state.closed && state.waiting.is_empty()) {
                state.threads -= 1;
                self.progress.notify_all();
                return None;
            }
            if let Some((id, task)) = state.waiting.pop_front() {
                let stop = state.open.get(&id).expect("a call that waits is open").stop.clone();
                return Some((id, task, stop));
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Files the end of a call; whether anybody is to be told.
    fn finish(&self, done: Done) -> bool {
        let mut state = self.lock();
        let quarantined = state.quarantined.remove(&done.id);
        if quarantined {
            // Nobody waits. Regions unregister when dropped, which is for outside the lock.
            drop(state);
            drop(done);
            return false;
        }
        if let Some(open) = state.open.remove(&done.id) {
            state.deadlines.remove(&(open.deadline, done.id));
        }
        state.done.push_back(done);
        self.progress.notify_all();
        true
    }
}

impl State {
    fn refusal(&self, settings: &Settings) -> Option<Refusal> {
        if self.closed {
            Some(Refusal::Closed)
        } else if self.quarantined.len() >= settings.quarantine.max(1) {
            Some(Refusal::Quarantine)
        } else if self.open.len() + self.done.len() >= settings.workers.saturating_add(settings.queue) {
            Some(Refusal::Busy)
        } else {
            None
        }
    }

    fn abandon_all(&self) {
        self.open.values().for_each(|open| open.stop.abandon());
    }

    /// Extends the deadline of a running kernel, once.
    fn is_being_killed(&mut self, id: TaskId) -> bool {
        let running = !self.waiting.iter().any(|(waiting, _)| *waiting == id);
        let Some(open) = self.open.get_mut(&id).filter(|_| running) else { return false };
        let Some(more) = open.kill_time.take() else { return false };
        self.deadlines.remove(&(open.deadline, id));
        open.deadline += more;
        self.deadlines.insert((open.deadline, id));
        true
    }

    /// Stops waiting for a call. Gives its regions if it has not started; if it runs, it is quarantined.
    fn give_up(&mut self, id: TaskId) -> Option<Regions> {
        let open = self.open.remove(&id)?;
        self.deadlines.remove(&(open.deadline, id));
        open.stop.abandon();
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
            return self.waiting.remove(at).map(|(_, task)| task.regions);
        }
        self.quarantined.insert(id);
        None
    }
}
