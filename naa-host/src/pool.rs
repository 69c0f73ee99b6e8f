//! A pool of accelerators for programs that block.

use std::{
    net::SocketAddr,
    ops::{Deref, DerefMut},
    sync::Arc,
};

use mrsp::FunctionCode;
use tokio::runtime::Runtime;

use crate::{
    Device, Error, Param, Session, Spec,
    asynchronous::{self, PoolConfig, PoolCounters, Repeat},
};

/// A pool of accelerators for threads that block, with the rules of
/// [`asynchronous::Accelerators`](crate::asynchronous::Accelerators). Clones refer to the same pool.
///
/// The pool has one thread, which sets sessions up. Calls are made by the threads of the program.
///
/// ```no_run
/// use naa_host::{Accelerators, FunctionCode, Param, asynchronous::{PoolConfig, Repeat}};
///
/// # fn example() -> Result<(), naa_host::Error> {
/// let servers = ["192.0.2.7:12345", "192.0.2.8:12345"].map(|server| server.parse().unwrap());
/// let pool = Accelerators::towards(&servers, PoolConfig::default())?;
/// let params = [Param::data(b"sum these bytes"), Param::output(32)];
/// let sum = pool.run(Repeat::Never, &params, |session| {
///     session.call(FunctionCode::constant(20))?;
///     session.to_vec(1)
/// })?;
/// println!("{sum:?}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Accelerators {
    pool: asynchronous::Accelerators,
    runtime: Arc<PoolRuntime>,
}

/// The runtime that sets sessions up. Dropping it does not wait, because a program may drop its pool in a task, which must
/// not block.
#[derive(Debug)]
struct PoolRuntime(Option<Runtime>);

impl PoolRuntime {
    fn new() -> Result<Arc<Self>, Error> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("naa-pool").enable_all().build();
        let runtime =
            runtime.map_err(|error| verbs::Error::io("cannot start a runtime for a pool", error))?;
        Ok(Arc::new(Self(Some(runtime))))
    }

    fn get(&self) -> &Runtime {
        self.0.as_ref().expect("only `drop` takes the runtime")
    }
}

impl Drop for PoolRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Accelerators {
    /// Makes a pool as [`asynchronous::Accelerators::towards`](crate::asynchronous::Accelerators::towards) does.
    ///
    /// # Errors
    /// Fails with the same errors, and with [`Error::Device`] if no thread can be started.
    pub fn towards(servers: &[SocketAddr], config: PoolConfig) -> Result<Self, Error> {
        Ok(Self { pool: asynchronous::Accelerators::towards(servers, config)?, runtime: PoolRuntime::new()? })
    }

    /// Makes a pool as [`asynchronous::Accelerators::new`](crate::asynchronous::Accelerators::new) does.
    ///
    /// # Errors
    /// Fails with the same errors, and with [`Error::Device`] if no thread can be started.
    pub fn new(members: Vec<(Device, SocketAddr)>, config: PoolConfig) -> Result<Self, Error> {
        Ok(Self { pool: asynchronous::Accelerators::new(members, config)?, runtime: PoolRuntime::new()? })
    }

    /// Makes a pool as [`asynchronous::Accelerators::of_spec`](crate::asynchronous::Accelerators::of_spec) does.
    ///
    /// # Errors
    /// Fails with the same errors, and with [`Error::Device`] if no thread can be started.
    pub fn of_spec(
        spec: &Spec,
        function: FunctionCode,
        inputs: usize,
        config: PoolConfig,
    ) -> Result<Self, Error> {
        let pool = asynchronous::Accelerators::of_spec(spec, function, inputs, config)?;
        Ok(Self { pool, runtime: PoolRuntime::new()? })
    }

    /// Returns a session whose parameters have the sizes and the content of `params`. The thread waits while all sessions
    /// are in use.
    ///
    /// # Errors
    /// Fails with the same errors as
    /// [`asynchronous::Accelerators::session`](crate::asynchronous::Accelerators::session).
    ///
    /// # Panics
    /// Panics if the calling thread runs tasks of a runtime of tokio.
    pub fn session(&self, params: &[Param<'_>]) -> Result<PooledSession, Error> {
        let parts = self.runtime.get().block_on(self.pool.open(params))?;
        Ok(PooledSession(Some(parts)))
    }

    /// Gets a session and does `work` with it. If the accelerator is lost meanwhile, the work is done again as `repeat`
    /// says; each time, the parameters have the content of `params`.
    ///
    /// # Errors
    /// Fails with the error of `work`, and with the same errors as [`session`](Self::session).
    ///
    /// # Panics
    /// Panics if the calling thread runs tasks of a runtime of tokio.
    pub fn run<T>(
        &self,
        repeat: Repeat,
        params: &[Param<'_>],
        mut work: impl FnMut(&mut Session) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut attempts = asynchronous::Attempts::new(repeat);
        loop {
            let mut session = self.session(params)?;
            let error = match work(&mut session) {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let posted = session.has_posted();
            drop(session);
            if !attempts.again(&error, posted) {
                return Err(error);
            }
            self.pool.count_repeated();
        }
    }

    /// Returns what the pool has done so far, and what it does now.
    pub fn counters(&self) -> PoolCounters {
        self.pool.counters()
    }
}

/// A session of a pool. When it is dropped, the pool keeps the session for other threads, unless the session is over or
/// has a call.
#[derive(Debug)]
pub struct PooledSession(Option<(Session, asynchronous::UsedPlace)>);

impl PooledSession {
    /// Returns true if a call was posted since the thread got the session.
    fn has_posted(&self) -> bool {
        self.0.as_ref().is_some_and(|(session, place)| place.has_posted(session))
    }
}

impl Deref for PooledSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0.as_ref().expect("only `drop` takes the session").0
    }
}

impl DerefMut for PooledSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0.as_mut().expect("only `drop` takes the session").0
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some((session, place)) = self.0.take() {
            place.release(session);
        }
    }
}
