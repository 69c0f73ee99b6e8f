//! A connection's thread, and what it does unless the program has something of its own for it.

use std::{
    ffi::c_void,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Arc,
};

use naa_server::session::ServerSession;

use super::{
    connection::{StepError, ThreadContext},
    listener::{ConnectRequest, ListenerHandle, SwnaaListener},
    server_log,
    session::{Mailbox, SwnaaSession},
    steps,
};
use crate::naaice::{
    layout::CommContext,
    registry::{self, Misuse},
};

/// What a thread runs: `worker_procedure`, or the program's own.
pub(crate) type Procedure = unsafe extern "C" fn(*mut c_void) -> *mut c_void;

/// `struct worker_args`: from `malloc`, freed by the procedure.
#[repr(C)]
pub(crate) struct ThreadArgs {
    ctx: *mut c_void,
    worker_id: u8,
}

/// What the thread of a connection is given.
struct Start {
    listener: Arc<SwnaaListener>,
    procedure: Procedure,
    args: *mut ThreadArgs,
    worker: *mut CommContext,
    id: u8,
}

/// Why a host was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostRefusal {
    #[error("the server has as many connections as it may; try again later")]
    Full,
    #[error("it asks no more")]
    Withdrawn,
    #[error("{0}")]
    Failed(#[from] naa_server::session::SessionEnd),
    #[error("cannot start a thread: {0}; raise `ulimit -u`")]
    Thread(io::Error),
    #[error("{0}")]
    Context(#[from] StepError),
}

impl From<verbs::Error> for HostRefusal {
    fn from(error: verbs::Error) -> Self {
        match error {
            // Requests that nobody answered in time are forgotten, and those taken back.
            verbs::Error::NotFound { .. } => Self::Withdrawn,
            error => Self::Failed(error.into()),
        }
    }
}

/// A worker's context for slot `id`: the one the program prepared there, else a new one.
pub(crate) fn init(listener: &SwnaaListener, id: u8) -> *mut CommContext {
    // SAFETY: the program called with its context, so it lives; there is such a slot.
    let prepared = unsafe { listener.program.worker(id) };
    if steps::with(prepared, |worker| Ok(!worker.is_open())).unwrap_or(false) {
        return prepared;
    }
    let worker = ThreadContext::new(listener.version, id);
    let pointer = worker.public.as_ptr();
    registry::insert(pointer, worker);
    pointer
}

/// Takes the host in, on a thread of its own, or tells it why not.
pub(crate) fn admit(
    listener: &Arc<SwnaaListener>,
    request: &ConnectRequest,
) -> Result<Arc<Mailbox>, HostRefusal> {
    let taken = match listener.take_slot() {
        Some(id) => accept(listener, request, id).inspect_err(|_| listener.leave_slot(id)),
        None => Err(HostRefusal::Full),
    };
    if let Err(why) = &taken {
        if !matches!(why, HostRefusal::Withdrawn) {
            server_log::warn(&format_args!("{} was refused: {why}", request.endpoints.remote));
        }
        let _ = listener.channel.reject(request.id, &private_data(&why.to_string()));
        listener.forget(request.id);
    }
    taken
}

/// C hosts print the text as it is: it ends with a zero and holds nothing they would interpret.
fn private_data(why: &str) -> Vec<u8> {
    let mut text: Vec<u8> = why.bytes().filter(|byte| *byte != b'%' && *byte != 0).take(147).collect();
    text.push(0);
    text
}

fn accept(
    listener: &Arc<SwnaaListener>,
    request: &ConnectRequest,
    id: u8,
) -> Result<Arc<Mailbox>, HostRefusal> {
    let (config, attr) = (&listener.config, listener.context().attr());
    let pd = listener.context().alloc_pd()?;
    let cq = listener.context().create_cq(naa_server::sizes::completions(config, attr))?;
    let qp = pd.create_qp(&cq, &cq, naa_server::sizes::queue_pair(config, attr))?;
    let share = config.limits.max_session_bytes.saturating_add(naa_server::sizes::page_slack(config));
    let quota = listener.budget.quota(share);
    let peer = request.endpoints.remote;
    let now = std::time::Instant::now();
    let session =
        ServerSession::new((request.id, listener.next_serial()), peer, (pd, qp), quota.clone(), config, now)?;
    let mailbox = Arc::new(Mailbox::new(&cq));
    // The route is made before the host can send anything.
    listener.route(request.id, mailbox.clone());
    listener.channel.accept(request.id, &session.qp, &verbs::ConnParam::default())?;
    let worker = init(listener, id);
    let connection = SwnaaSession::new(listener, session, quota, cq, mailbox.clone());
    steps::with(worker, |worker| {
        worker.connect(connection);
        Ok(())
    })?;
    listener.show_worker(id, worker);
    start_thread(listener, worker, id).map_err(|error| {
        drop_context(worker);
        listener.hide_worker(id);
        HostRefusal::Thread(error)
    })?;
    Ok(mailbox)
}

fn start_thread(listener: &Arc<SwnaaListener>, worker: *mut CommContext, id: u8) -> io::Result<()> {
    // SAFETY: plain memory, which the procedure frees.
    let args = unsafe { libc::malloc(size_of::<ThreadArgs>()) }.cast::<ThreadArgs>();
    if args.is_null() {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory));
    }
    // SAFETY: new memory of this size.
    unsafe { args.write(ThreadArgs { ctx: listener.program.as_ptr(), worker_id: id }) };
    let start = Start { listener: listener.clone(), procedure: listener.procedure(), args, worker, id };
    let start = Box::into_raw(Box::new(start));
    let mut thread = std::mem::MaybeUninit::uninit();
    // The C library's thread, for its stack: kernels are written for that size.
    // SAFETY: `run` takes the box; the thread's number is written before this returns.
    let code = unsafe { libc::pthread_create(thread.as_mut_ptr(), ptr::null(), run, start.cast()) };
    if code != 0 {
        // SAFETY: no thread has them.
        unsafe {
            drop(Box::from_raw(start));
            libc::free(args.cast());
        }
        return Err(io::Error::from_raw_os_error(code));
    }
    // SAFETY: written by `pthread_create`; the program's context lives, since it called with it.
    unsafe {
        listener.program.set_thread(id, thread.assume_init());
        libc::pthread_detach(thread.assume_init());
    }
    Ok(())
}

