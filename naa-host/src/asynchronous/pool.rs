//! The state of a pool, and what is done to it.

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
    roster::{Action, Member, Roster, Rules, Ticket, Time},
    session::LastDevice,
};
use crate::{CallTimeout, Claim, Error, Param, error::Party};

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) config: PoolConfig,
    pub(super) members: Vec<PoolMember>,
    pub(super) start: Instant,
    /// The next time at which the roster must be asked what to do. Each task that waits sleeps until then.
    pub(super) deadline: watch::Sender<Option<Time>>,
    /// The source of random numbers for delays.
    pub(super) random: RandomState,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct PoolMember {
    pub(super) device: LastDevice,
    pub(super) peer: SocketAddr,
    /// The number of sessions that tasks may have at a time. There are never more idle ones.
    pub(super) limit: usize,
    /// The exclusive use of the entry of `NAA_SPEC`.
    pub(super) _claim: Option<Claim>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) roster: Roster,
    /// The open sessions of each accelerator that no task has, with the shapes of their parameters. The last one was used
    /// last. They do not belong to a runtime, because the next task may run on another one.
    pub(super) idle: Vec<Vec<(Shapes, crate::Session)>>,
    /// The tasks that wait, each with the way to tell it its accelerator. `None` says that the task must give up.
    pub(super) waiting: BTreeMap<Ticket, oneshot::Sender<Option<Member>>>,
    /// The shapes of the last task that asked. An attempt to reach an accelerator sets up a session with them.
    pub(super) last_shapes: Shapes,
    /// The last error of each accelerator that failed.
    pub(super) errors: Vec<Option<Arc<Error>>>,
    pub(super) counters: PoolCounters,
    /// The runtime of the last task that asked. Accelerators are tried again there.
    pub(super) runtime: Option<Handle>,
}

