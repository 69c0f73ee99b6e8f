//! A pool of accelerators: tasks get sessions with the accelerator that has the least to do.

use std::{
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use mrsp::FunctionCode;

use super::{
    places::{Place, PlaceRequest, PooledSession, UsedPlace},
    pool::{Pool, PoolMember, is_of_the_accelerator, shapes},
    session::LastDevice,
};
use crate::{Claim, Device, Error, Param, SessionConfig, Spec};

/// The settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The settings of the sessions.
    pub session: SessionConfig,
    /// The number of sessions that tasks may have with one accelerator at a time. An accelerator of `NAA_SPEC` has one
    /// session at a time, whatever this number is.
    pub sessions_per_accelerator: usize,
    /// The time before an accelerator that cannot be reached is tried again, at least 1 ms. It doubles with each further
    /// failure. An accelerator that is full with sessions of other programs counts as one that cannot be reached.
    pub first_retry: Duration,
    /// The longest time before an accelerator is tried again.
    pub longest_retry: Duration,
    /// The time after which a waiting task gives up if no accelerator can be reached, or `None` if tasks never give up. While
    /// an accelerator can be reached and all sessions are in use, tasks wait without a limit.
    pub give_up_after: Option<Duration>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            sessions_per_accelerator: 4,
            first_retry: Duration::from_millis(100),
            longest_retry: Duration::from_secs(10),
            give_up_after: Some(Duration::from_secs(10)),
        }
    }
}

/// Says whether work whose accelerator was lost is done again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repeat {
    /// Work is done again only if no call of it was posted, so that no accelerator can have executed it.
    #[default]
    Never,
    /// Work is done again, with another session, at most this number of times. A call of the work can then be executed
    /// more than once.
    IfLost(u32),
}

/// What a pool has done so far, and what it does now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// The number of tasks that wait for a session now.
    pub waiting: usize,
    /// How often work was done again because its accelerator was lost.
    pub repeated: u64,
    /// How often a task gave up because no accelerator could be reached.
    pub given_up: u64,
    /// The counters of each accelerator, in the order in which the pool got the accelerators.
    pub accelerators: Vec<AcceleratorCounters>,
}

/// What a pool has done so far with one accelerator, and what it does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceleratorCounters {
    /// The address of the accelerator.
    pub peer: SocketAddr,
    /// True if tasks may get sessions, false while the accelerator cannot be reached.
    pub is_reachable: bool,
    /// The number of sessions that tasks have now.
    pub in_use: usize,
    /// The number of sessions that are open and that no task has.
    pub idle: usize,
    /// How many times a task has got a session.
    pub acquired: u64,
    /// How many sessions were set up.
    pub opened: u64,
    /// How many sessions were lost while a task had them.
    pub lost: u64,
    /// How many attempts to set up a session failed.
    pub failed: u64,
    /// How many sessions were closed because their task had left a call before its end, or because the call took too long.
    pub given_up: u64,
}

/// A pool of accelerators. Clones refer to the same pool.
///
/// A task gets a session with the accelerator on which the tasks of this pool have the fewest sessions, so that calls are
/// spread over the accelerators. Tasks that wait get sessions in the order in which they asked. A session that a task
/// drops stays open for the next task that asks for parameters of the same sizes.
///
/// | what happens | what the pool does |
/// |---|---|
/// | all sessions are in use | the task waits |
/// | an accelerator cannot be reached | other accelerators are used; it is tried again after a delay that doubles |
/// | an accelerator starts later | it is used once an attempt reaches it, which is made when tasks ask |
/// | an accelerator accepts no further session | its sessions are used; further ones are asked for after a delay |
/// | no accelerator can be reached | the task gives up after [`PoolConfig::give_up_after`] |
/// | a session ends during a task's call | the task's call fails; [`run`](Self::run) repeats it only as [`Repeat`] says |
/// | a task drops a session in mid-call | the session is closed, so that the call is given up |
///
/// ```no_run
/// use naa_host::{FunctionCode, Param, asynchronous::{Accelerators, PoolConfig, Repeat}};
///
/// # async fn example() -> Result<(), naa_host::Error> {
/// let servers = ["192.0.2.7:12345", "192.0.2.8:12345"].map(|server| server.parse().unwrap());
/// let pool = Accelerators::towards(&servers, PoolConfig::default())?;
/// let params = [Param::data(b"sum these bytes"), Param::output(32)];
/// let sum = pool.run(Repeat::IfLost(2), &params, |mut session| async move {
///     session.call(FunctionCode::constant(20)).await?;
///     session.to_vec(1)
/// });
/// println!("{:?}", sum.await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Accelerators(Arc<Pool>);