extern "C" fn run(start: *mut c_void) -> *mut c_void {
    // SAFETY: from `start_thread`, for this thread alone.
    let Start { listener, procedure, args, worker, id } = *unsafe { Box::from_raw(start.cast::<Start>()) };
    // SAFETY: `worker_procedure`, or a function of the program with this signature; it frees the arguments.
    unsafe { procedure(args.cast()) };
    // A panic has been reported by its hook, and the slot comes back all the same.
    let _ = catch_unwind(|| drop_context(worker));
    let _ = catch_unwind(AssertUnwindSafe(|| listener.give_slot_back(id)));
    ptr::null_mut()
}

/// Ends what the procedure has not, and forgets the context. Programs may still read its state for a while. If another
/// thread of the program uses it now, it stays.
fn drop_context(worker: *mut CommContext) {
    if let Ok(mut worker) = registry::remove::<ThreadContext>(worker) {
        worker.clean_up();
    }
}

/// # Safety
/// `args` is what a connection's thread is given, a `struct worker_args`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn worker_procedure(args: *mut c_void) -> *mut c_void {
    if !args.is_null() {
        // SAFETY: the caller's contract; the procedure owns the arguments.
        let ThreadArgs { ctx, worker_id } = unsafe { args.cast::<ThreadArgs>().read() };
        // SAFETY: from `malloc`.
        unsafe { libc::free(args) };
        // A panic has been reported by its hook.
        let _ = catch_unwind(|| serve(ctx, worker_id));
    }
    ptr::null_mut()
}

/// Serves the host in slot `id`, from its regions to its end.
fn serve(ctx: *mut c_void, id: u8) {
    let listener = registry::with(ctx, |handle: &mut ListenerHandle| Ok::<_, Misuse>(handle.0.clone()));
    let Ok(listener) = listener else { return };
    if usize::from(id) >= listener.program.places() {
        return;
    }
    // SAFETY: while a slot is used the program keeps its context.
    let worker = unsafe { listener.program.worker(id) };
    if steps::with(worker, ThreadContext::do_mrsp).is_ok() {
        while let Ok(true) = steps::with(worker, ThreadContext::receive_data_transfer) {
            let Ok(error) = steps::call_kernel(worker, listener.hook) else { break };
            let Ok(true) = steps::with(worker, |worker| worker.do_data_transfer(error)) else { break };
        }
    }
    let _ = steps::with(worker, |worker| {
        worker.clean_up();
        Ok(())
    });
}
