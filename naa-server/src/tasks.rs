//! Async functions: calls that run as tasks on a runtime of the application, for example because the accelerator is a
//! front for another service.
//!
//! An async function gets copies of the inputs, and returns the outputs, which are copied to the regions. A thread of the
//! runtime makes both copies, and does nothing else meanwhile; a gibibyte takes some tenths of a second. The copies of the
//! inputs are charged to the session until the function returns.
//!
//! A task can be dropped at any `await`, and it is dropped when the time of its call is over or when its session ends. A
//! task that does not come to an `await` for long keeps its regions and its place until it does.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::Poll,
    time::{Duration, Instant},
};

use mrsp::{FunctionCode, U24, plan::Part};
use verbs::source_network::SourceNetwork;

use crate::{
    call::{Call, CallFailure, SessionRegions, Stop},
    function::FunctionInfo,
    memory_budget::Reservation,
    pool::PoolRefusal,
};

/// The time for which the server waits for the end of a task that was dropped because the time of its call is over. A task
/// ends later only if it does not come to an `await`.
const GRACE: Duration = Duration::from_millis(500);

/// A task of the application's runtime.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
/// Drops a task that was started.
pub type DropTask = Box<dyn Fn() + Send + Sync>;

type Started = Pin<Box<dyn Future<Output = Result<Reply, CallFailure>> + Send>>;

/// A function that runs as a task on a runtime of the application.
pub struct AsyncFunction {
    info: FunctionInfo,
    most: usize,
    spawn: Box<dyn Fn(Task) -> DropTask + Send + Sync>,
    run: Box<dyn Fn(AsyncCall) -> Started + Send + Sync>,
}

impl fmt::Debug for AsyncFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AsyncFunction({} {}, at most {})", self.info.code, self.info.name, self.most)
    }
}

impl AsyncFunction {
    /// Makes a function of which at most `most` calls run at a time. One source network has at most half of them, but
    /// at least one. A call beyond that is refused, and its host may call again later. A session that has called a kernel
    /// cannot call the function.
    ///
    /// `spawn` starts a task on the runtime, and returns a function that drops the task. The server loop calls both
    /// functions, so they must not block. The server may drop a task twice, and after its end. If a task that was dropped
    /// because the time of its call is over does not end within half a second, its session ends.
    pub fn new<F: Future<Output = Result<Reply, CallFailure>> + Send + 'static>(
        info: FunctionInfo,
        most: usize,
        spawn: impl Fn(Task) -> DropTask + Send + Sync + 'static,
        run: impl Fn(AsyncCall) -> F + Send + Sync + 'static,
    ) -> Self {
        let run = move |call: AsyncCall| -> Started { Box::pin(run(call)) };
        Self { info, most: most.max(1), spawn: Box::new(spawn), run: Box::new(run) }
    }

    /// Makes a function as [`new`](Self::new) does, whose tasks run on a runtime of tokio.
    #[cfg(feature = "tokio")]
    pub fn on_tokio<F: Future<Output = Result<Reply, CallFailure>> + Send + 'static>(
        info: FunctionInfo,
        most: usize,
        runtime: tokio::runtime::Handle,
        run: impl Fn(AsyncCall) -> F + Send + Sync + 'static,
    ) -> Self {
        let spawn = move |task: Task| -> DropTask {
            let task = runtime.spawn(task).abort_handle();
            Box::new(move || task.abort())
        };
        Self::new(info, most, spawn, run)
    }

    /// Returns the description of the function, which hosts find in the catalogue.
    pub fn info(&self) -> &FunctionInfo {
        &self.info
    }
}

/// A call of an async function, with copies of its inputs.
#[derive(Debug)]
pub struct AsyncCall {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<usize>,
    user: U24,
    deadline: Instant,
}

impl AsyncCall {
    /// Returns the bytes of the inputs, in the order in which the host described them. An in-out parameter counts as both
    /// an input and an output.
    pub fn inputs(&self) -> &[Vec<u8>] {
        &self.inputs
    }

    /// Returns the bytes of input `index`, without a further copy, or `None` if there is no such input.
    pub fn take_input(&mut self, index: usize) -> Option<Vec<u8>> {
        self.inputs.get_mut(index).map(std::mem::take)
    }

    /// Returns the lengths of the outputs in bytes.
    pub fn output_lens(&self) -> &[usize] {
        &self.outputs
    }

    /// Returns the 24 user bits, which the host chose.
    pub fn user(&self) -> U24 {
        self.user
    }

