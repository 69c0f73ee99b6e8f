//! A listener, its connections, and the slots that its program counts them by.

use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use naa_provider::{BadChoice, ProviderChoice, VARIABLE};
use naa_server::{Config, memory_budget::MemoryBudget, sizes};
use verbs::{Channel, CmId, Context, Endpoints, Error};

use super::{
    address,
    connection::StepError,
    connection_thread::{self, Procedure, worker_procedure},
    device,
    hook::Hook,
    program::ProgramContext,
    router, server_log,
    session::Mailbox,
};
use crate::{
    log,
    naaice::{
        context::HeaderVersion,
        registry::{self, Object},
    },
};

/// Requests of hosts the program has not looked at yet.
const BACKLOG: u32 = 128;

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotServe {
    #[error(transparent)]
    Address(#[from] naa_host::Error),
    #[error("{VARIABLE}={}: no provider; {}", .0.value, BadChoice::REMEDY)]
    Provider(#[from] BadChoice),
    #[error("cannot serve on {at}: {source}")]
    Device { at: SocketAddr, source: Error },
    #[error("cannot serve on {at}: another server of this process listens there and has connections")]
    Port { at: SocketAddr },
    #[error("cannot start a thread: {0}; raise `ulimit -u`")]
    Thread(#[from] std::io::Error),
}

/// A host that wants to connect.
#[derive(Debug)]
pub(crate) struct ConnectRequest {
    pub(crate) id: CmId,
    pub(crate) endpoints: Endpoints,
}

/// What a program's pointer to its `struct context` stands for.
pub(crate) struct ListenerHandle(pub(crate) Arc<SwnaaListener>);

impl Object for ListenerHandle {
    const KIND: &'static str = "a server's struct context";
}

#[derive(Debug)]
pub(crate) struct SwnaaListener {
    context: Context,
    pub(crate) channel: Channel,
    cm_id: CmId,
    at: SocketAddr,
    pub(crate) config: Config,
    pub(crate) budget: MemoryBudget,
    pub(crate) version: HeaderVersion,
    pub(crate) hook: Hook,
    pub(crate) program: ProgramContext,
    procedure: Mutex<Procedure>,
    /// Ids of free slots; the last is the next to be taken.
    free: Mutex<Vec<u8>>,
    requests: Mutex<VecDeque<ConnectRequest>>,
    arrived: Condvar,
    connections: Mutex<HashMap<CmId, Arc<Mailbox>>>,
    serial: AtomicU64,
    closing: AtomicBool,
    router: Mutex<Option<JoinHandle<()>>>,
}

/// All open listeners, so that they can disconnect when the process ends.
static LISTENING: Mutex<Vec<Arc<SwnaaListener>>> = Mutex::new(Vec::new());

/// Whatever panicked while it held the lock left the value in one piece.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SwnaaListener {
    /// Listens on `port` of the address that is this machine's.
    pub(crate) fn start(
        port: u16,
        version: HeaderVersion,
        hook: Hook,
        program: ProgramContext,
    ) -> Result<Arc<Self>, CannotServe> {
        log::start();
        let choice = ProviderChoice::from_env()?;
        let address::Chosen { address, why } = address::choose(choice)?;
        let at = SocketAddr::new(address, port);
        let failed = |source| CannotServe::Device { at, source };
        let (context, device) = device::open(address, choice).map_err(failed)?;
        let mut config = Config::new(at);
        config.max_sessions = program.places();
        // Its programs find each parameter in a region of its own.
        config.limits.max_slots = 0;
        sizes::limit_regions(&mut config, context.attr());
        replace_idle(at)?;
        let channel = context.create_channel().map_err(failed)?;
        let (cm_id, port) = channel.listen(port, BACKLOG).map_err(failed)?;
        let at = SocketAddr::new(address, port);
        server_log::info(&format_args!("serving on {at}, {why}: {device}"));
        let listener = Arc::new(Self {
            budget: MemoryBudget::new(config.memory),
            context,
            channel,
            cm_id,
            at,
            config,
            version,
            hook,
            free: Mutex::new((0..program.places()).map(|id| id as u8).collect()),
            program,
            procedure: Mutex::new(worker_procedure),
            requests: Mutex::default(),
            arrived: Condvar::new(),
            connections: Mutex::default(),
            serial: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            router: Mutex::default(),
        });
        *lock(&listener.router) = Some(router::start(&listener)?);
        disconnect_at_exit();
        lock(&LISTENING).push(listener.clone());
        Ok(listener)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn next_serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn procedure(&self) -> Procedure {
        *lock(&self.procedure)
    }

    pub(crate) fn set_procedure(&self, procedure: Procedure) {
        *lock(&self.procedure) = procedure;
    }

    /// A host asks. What the program does not come to look at gives way to what is newer.
    pub(crate) fn requested(&self, request: ConnectRequest) {
        let mut requests = lock(&self.requests);
        if requests.len() >= BACKLOG as usize
            && let Some(oldest) = requests.pop_front()
        {
            let _ = self.channel.destroy_id(oldest.id);
        }
        requests.push_back(request);
        drop(requests);
        self.arrived.notify_one();
    }

    /// The oldest request, or none within `limit`.
    pub(crate) fn next_request(&self, limit: Duration) -> Option<ConnectRequest> {
        let deadline = Instant::now() + limit;
        let mut requests = lock(&self.requests);
        while requests.is_empty() && !self.is_closing() {
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.arrived.wait_timeout(requests, left);
            requests = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        requests.pop_front()
    }

    /// A host took its request back, or left.
    pub(crate) fn gone(&self, id: CmId) {
        lock(&self.requests).retain(|request| request.id != id);
        if let Some(mailbox) = self.mailbox(id) {
            mailbox.leave(&self.context);
        }
    }

    pub(crate) fn mailbox(&self, id: CmId) -> Option<Arc<Mailbox>> {
        lock(&self.connections).get(&id).cloned()
    }

    /// Events of `id` go there from now on.
    pub(crate) fn route(&self, id: CmId, mailbox: Arc<Mailbox>) {
        lock(&self.connections).insert(id, mailbox);
    }

    /// The connection is over, for this side too.
    pub(crate) fn forget(&self, id: CmId) {
        lock(&self.connections).remove(&id);
        let _ = self.channel.destroy_id(id);
    }

    /// A free slot, if there is one.
    pub(crate) fn take_slot(&self) -> Option<u8> {
        lock(&self.free).pop()
    }

    /// A context for slot `id`, which must be free, for the program to look at before there is a host.
    pub(crate) fn prepare_slot(&self, id: u8) -> Result<(), StepError> {
        let free = lock(&self.free);
        if !free.contains(&id) {
            return Err(StepError::Argument("there is no such slot, or a connection has it"));
        }
        // SAFETY: the program calls with its context, so it lives; the slot is one of its own.
        unsafe { self.program.set_worker(id, connection_thread::init(self, id)) };
        Ok(())
    }

    /// Shows the program that `worker` has slot `id`.
    pub(crate) fn show_worker(&self, id: u8, worker: *mut crate::naaice::layout::CommContext) {
        let free = lock(&self.free);
        // SAFETY: the program calls with its context, so it lives; the lock makes this one thread at a time.
        unsafe { self.program.taken(id, worker, free.len()) };
    }

    /// Takes that back.
    pub(crate) fn hide_worker(&self, id: u8) {
        let free = lock(&self.free);
        // SAFETY: the same.
        unsafe { self.program.returned(id, free.len() + 1) };
    }

    /// The slot that was taken last is free again. The program has seen nothing of it.
    pub(crate) fn leave_slot(&self, id: u8) {
        lock(&self.free).push(id);
    }

    /// Slot `id` is free again. The program, which may see that, is not looked at any more.
    pub(crate) fn give_slot_back(&self, id: u8) {
        let mut free = lock(&self.free);
        free.push(id);
        // SAFETY: while a slot is used the program keeps its context; the lock makes this one thread at a time.
        unsafe { self.program.returned(id, free.len()) };
    }

    fn is_idle(&self) -> bool {
        lock(&self.free).len() == self.program.places()
    }

    /// Connections end when their threads look; hosts that ask are told no more.
    fn close(&self) {
        self.closing.store(true, Ordering::Release);
        lock(&LISTENING).retain(|listener| !std::ptr::eq(&**listener, self));
        let _ = self.channel.destroy_id(self.cm_id);
        let router = lock(&self.router).take();
        self.context.driver().interrupt(router::wait_on(self));
        if let Some(router) = router {
            // A panic of the thread has been reported by its hook.
            let _ = router.join();
        }
        for request in std::mem::take(&mut *lock(&self.requests)) {
            let _ = self.channel.destroy_id(request.id);
        }
        lock(&self.connections).values().for_each(|mailbox| mailbox.stop(&self.context));
        self.arrived.notify_all();
    }

    /// Closes, and waits for kernels that run.
    pub(crate) fn shut_down(&self, limit: Duration) -> Result<(), StepError> {
        if !self.is_closing() {
            self.close();
        }
        let deadline = Instant::now().checked_add(limit);
        while !self.is_idle() {
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(StepError::Argument(
                    "kernels still run, and use the server's memory; call again later",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if !self.0.is_closing() {
            self.0.close();
        }
    }
}

/// A program frees its `struct context` when it needs it no more, and nobody is told. When it listens on the port again
/// that is what it did, unless there are connections.
fn replace_idle(at: SocketAddr) -> Result<(), CannotServe> {
    let earlier = lock(&LISTENING).iter().find(|listener| listener.at == at).cloned();
    let Some(earlier) = earlier else { return Ok(()) };
    if !earlier.is_idle() {
        return Err(CannotServe::Port { at });
    }
    earlier.close();
    // The pointer leads nowhere; it may be taken for a new one before this.
    let _ = registry::remove::<ListenerHandle>(earlier.program.as_ptr());
    Ok(())
}

/// Disconnects all hosts when the process ends by `exit`.
fn disconnect_at_exit() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // If `atexit` fails, hosts find out by themselves that the process ended.
        // SAFETY: the function lives as long as this library; where it is unloaded, the C library calls it then.
        let _ = unsafe { libc::atexit(disconnect_all) };
    });
}

extern "C" fn disconnect_all() {
    let disconnect = || {
        // The thread that holds a lock now may have been stopped, so nothing here waits for a lock.
        let Ok(listeners) = LISTENING.try_lock() else { return };
        for listener in &*listeners {
            let Ok(connections) = listener.connections.try_lock() else { continue };
            for &id in connections.keys() {
                let _ = listener.channel.disconnect(id);
            }
        }
    };
    let _ = std::panic::catch_unwind(disconnect);
}