impl Accelerators {
    /// Makes a pool of accelerators that are reached from the devices to which the routing table or `NAA_LOCAL_IP`
    /// leads. No connection is set up before a task asks for a session.
    ///
    /// # Errors
    /// Fails with the same errors as [`Device::towards`], and with [`Error::NoAccelerators`] if `servers` is empty.
    pub fn towards(servers: &[SocketAddr], config: PoolConfig) -> Result<Self, Error> {
        let opened = servers.iter().map(|&server| Ok((Device::towards(server)?, server)));
        Self::new(opened.collect::<Result<Vec<_>, Error>>()?, config)
    }

    /// Makes a pool of accelerators, each with the device from which it is reached. An address that is given twice counts
    /// as two accelerators.
    ///
    /// # Errors
    /// Fails with [`Error::NoAccelerators`] if `members` is empty.
    pub fn new(members: Vec<(Device, SocketAddr)>, config: PoolConfig) -> Result<Self, Error> {
        let limit = config.sessions_per_accelerator.max(1);
        let member =
            |(device, peer)| PoolMember { device: LastDevice::new(device), peer, limit, _claim: None };
        Self::of(members.into_iter().map(member).collect(), config)
    }

    /// Makes a pool of all accelerators that `spec` lists for `function` with `inputs` inputs and that nobody has claimed.
    /// Each has one session at a time. The accelerators are free again when the pool and its sessions are dropped.
    ///
    /// # Errors
    /// Fails with [`Error::Spec`] if no accelerator for the function is free, and with the same errors as
    /// [`Device::towards`].
    pub fn of_spec(
        spec: &Spec,
        function: FunctionCode,
        inputs: usize,
        config: PoolConfig,
    ) -> Result<Self, Error> {
        let mut claims = vec![spec.claim(function, inputs)?];
        claims.extend(std::iter::from_fn(|| spec.claim(function, inputs).ok()));
        let member = |claim: Claim| {
            let peer = claim.entry().peer;
            let device = LastDevice::new(Device::towards(peer)?);
            Ok(PoolMember { device, peer, limit: 1, _claim: Some(claim) })
        };
        Self::of(claims.into_iter().map(member).collect::<Result<_, Error>>()?, config)
    }

    fn of(members: Vec<PoolMember>, config: PoolConfig) -> Result<Self, Error> {
        if members.is_empty() {
            return Err(Error::NoAccelerators);
        }
        Ok(Self(Arc::new(Pool::new(members, config))))
    }