    /// Returns the time at which the task is dropped.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// The outputs that an async function returns. The host gets the bytes of each output that are given here; it gets all
/// bytes of an output that is not given, as they were before.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    outputs: Vec<Vec<u8>>,
}

impl Reply {
    /// Adds the bytes of the next output.
    #[must_use]
    pub fn output(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.outputs.push(bytes.into());
        self
    }
}

/// Identifies a task of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TaskId(u64);

/// A task that ended.
#[derive(Debug)]
pub(crate) struct EndedTask {
    pub(crate) id: TaskId,
    pub(crate) result: Result<Vec<Option<Part>>, CallFailure>,
    /// The regions of the call, or `None` if the task still has them, because it does not come to an `await`.
    pub(crate) regions: Option<SessionRegions>,
}

struct RunningTask {
    function: FunctionCode,
    peer: SourceNetwork,
    deadline: Instant,
    stage: Stage,
    drop_task: DropTask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// The time of the call is over, and the task was dropped. It must end before this time.
    Dropped(Instant),
    /// Nobody waits for the end of the task any more.
    Left,
}

/// What a call of an async function works on.
pub(crate) struct TaskCall {
    pub(crate) regions: SessionRegions,
    pub(crate) peer: SourceNetwork,
    pub(crate) user: U24,
    pub(crate) deadline: Instant,
}

/// The tasks of a server that have not ended.
pub(crate) struct Tasks {
    wake: Arc<dyn Fn() + Send + Sync>,
    ended: Arc<Mutex<VecDeque<EndedTask>>>,
    running: HashMap<TaskId, RunningTask>,
    next: u64,
}

impl Tasks {
    /// When a task has ended, its thread calls `wake`.
    pub(crate) fn new(wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { wake, ended: Arc::default(), running: HashMap::new(), next: 0 }
    }

    /// Starts a task for a call. If too many calls of the function run, returns the reason and the regions.
    pub(crate) fn start(
        &mut self,
        function: &Arc<AsyncFunction>,
        call: TaskCall,
    ) -> Result<TaskId, Box<(PoolRefusal, SessionRegions)>> {
        let (code, peer, deadline) = (function.info.code, call.peer, call.deadline);
        // A task that was dropped and has not ended counts, too.
        let of_function = || self.running.values().filter(|task| task.function == code);
        if of_function().count() >= function.most {
            return Err(Box::new((PoolRefusal::Tasks, call.regions)));
        }
        if of_function().filter(|task| task.peer == peer).count() >= (function.most / 2).max(1) {
            return Err(Box::new((PoolRefusal::TasksOfPeer, call.regions)));
        }
        let id = TaskId(self.next);
        self.next += 1;
        let end = TaskEnd {
            id,
            regions: Some(call.regions),
            result: Err(CallFailure::Internal("the runtime of the function has ended".into())),
            ended: Arc::downgrade(&self.ended),
            wake: self.wake.clone(),
        };
        let task = perform(function.clone(), call.user, deadline, end);
        let drop_task = (function.spawn)(Box::pin(task));
        self.running
            .insert(id, RunningTask { function: code, peer, deadline, stage: Stage::Running, drop_task });
        Ok(id)
    }

    /// Drops a task whose session ended.
    pub(crate) fn leave(&mut self, id: TaskId) {
        if let Some(task) = self.running.get_mut(&id) {
            task.stage = Stage::Left;
            (task.drop_task)();
        }
    }

    /// Drops all tasks, because the server ends.
    pub(crate) fn leave_all(&mut self) {
        let all: Vec<_> = self.running.keys().copied().collect();
        all.into_iter().for_each(|id| self.leave(id));
    }

    /// Returns a task that ended and for which a session waits.
    pub(crate) fn next_ended(&mut self) -> Option<EndedTask> {
        loop {
            let mut ended = lock(&self.ended).pop_front()?;
            match self.running.remove(&ended.id).map(|task| task.stage) {
                Some(Stage::Running) => return Some(ended),
                Some(Stage::Dropped(_)) => {
                    ended.result = Err(CallFailure::TimedOut);
                    return Some(ended);
                }
                Some(Stage::Left) | None => {}
            }
        }
    }

