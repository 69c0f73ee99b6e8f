//! The state of a pool of accelerators, and the actions that change it.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

use mrsp::RegionFlags;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};

use super::{
    AcceleratorCounters, PoolConfig, PoolCounters, Session,
    assignment::{Action, Assignment, Member, Rules, Ticket, Time},
    session::LastDevice,
};
use crate::{CallTimeout, Claim, Error, Param, error::Party};

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: PoolConfig,
    pub(super) members: Vec<PoolMember>,
    pub(super) start: Instant,
    /// The deadline of the assignment. Each task that waits for a place sleeps until this time, and then calls
    /// [`Pool::act`].
    pub(super) deadline: watch::Sender<Option<Time>>,
    /// The source of random numbers for delays.
    pub(super) random: RandomState,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct PoolMember {
    pub(super) device: LastDevice,
    pub(super) peer: SocketAddr,
    /// The maximum number of sessions that tasks may have at a time. The pool keeps at most this number of idle sessions.
    pub(super) limit: usize,
    /// The exclusive use of an accelerator that `NAA_SPEC` lists.
    pub(super) _claim: Option<Claim>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) assignment: Assignment,
    /// The idle sessions of each accelerator, with the shapes of their parameters, in the order in which they became idle.
    /// An idle session is open, and no task has it. Idle sessions are blocking sessions, because the next task may run on
    /// another runtime.
    pub(super) idle: Vec<Vec<(Shapes, crate::Session)>>,
    /// The channels to the tasks that wait for a place. A task gets the number of its accelerator, or `None` if it must
    /// give up.
    pub(super) waiting: BTreeMap<Ticket, oneshot::Sender<Option<Member>>>,
    /// The shapes for which a task has last asked. An attempt to connect to an accelerator again uses these shapes.
    pub(super) last_shapes: Shapes,
    /// The last error of each accelerator, or `None` if no session setup with the accelerator has failed.
    pub(super) errors: Vec<Option<Arc<Error>>>,
    pub(super) counters: PoolCounters,
    /// The runtime of the task that has last asked for a place. Attempts to connect again run as tasks of this runtime.
    pub(super) runtime: Option<Handle>,
}