    /// Returns a session whose parameters have the sizes and the content of `params`. The task waits while all sessions
    /// are in use. The rest of the parameters, and internal regions, may have bytes of an earlier task.
    ///
    /// # Errors
    /// Fails with [`Error::NoAcceleratorReached`] if no accelerator can be reached. Other errors that do not concern an
    /// accelerator are those of [`Session::connect`](super::Session::connect).
    ///
    /// # Panics
    /// Panics outside of a runtime of tokio, and in a runtime that was built without `enable_io` and `enable_time`.
    pub async fn session(&self, params: &[Param<'_>]) -> Result<PooledSession, Error> {
        let (session, place) = self.open(params).await?;
        PooledSession::new(session, place)
    }

    /// Returns an open session with its place, as [`session`](Self::session) does.
    pub(crate) async fn open(&self, params: &[Param<'_>]) -> Result<(crate::Session, UsedPlace), Error> {
        /// The maximum number of attempts of a task to set up a session, for each accelerator of the pool. Without this
        /// limit, a task whose session setup always times out would never end if the setups of other tasks succeed.
        const ATTEMPTS_PER_MEMBER: usize = 4;
        let shapes = shapes(params);
        let mut request = PlaceRequest::new(&self.0);
        let mut left = ATTEMPTS_PER_MEMBER * self.0.members.len();
        loop {
            let Some(member) = request.wait(&shapes).await else {
                return Err(self.0.none_reached());
            };
            let place = Place::new(&self.0, member);
            match self.0.open(member, &shapes).await {
                Ok(mut session) => {
                    self.0.lock().assignment.connected(member);
                    session.fill(params)?;
                    let place = UsedPlace::new(place, shapes, &session);
                    return Ok((session, place));
                }
                Err(error) if is_of_the_accelerator(&error) => {
                    place.fail(error)?;
                    left -= 1;
                    if left == 0 {
                        return Err(self.0.none_reached());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Gets a session and does `work` with it. The session goes back to the pool when `work` drops it. If the accelerator
    /// is lost meanwhile, the work is done again as `repeat` says; each time, the parameters have the content of `params`.
    ///
    /// # Errors
    /// Fails with the error of `work`, and with the same errors as [`session`](Self::session).
    ///
    /// # Panics
    /// Panics in the same cases as [`session`](Self::session).
    pub async fn run<T, F: Future<Output = Result<T, Error>>>(
        &self,
        repeat: Repeat,
        params: &[Param<'_>],
        mut work: impl FnMut(PooledSession) -> F,
    ) -> Result<T, Error> {
        let mut attempts = Attempts::new(repeat);
        loop {
            let mut session = self.session(params).await?;
            let posted = session.posted_flag();
            let error = match work(session).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if !attempts.again(&error, posted.load(Ordering::Relaxed)) {
                return Err(error);
            }
            self.count_repeated();
        }
    }

    pub(crate) fn count_repeated(&self) {
        self.0.lock().counters.repeated += 1;
    }

    /// Returns what the pool has done so far, and what it does now.
    pub fn counters(&self) -> PoolCounters {
        let state = self.0.lock();
        let mut counters = state.counters.clone();
        counters.waiting = state.assignment.queued();
        for (member, counters) in counters.accelerators.iter_mut().enumerate() {
            (counters.in_use, counters.is_reachable) = state.assignment.load(member);
            counters.idle = state.idle[member].len();
        }
        counters
    }
}

/// Counts how often work was done, and says whether it must be done again. [`Accelerators::run`] uses it; programs that
/// repeat their work themselves can use it, too.
#[derive(Debug)]
pub struct Attempts {
    /// How often the work may still be done again after a call was posted.
    posted: u32,
    /// How often the work may still be done again if no call was posted. There is a limit, because an accelerator can end
    /// each session as soon as the session is set up.
    unposted: u32,
}

impl Attempts {
    /// Makes the counts for work that is done again as `repeat` says.
    pub fn new(repeat: Repeat) -> Self {
        /// How often work of which no call was posted is done again.
        const UNPOSTED: u32 = 8;
        let posted = match repeat {
            Repeat::Never => 0,
            Repeat::IfLost(times) => times,
        };
        Self { posted, unposted: UNPOSTED }
    }

    /// Returns true if the work must be done again after `error`. `posted` says whether a call of the work was posted.
    pub fn again(&mut self, error: &Error, posted: bool) -> bool {
        if !matches!(error, Error::PeerGone { .. }) {
            return false;
        }
        let left = if posted { &mut self.posted } else { &mut self.unposted };
        let again = *left > 0;
        *left = left.saturating_sub(1);
        again
    }
}

impl AcceleratorCounters {
    pub(super) fn of(peer: SocketAddr) -> Self {
        Self {
            peer,
            is_reachable: true,
            in_use: 0,
            idle: 0,
            acquired: 0,
            opened: 0,
            lost: 0,
            failed: 0,
            given_up: 0,
        }
    }
}