    /// Returns the time at which the caller must call [`expire`](Self::expire) next.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadline = |task: &RunningTask| match task.stage {
            Stage::Running => Some(task.deadline),
            Stage::Dropped(end) => Some(end),
            Stage::Left => None,
        };
        self.running.values().filter_map(deadline).min()
    }

    /// Drops the tasks of calls whose time is over at `now`. Returns those that were dropped before and still run.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<EndedTask> {
        let mut stuck = Vec::new();
        for (&id, task) in &mut self.running {
            match task.stage {
                Stage::Running if task.deadline <= now => {
                    task.stage = Stage::Dropped(now + GRACE);
                    (task.drop_task)();
                }
                Stage::Dropped(end) if end <= now => {
                    task.stage = Stage::Left;
                    stuck.push(EndedTask { id, result: Err(CallFailure::TimedOut), regions: None });
                }
                _ => {}
            }
        }
        stuck
    }
}

/// Returns the regions of a call to the server when its task ends or is dropped.
struct TaskEnd {
    id: TaskId,
    /// `None` only while `drop` runs.
    regions: Option<SessionRegions>,
    result: Result<Vec<Option<Part>>, CallFailure>,
    /// If the server has ended, nobody collects the ends of tasks, and the regions are freed here.
    ended: Weak<Mutex<VecDeque<EndedTask>>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Drop for TaskEnd {
    fn drop(&mut self) {
        let Some(ended) = self.ended.upgrade() else { return };
        let result = std::mem::replace(&mut self.result, Ok(Vec::new()));
        lock(&ended).push_back(EndedTask { id: self.id, result, regions: self.regions.take() });
        (self.wake)();
    }
}

fn lock(ended: &Mutex<VecDeque<EndedTask>>) -> MutexGuard<'_, VecDeque<EndedTask>> {
    ended.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a call from its inputs to its outputs.
async fn perform(function: Arc<AsyncFunction>, user: U24, deadline: Instant, mut end: TaskEnd) {
    let stop = Stop::at(deadline);
    end.result = match end.regions.as_mut() {
        Some(regions) => call(&function, regions, user, &stop, deadline).await,
        None => return,
    };
}

async fn call(
    function: &AsyncFunction,
    regions: &mut SessionRegions,
    user: U24,
    stop: &Stop,
    deadline: Instant,
) -> Result<Vec<Option<Part>>, CallFailure> {
    let (call, memory) = copied(regions, user, stop, deadline)?;
    // Unwinding is safe here: after a panic, the function is not polled again.
    let panicked =
        |_| CallFailure::Internal(format!("async function {} panicked", function.info.name).into());
    let mut run = catch_unwind(AssertUnwindSafe(|| (function.run)(call))).map_err(panicked)?;
    let reply = std::future::poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(panic))))
    });
    let reply = reply.await;
    catch_unwind(AssertUnwindSafe(|| drop(run))).map_err(panicked)?;
    drop(memory);
    let Reply { outputs } = reply?;
    Call::make(regions, user, stop, |call| {
        for (index, bytes) in outputs.iter().enumerate() {
            let mut parts = call.parts();
            let output = parts.take_output(index).ok_or_else(|| no_output(index))?;
            let needed = Some(bytes.len() as u64);
            let place = output.get_mut(..bytes.len());
            place.ok_or(CallFailure::OutputTooSmall { output: index, needed })?.copy_from_slice(bytes);
            call.set_produced(index, bytes.len());
        }
        Ok(())
    })
}

fn no_output(index: usize) -> CallFailure {
    CallFailure::Arguments(format!("the function has an output {index}, and the session maps none").into())
}

/// Copies the inputs of a call.
fn copied(
    regions: &mut SessionRegions,
    user: U24,
    stop: &Stop,
    deadline: Instant,
) -> Result<(AsyncCall, Option<Reservation>), CallFailure> {
    let (mut inputs, mut outputs, mut memory) = (Vec::new(), Vec::new(), None);
    Call::make(regions, user, stop, |call| {
        let parts = call.parts();
        let bytes = (0..).map_while(|index| parts.peek_input(index)).map(|input| input.len() as u64).sum();
        drop(parts);
        memory = call.reserve(bytes)?;
        let mut parts = call.parts();
        for index in 0.. {
            let Some(input) = parts.peek_input(index) else { break };
            inputs.push(copy(input)?);
        }
        outputs.extend((0..).map_while(|index| parts.take_output(index)).map(|output| output.len()));
        Ok(())
    })?;
    Ok((AsyncCall { inputs, outputs, user, deadline }, memory))
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>, CallFailure> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| CallFailure::OverLimit {
        needed: bytes.len() as u64,
        why: "the server's machine has no memory; give the server more".into(),
    })?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}