/// The parameters of a session without their content. Sessions with the same shapes can take the place of each other.
pub(super) type Shapes = Arc<[Param<'static>]>;

pub(super) fn shapes(params: &[Param<'_>]) -> Shapes {
    params.iter().map(Param::without_content).collect()
}

fn is_same(some: &[Param<'_>], others: &[Param<'_>]) -> bool {
    let shape = |param: &Param<'_>| (param.flags.bits(), param.len, param.address.map(|at| at.get()));
    some.len() == others.len() && some.iter().map(shape).eq(others.iter().map(shape))
}

/// Returns true if the error concerns the accelerator, so that another accelerator may work.
pub(super) fn is_of_the_accelerator(error: &Error) -> bool {
    matches!(
        error,
        Error::ConnectionRefused { .. }
            | Error::Unreachable { .. }
            | Error::SetupTimedOut { .. }
            | Error::PeerGone { .. }
            | Error::Peer { .. }
    )
}

/// Returns true if the accelerator refused a session in a way that it also uses when it is full.
pub(super) fn is_full(error: &Error) -> bool {
    use verbs::RejectReason;
    let full = [RejectReason::NO_QP, RejectReason::NO_RESOURCES, RejectReason::CONSUMER_DEFINED];
    match error {
        Error::ConnectionRefused { reason, .. } => full.contains(reason),
        Error::Peer { .. } => error.party() == Party::Accelerator,
        _ => false,
    }
}

impl Pool {
    pub(super) fn new(members: Vec<PoolMember>, config: PoolConfig) -> Self {
        /// An attempt to connect again takes at most the session's setup time and this time.
        const SLACK: Duration = Duration::from_secs(5);
        let bounded = |time: Duration| time.clamp(Duration::from_millis(1), CallTimeout::LONGEST);
        let rules = Rules {
            first_delay: bounded(config.first_retry),
            longest_delay: bounded(config.longest_retry),
            give_up_after: config.give_up_after.map(|time| time.min(CallTimeout::LONGEST)),
            reconnect_limit: bounded(config.session.setup_timeout) + SLACK,
        };
        let counters = members.iter().map(|member| AcceleratorCounters::of(member.peer)).collect();
        let state = State {
            assignment: Assignment::new(members.iter().map(|member| member.limit), rules),
            idle: members.iter().map(|_| Vec::new()).collect(),
            waiting: BTreeMap::new(),
            last_shapes: Shapes::from([]),
            errors: members.iter().map(|_| None).collect(),
            counters: PoolCounters { accelerators: counters, ..PoolCounters::default() },
            runtime: None,
        };
        let (start, random, state) = (Instant::now(), RandomState::new(), Mutex::new(state));
        let (deadline, _) = watch::channel(None);
        Self { config, members, start, deadline, random, state }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn random_number(&self, salt: Duration) -> u32 {
        let mut hasher = self.random.build_hasher();
        hasher.write_u128(salt.as_nanos());
        hasher.finish() as u32
    }

    /// Carries out the actions of the assignment. The calling thread must not have the lock: if the runtime has shut down,
    /// it drops a new task at once, and dropping a [`Reconnection`] takes the lock.
    pub(super) fn act(self: &Arc<Self>) {
        let now = self.now();
        let mut reconnect = Vec::new();
        let mut guard = self.lock();
        let state = &mut *guard;
        while let Some(action) = state.assignment.next(now) {
            match action {
                Action::Assign(ticket, member) => {
                    // The future of the task may have been dropped at the same moment.
                    let sent = state.waiting.remove(&ticket).map(|sender| sender.send(Some(member)));
                    if sent.is_some_and(|sent| sent.is_ok()) {
                        state.counters.accelerators[member].acquired += 1;
                    } else {
                        state.assignment.released(member);
                    }
                }
                Action::GiveUp(ticket) => {
                    state.counters.given_up += 1;
                    let _ = state.waiting.remove(&ticket).map(|sender| sender.send(None));
                }
                Action::Reconnect(member) => reconnect.push((member, state.last_shapes.clone())),
            }
        }
        let deadline = state.assignment.deadline();
        self.deadline.send_if_modified(|former| {
            let changes = *former != deadline;
            *former = deadline;
            changes
        });
        let runtime = state.runtime.clone();
        drop(guard);
        for (member, shapes) in reconnect {
            if let Some(runtime) = &runtime {
                self.reconnect(runtime, member, shapes);
            }
        }
    }

    /// Starts a task that tries to connect to an accelerator again.
    fn reconnect(self: &Arc<Self>, runtime: &Handle, member: Member, shapes: Shapes) {
        let reconnection = Reconnection { pool: Arc::downgrade(self), member };
        let PoolMember { device, peer, .. } = &self.members[member];
        let (device, peer, config) = (device.get().clone(), *peer, self.config.session.clone());
        // The task has no strong reference to the pool, because nobody needs the session after the pool was dropped.
        runtime.spawn(async move {
            let mut session = Session::connect(&device, peer, &shapes, &config).await;
            if session.as_ref().is_err_and(is_full) && reconnection.close_idle() {
                session = Session::connect(&device, peer, &shapes, &config).await;
            }
            reconnection.report(session.map(|session| (shapes, session.into_blocking())));
        });
    }

    /// Returns an idle session with these shapes, or sets up a new session. The calling task must have a place on the
    /// accelerator.
    pub(super) async fn open(&self, member: Member, shapes: &Shapes) -> Result<crate::Session, Error> {
        while let Some(mut session) = self.take_idle(member, shapes) {
            // The accelerator may have ended the session while it was idle.
            if session.is_alive() {
                return Ok(session);
            }
        }
        // A new session is needed, so idle sessions with other shapes are closed if there are too many sessions.
        drop(self.take_surplus(member));
        let connect = || {
            let PoolMember { device, peer, .. } = &self.members[member];
            Session::connect(device.get(), *peer, shapes, &self.config.session)
        };
        let session = match connect().await {
            Err(error) if is_full(&error) && self.close_idle(member) => connect().await,
            result => result,
        }?;
        self.lock().counters.accelerators[member].opened += 1;
        Ok(session.into_blocking())
    }

    fn take_idle(&self, member: Member, shapes: &Shapes) -> Option<crate::Session> {
        let mut state = self.lock();
        let idle = &mut state.idle[member];
        let at = idle.iter().rposition(|(its, _)| is_same(its, shapes))?;
        Some(idle.remove(at).1)
    }

    /// Removes the sessions that have been idle for the longest time, until the pool has no more sessions with the
    /// accelerator than its limit. Returns the removed sessions.
    fn take_surplus(&self, member: Member) -> Vec<(Shapes, crate::Session)> {
        let mut state = self.lock();
        let (in_use, _) = state.assignment.load(member);
        let idle = &mut state.idle[member];
        let surplus = (in_use + idle.len()).saturating_sub(self.members[member].limit);
        idle.drain(..surplus.min(idle.len())).collect()
    }

    /// Closes the idle sessions of an accelerator; returns false if there are none.
    fn close_idle(&self, member: Member) -> bool {
        let idle = std::mem::take(&mut self.lock().idle[member]);
        !idle.is_empty()
    }

    pub(super) fn none_reached(&self) -> Error {
        let state = self.lock();
        let errors = self.members.iter().zip(&state.errors);
        let tried = errors.filter_map(|(member, error)| Some((member.peer, error.clone()?))).collect();
        Error::NoAcceleratorReached { tried }
    }

    /// Keeps an open session for the next task. Returns a session that must be closed, if there is one.
    pub(super) fn keep(
        &self,
        state: &mut State,
        member: Member,
        shapes: Shapes,
        mut session: crate::Session,
    ) -> Option<crate::Session> {
        // A single-send parameter would not be sent again.
        if shapes.iter().any(|param| param.flags.contains(RegionFlags::SINGLE_SEND)) {
            return Some(session);
        }
        session.reset(&self.config.session);
        let idle = &mut state.idle[member];
        idle.push((shapes, session));
        // The first session has been idle for the longest time.
        (idle.len() > self.members[member].limit).then(|| idle.remove(0).1)
    }
}

/// An attempt to connect to an accelerator again. If it is dropped before its result was reported, it has failed.
struct Reconnection {
    pool: Weak<Pool>,
    member: Member,
}

impl Reconnection {
    /// Closes the idle sessions of the accelerator; returns false if there are none.
    fn close_idle(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.close_idle(self.member))
    }

    fn report(mut self, result: Result<(Shapes, crate::Session), Error>) {
        self.end(result);
        // The result is reported, so `drop` must not report a failure.
        self.pool = Weak::new();
    }

    fn end(&self, result: Result<(Shapes, crate::Session), Error>) {
        let Some(pool) = self.pool.upgrade() else { return };
        let (member, now) = (self.member, pool.now());
        let mut guard = pool.lock();
        let state = &mut *guard;
        // If the accelerator refuses the regions, it can be reached: another task may ask for other regions.
        let is_connected = matches!(result, Ok(_) | Err(Error::Peer { .. }));
        let counters = &mut state.counters.accelerators[member];
        let surplus = match result {
            Ok((shapes, session)) => {
                counters.opened += 1;
                pool.keep(state, member, shapes, session)
            }
            Err(error) => {
                counters.failed += 1;
                state.errors[member] = Some(Arc::new(error));
                None
            }
        };
        state.assignment.reconnected(member, is_connected, now, pool.random_number(now));
        drop(guard);
        drop(surplus);
        pool.act();
    }
}

impl Drop for Reconnection {
    fn drop(&mut self) {
        let ended = std::io::Error::other("the attempt was cut off, because the runtime shuts down");
        self.end(Err(verbs::Error::io("cannot reach the accelerator", ended).into()));
    }
}