/// The sizes and directions of parameters, without content.
pub(super) type Shapes = Arc<[Param<'static>]>;

pub(super) fn shapes(params: &[Param<'_>]) -> Shapes {
    params.iter().map(Param::without_content).collect()
}

fn is_same(some: &[Param<'_>], others: &[Param<'_>]) -> bool {
    let shape = |param: &Param<'_>| (param.flags.bits(), param.len, param.address.map(|at| at.get()));
    some.len() == others.len() && some.iter().map(shape).eq(others.iter().map(shape))
}

/// Returns true if another accelerator may do where this one failed to set up a session.
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

/// Returns true if the accelerator answered that it accepts no further session.
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
        /// Longer than an attempt takes, besides connecting.
        const SLACK: Duration = Duration::from_secs(5);
        let bounded = |time: Duration| time.clamp(Duration::from_millis(1), CallTimeout::LONGEST);
        let rules = Rules {
            first_delay: bounded(config.first_retry),
            longest_delay: bounded(config.longest_retry),
            patience: config.give_up_after.map(|time| time.min(CallTimeout::LONGEST)),
            scout_time: bounded(config.session.setup_timeout) + SLACK,
        };
        let counters = members.iter().map(|member| AcceleratorCounters::of(member.peer)).collect();
        let state = State {
            roster: Roster::new(members.iter().map(|member| member.limit), rules),
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

    pub(super) fn dice(&self, salt: Duration) -> u32 {
        let mut hasher = self.random.build_hasher();
        hasher.write_u128(salt.as_nanos());
        hasher.finish() as u32
    }

    /// Does what the roster says. The lock must be free: a runtime that has shut down drops new tasks at once, and a
    /// dropped attempt to reach an accelerator takes the lock.
    pub(super) fn act(self: &Arc<Self>) {
        let now = self.now();
        let mut scouts = Vec::new();
        let mut guard = self.lock();
        let state = &mut *guard;
        while let Some(action) = state.roster.next(now) {
            match action {
                Action::Lend(ticket, member) => {
                    // The task may have left at the same moment.
                    let sent = state.waiting.remove(&ticket).map(|sender| sender.send(Some(member)));
                    if sent.is_some_and(|sent| sent.is_ok()) {
                        state.counters.accelerators[member].lent += 1;
                    } else {
                        state.roster.returned(member);
                    }
                }
                Action::GiveUp(ticket) => {
                    state.counters.given_up += 1;
                    let _ = state.waiting.remove(&ticket).map(|sender| sender.send(None));
                }
                Action::Scout(member) => scouts.push((member, state.last_shapes.clone())),
            }
        }
        let deadline = state.roster.deadline();
        self.deadline.send_if_modified(|former| {
            let changes = *former != deadline;
            *former = deadline;
            changes
        });
        let runtime = state.runtime.clone();
        drop(guard);
        for (member, shapes) in scouts {
            if let Some(runtime) = &runtime {
                self.scout(runtime, member, shapes);
            }
        }
    }

    /// Tries in a task of its own whether an accelerator can be reached.
    fn scout(self: &Arc<Self>, runtime: &Handle, member: Member, shapes: Shapes) {
        let scouting = Scouting { pool: Arc::downgrade(self), member };
        let PoolMember { device, peer, .. } = &self.members[member];
        let (device, peer, config) = (device.get().clone(), *peer, self.config.session.clone());
        // The task does not keep the pool: if the pool is dropped, nobody needs the session.
        runtime.spawn(async move {
            let mut session = Session::connect(&device, peer, &shapes, &config).await;
            if session.as_ref().is_err_and(is_full) && scouting.close_idle() {
                session = Session::connect(&device, peer, &shapes, &config).await;
            }
            scouting.done(session.map(|session| (shapes, session)));
        });
    }

    /// Returns an idle session with these shapes, or sets one up on a place that a task has.
    pub(super) async fn open(&self, member: Member, shapes: &Shapes) -> Result<Session, Error> {
        while let Some(mut session) = self.take_idle(member, shapes) {
            // The accelerator may have ended while the session was idle.
            if session.is_alive() {
                return Session::from_blocking(session);
            }
        }
        // Sessions with other shapes give way to this one.
        drop(self.take_surplus(member));
        let connect = || {
            let PoolMember { device, peer, .. } = &self.members[member];
            Session::connect(device.get(), *peer, shapes, &self.config.session)
        };
        let result = match connect().await {
            Err(error) if is_full(&error) && self.close_idle(member) => connect().await,
            result => result,
        };
        if result.is_ok() {
            self.lock().counters.accelerators[member].opened += 1;
        }
        result
    }

    fn take_idle(&self, member: Member, shapes: &Shapes) -> Option<crate::Session> {
        let mut state = self.lock();
        let idle = &mut state.idle[member];
        let at = idle.iter().rposition(|(its, _)| is_same(its, shapes))?;
        Some(idle.remove(at).1)
    }

    /// Takes the idle sessions that were not used for the longest time, so many that all sessions of the accelerator are
    /// not more than its limit.
    fn take_surplus(&self, member: Member) -> Vec<(Shapes, crate::Session)> {
        let mut state = self.lock();
        let (lent, _) = state.roster.load(member);
        let idle = &mut state.idle[member];
        let surplus = (lent + idle.len()).saturating_sub(self.members[member].limit);
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
        session: Session,
    ) -> Option<crate::Session> {
        let mut session = session.into_blocking();
        // A single-send parameter would not be sent again.
        if shapes.iter().any(|param| param.flags.contains(RegionFlags::SINGLE_SEND)) {
            return Some(session);
        }
        session.reset(&self.config.session);
        let idle = &mut state.idle[member];
        idle.push((shapes, session));
        // The session that was not used for the longest time is the first.
        (idle.len() > self.members[member].limit).then(|| idle.remove(0).1)
    }
}

/// An attempt to reach an accelerator again. If the attempt is dropped, it has failed.
struct Scouting {
    pool: Weak<Pool>,
    member: Member,
}

impl Scouting {
    /// Closes the idle sessions of the accelerator; returns false if there are none.
    fn close_idle(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.close_idle(self.member))
    }

    fn done(mut self, result: Result<(Shapes, Session), Error>) {
        self.end(result);
        // Nothing is left for `drop` to report.
        self.pool = Weak::new();
    }

    fn end(&self, result: Result<(Shapes, Session), Error>) {
        let Some(pool) = self.pool.upgrade() else { return };
        let (member, now) = (self.member, pool.now());
        let mut guard = pool.lock();
        let state = &mut *guard;
        // An accelerator that refuses the regions of the last task can be reached.
        let is_reached = matches!(result, Ok(_) | Err(Error::Peer { .. }));
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
        state.roster.scouted(member, is_reached, now, pool.dice(now));
        drop(guard);
        drop(surplus);
        pool.act();
    }
}

impl Drop for Scouting {
    fn drop(&mut self) {
        let ended = std::io::Error::other("the attempt was cut off, because the runtime shuts down");
        self.end(Err(verbs::Error::io("cannot reach the accelerator", ended).into()));
    }
}
