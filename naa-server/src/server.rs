//! The server: a thread that owns all sessions, and a handle for the program.

mod peers;
mod queue;
mod serving;
pub mod sizes;

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use naa_provider::{BadChoice, Opened, ProviderChoice, VARIABLE};
use verbs::{Context, WaitOn};

use crate::{
    config::Config, counters::ServerCounters, function::Registry, loop_service::LoopService,
    memory_budget::MemoryBudget,
};
use serving::Serving;

/// The reason for which a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The device or its listener could not be opened.
    #[error("cannot serve on {addr}: {source}")]
    Device {
        /// The address at which the server should listen.
        addr: SocketAddr,
        /// The error of the device.
        source: verbs::Error,
    },
    /// The environment variable `NAA_PROVIDER` names no provider.
    #[error("{VARIABLE}={}: no provider; {}", .0.value, BadChoice::REMEDY)]
    Environment(#[from] BadChoice),
    /// The operating system could not start a thread for the server loop or for the pool.
    #[error("cannot start a thread: {0}; raise `ulimit -u`")]
    Thread(#[from] std::io::Error),
}

/// A running server. A dropped server ends its sessions at once, while [`Server::shutdown`] lets calls finish.
#[derive(Debug)]
pub struct Server {
    context: Context,
    why: String,
    device: String,
    address: SocketAddr,
    on: WaitOn,
    orders: Arc<Orders>,
    stats: Arc<ServerCounters>,
    budget: MemoryBudget,
    /// The reason for which the thread of the server ended although the program did not order it to end. `ending`
    /// contains nothing while the thread runs, or if the thread panicked.
    ending: Arc<OnceLock<String>>,
    thread: Option<JoinHandle<()>>,
}

/// The orders that the program gives to the server's thread.
#[derive(Debug, Default)]
struct Orders {
    /// True if the program ordered the thread to accept no more sessions, to end idle sessions, and to exit when no
    /// session is left.
    drain: AtomicBool,
    /// True if the program ordered the thread to exit at once.
    stop: AtomicBool,
}

impl Server {
    /// Starts a server that listens and serves the functions of `registry`. The server runs until the program calls
    /// [`Server::shutdown`] or drops the returned handle. If the server fails earlier, [`Server::ended`] returns the
    /// reason.
    ///
    /// # Errors
    /// Fails with [`StartError::Device`] if the device or its listener cannot be opened. Fails with
    /// [`StartError::Environment`] if the environment variable `NAA_PROVIDER` names no provider. Fails with
    /// [`StartError::Thread`] if the operating system cannot start a thread.
    pub fn start(config: Config, registry: Registry) -> Result<Self, StartError> {
        Self::start_with(config, registry, None)
    }

    /// Starts a server as [`start`](Self::start) does, with a loop service. The registry must have the function by
    /// which hosts subscribe to the loop service.
    ///
    /// # Errors
    /// Fails with [`StartError::Device`] if the device or its listener cannot be opened. Fails with
    /// [`StartError::Environment`] if the environment variable `NAA_PROVIDER` names no provider. Fails with
    /// [`StartError::Thread`] if the operating system cannot start a thread.
    pub fn start_with(
        config: Config,
        registry: Registry,
        loop_service: Option<Box<dyn LoopService>>,
    ) -> Result<Self, StartError> {
        let listen = config.listen;
        let failed = |source| StartError::Device { addr: listen, source };
        let choice = config.provider.map_or_else(ProviderChoice::from_env, Ok)?;
        let Opened { context, why, .. } =
            naa_provider::open(listen.ip(), choice, &config.device).map_err(failed)?;
        let device = format!("{} ({why})", context.attr().name);
        tracing::info!("opened {device}");
        let (orders, stats) = (Arc::new(Orders::default()), Arc::new(ServerCounters::default()));
        let (serving, port) = Serving::new(&context, config, registry, stats.clone(), loop_service)?;
        let (on, budget) = (serving.wait_on(), serving.budget().clone());
        let ending = Arc::<OnceLock<String>>::default();
        let given = (orders.clone(), ending.clone());
        let thread = std::thread::Builder::new()
            .name("naa-server".into())
            .spawn(move || serving.run(&given.0, &given.1))?;
        let address = SocketAddr::new(listen.ip(), port);
        Ok(Self { context, why, device, address, on, orders, stats, budget, ending, thread: Some(thread) })
    }

    /// Returns the address to which hosts connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a text for people. The text has the name of the device on which the server listens, and the reason why
    /// this device was chosen.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Returns "embedded" or "verbs".
    pub fn provider(&self) -> &'static str {
        self.context.attr().provider
    }

    /// Returns a text for people. The text has the name of the provider and the reason why this provider was chosen,
    /// for example "verbs: rxe0 has 10.9.0.1".
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns the counters of the server, which change while the server runs.
    pub fn stats(&self) -> &Arc<ServerCounters> {
        &self.stats
    }

    /// Returns the number of bytes that all sessions have in use for regions, for working copies of regions and for
    /// scratch memory. The size of each region and of each working copy is rounded up to whole pages.
    pub fn memory_used(&self) -> u64 {
        self.budget.used()
    }

    /// Returns the counters of the device by name.
    pub fn device_counters(&self) -> Vec<(&'static str, u64)> {
        self.context.driver().counters()
    }

    /// Returns the reason for which the server ended by itself, or `None` while the server runs. A server that ended
    /// serves no session any more.
    pub fn ended(&self) -> Option<String> {
        let is_over = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
        let why = self.ending.get().map_or("its thread panicked; the log says where", String::as_str);
        is_over.then(|| why.to_owned())
    }

    /// Shuts the server down: it accepts no more sessions, lets running calls finish and disconnects from hosts. After
    /// `timeout`, the server disconnects even if calls are still running.
    pub fn shutdown(mut self, timeout: Duration) {
        self.orders.drain.store(true, Ordering::Release);
        let deadline = Instant::now() + timeout;
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) && Instant::now() < deadline {
            self.context.driver().interrupt(self.on);
            std::thread::sleep(Duration::from_millis(5));
        }
        self.stop();
    }

    fn stop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.context.driver().interrupt(self.on);
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked. The error is ignored, because the panic hook has already
            // reported the panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}
