//! The functions of naaice_swnaa.h.

use std::{
    ffi::{c_int, c_void},
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    connection::{StepError, ThreadContext},
    connection_thread::{self, HostRefusal, Procedure},
    hook::{self, Hook, Match, Rpc},
    listener::{CannotServe, ListenerHandle, SwnaaListener},
    program::ProgramContext,
    rdma::IbvWc,
    session::Mailbox,
    steps,
};
use crate::{
    boundary,
    naaice::{
        cm_event::{self, RdmaCmEvent},
        context::{HeaderVersion, State},
        host::RdmaCmEventType as Event,
        layout::CommContext,
        outcome::outcome,
        registry::{self, Misuse},
    },
};

/// MAX_CONNECTIONS of config.h.
const DEFAULT_CONNECTIONS: c_int = 64;
/// Ids of connections are bytes.
const MOST_CONNECTIONS: c_int = 256;
/// NAAICE's POLLING_TIMEOUT.
const POLLING_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a worker's poll sleeps at most. Long enough not to keep a core busy, short for whoever does other work.
const POLL_LIMIT: Duration = Duration::from_millis(10);

/// Why a server's function failed.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error(transparent)]
    Misuse(#[from] Misuse),
    #[error(transparent)]
    CannotServe(#[from] CannotServe),
    #[error("a host was refused: {0}")]
    Refused(#[from] HostRefusal),
    #[error(transparent)]
    Failed(#[from] StepError),
    #[error("{0}")]
    Argument(&'static str),
}

fn listener_of(ctx: *mut c_void) -> Result<Arc<SwnaaListener>, Misuse> {
    registry::with(ctx, |handle: &mut ListenerHandle| Ok(handle.0.clone()))
}

/// Starts a server and tells the program where its context is.
unsafe fn init(
    ctx: *mut *mut c_void,
    port: u16,
    places: c_int,
    (version, hook): (HeaderVersion, Option<Hook>),
) -> Result<(), ServerError> {
    // SAFETY: the caller's contract.
    let Some(ctx) = (unsafe { boundary::exclusive(ctx) }) else {
        return Err(ServerError::Argument("the place for the context is NULL or unaligned"));
    };
    let hook = hook.ok_or(ServerError::Argument(match version {
        HeaderVersion::Main => {
            "the program defines no match_function_code, which names its kernels; see swnaa_kernels.h, and link \
             where it is defined"
        }
        HeaderVersion::Next => "the function to be called is NULL",
    }))?;
    if !(1..=MOST_CONNECTIONS).contains(&places) {
        return Err(ServerError::Argument("MAX_CONNECTIONS is 1 to 256"));
    }
    let rpc = match hook {
        Hook::Rpc(rpc) => Some(rpc),
        Hook::Match(_) => None,
    };
    let program = ProgramContext::new(places as usize, rpc)
        .ok_or(ServerError::Argument("there is no memory for the server's context"))?;
    match SwnaaListener::start(port, version, hook, program) {
        Ok(listener) => {
            registry::insert(program.as_ptr(), ListenerHandle(listener));
            *ctx = program.as_ptr();
            Ok(())
        }
        Err(error) => {
            // SAFETY: the program does not know it.
            unsafe { program.free() };
            Err(error.into())
        }
    }
}

/// # Safety
/// `ctx` is NULL or where a pointer can be put.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_master(ctx: *mut *mut c_void, local_cm_port: u16) -> c_int {
    let hook = hook::linked().map(Hook::Match);
    // SAFETY: the caller's contract.
    outcome("naaice_swnaa_init_master", || unsafe {
        init(ctx, local_cm_port, DEFAULT_CONNECTIONS, (HeaderVersion::Main, hook))
    })
}

/// # Safety
/// `ctx` is NULL or where a pointer can be put; `matching` is NULL or a function with this signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_master_sized(
    ctx: *mut *mut c_void,
    local_cm_port: u16,
    max_connections: c_int,
    matching: Option<Match>,
) -> c_int {
    let hook = matching.or_else(hook::linked).map(Hook::Match);
    // SAFETY: the caller's contract.
    outcome("naaice_swnaa_init_master_sized", || unsafe {
        init(ctx, local_cm_port, max_connections, (HeaderVersion::Main, hook))
    })
}

/// # Safety
/// `ctx` is NULL or where a pointer can be put; `rpc_func` is NULL or a function with this signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_master_next(
    ctx: *mut *mut c_void,
    local_cm_port: u16,
    rpc_func: Option<Rpc>,
    max_connections: c_int,
) -> c_int {
    let hook = rpc_func.map(Hook::Rpc);
    // SAFETY: the caller's contract.
    outcome("naaice_swnaa_init_master_next", || unsafe {
        init(ctx, local_cm_port, max_connections, (HeaderVersion::Next, hook))
    })
}

/// # Safety
/// `ctx` is NULL or leads to a pointer that may be NULL or a server's context; afterwards that is NULL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_shutdown_master(
    ctx: *mut *mut c_void,
    timeout_ms: c_int,
) -> c_int {
    outcome("naaice_swnaa_shutdown_master", || {
        // SAFETY: the caller's contract.
        let Some(ctx) = (unsafe { boundary::exclusive(ctx) }) else {
            return Err(ServerError::Argument("the place of the context is NULL or unaligned"));
        };
        let listener = listener_of(*ctx)?;
        let limit = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        listener.shut_down(limit)?;
        registry::remove::<ListenerHandle>(*ctx)?;
        for id in (0..=u8::MAX).take(listener.program.places()) {
            // SAFETY: the context lives, and has so many slots.
            let prepared = unsafe { listener.program.worker(id) };
            // The context is one that naaice_swnaa_init_worker prepared and that no host connected to; or the pointer
            // is NULL.
            let _ = registry::remove::<ThreadContext>(prepared);
        }
        // SAFETY: no slot is used, so no thread looks at it, and no function finds it any more.
        unsafe { listener.program.free() };
        *ctx = std::ptr::null_mut();
        Ok(())
    })
}

/// # Safety
/// `ctx` is any pointer; `procedure` is NULL or a function with this signature, which frees its argument.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_set_worker(
    ctx: *mut c_void,
    procedure: Option<Procedure>,
) -> c_int {
    outcome("naaice_swnaa_set_worker", || {
        listener_of(ctx)?.set_procedure(procedure.unwrap_or(connection_thread::worker_procedure));
        Ok::<_, ServerError>(())
    })
}

/// # Safety
/// `ctx` is NULL or leads to any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_worker(ctx: *mut *mut c_void, worker_id: u8) -> c_int {
    outcome("naaice_swnaa_init_worker", || {
        // SAFETY: the caller's contract.
        let Some(ctx) = (unsafe { boundary::reference(ctx) }) else {
            return Err(ServerError::Argument("the place of the context is NULL or unaligned"));
        };
        listener_of(*ctx)?.prepare_slot(worker_id)?;
        Ok(())
    })
}

/// # Safety
/// `comm_ctx` is NULL or where a pointer can be put.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_communication_context(
    comm_ctx: *mut *mut CommContext,
) -> c_int {
    outcome("naaice_swnaa_init_communication_context", || {
        // SAFETY: the caller's contract.
        let Some(place) = (unsafe { boundary::exclusive(comm_ctx) }) else {
            return Err(ServerError::Argument("the place for the context is NULL or unaligned"));
        };
        let worker = ThreadContext::new(HeaderVersion::Main, 0);
        *place = worker.public.as_ptr();
        registry::insert(*place, worker);
        Ok(())
    })
}

/// Handles the oldest request, if one comes within `limit`.
fn handle_request(
    listener: &Arc<SwnaaListener>,
    limit: Duration,
) -> Result<Option<Arc<Mailbox>>, ServerError> {
    let Some(request) = listener.next_request(limit) else { return Ok(None) };
    match connection_thread::admit(listener, &request) {
        Ok(mailbox) => Ok(Some(mailbox)),
        // It was told so, or asks no more; the server is well.
        Err(HostRefusal::Full | HostRefusal::Withdrawn) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// # Safety
/// `ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_poll_and_handle_connection_event(ctx: *mut c_void) -> c_int {
    outcome("naaice_swnaa_poll_and_handle_connection_event", || {
        handle_request(&listener_of(ctx)?, POLLING_TIMEOUT).map(drop)
    })
}

/// # Safety
/// `ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_setup_connection(ctx: *mut c_void) -> c_int {
    outcome("naaice_swnaa_setup_connection", || {
        let listener = listener_of(ctx)?;
        // SAFETY: the program calls with its context, so it lives.
        let timeout = unsafe { listener.program.timeout() };
        let limit = Duration::try_from_secs_f64(timeout).ok().filter(|limit| !limit.is_zero());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let is_late = || deadline.is_some_and(|at| Instant::now() >= at) || listener.is_closing();
        let mut waiting = None;
        while !is_late() {
            match waiting.as_deref().map(Mailbox::is_confirmed) {
                Some(Some(true)) => return Ok(()),
                Some(None) => std::thread::sleep(Duration::from_millis(1)),
                Some(Some(false)) | None => waiting = handle_request(&listener, POLLING_TIMEOUT)?,
            }
        }
        Err(ServerError::Failed(StepError::TimedOut(timeout)))
    })
}

/// # Safety
/// Both are any pointers; `ev` is not looked at.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_connection_requests(
    ctx: *mut c_void,
    _ev: *mut RdmaCmEvent,
) -> c_int {
    outcome("naaice_swnaa_handle_connection_requests", || {
        let handled = handle_request(&listener_of(ctx)?, Duration::ZERO)?;
        handled.map(drop).ok_or(ServerError::Argument("no host asks for a connection that can be had"))
    })
}

/// # Safety
/// Both are any pointers; `ev` is not looked at.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_connection_established(
    comm_ctx: *mut CommContext,
    _ev: *mut RdmaCmEvent,
) -> c_int {
    outcome("naaice_swnaa_handle_connection_established", || {
        steps::with(comm_ctx, ThreadContext::established)
    })
}

/// # Safety
/// `comm_ctx` is any pointer; `ev` is NULL or leads to a `struct rdma_cm_event`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_error(
    comm_ctx: *mut CommContext,
    ev: *mut RdmaCmEvent,
) -> c_int {
    outcome("naaice_swnaa_handle_error", || {
        // SAFETY: the caller's contract.
        let event = unsafe { cm_event::read(ev) };
        let event = event.map_err(|_| StepError::Argument("the event is NULL or unaligned"))?;
        steps::with(comm_ctx, |worker| match event {
            Some(Event::Disconnected) => {
                worker.end(State::Finished);
                Ok(())
            }
            None | Some(Event::AddrResolved | Event::RouteResolved | Event::Established) => Ok(()),
            Some(_) => {
                worker.end(State::Error);
                Err(StepError::Argument("the event says that the connection failed"))
            }
        })
    })
}

/// Functions that take a worker's context only.
macro_rules! on_worker {
    ($($name:ident: $step:expr;)*) => {$(
        /// # Safety
        /// `comm_ctx` is any pointer.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(comm_ctx: *mut CommContext) -> c_int {
            outcome(stringify!($name), || steps::with(comm_ctx, $step))
        }
    )*};
}

on_worker! {
    naaice_swnaa_init_mrsp: ThreadContext::init_mrsp;
    naaice_swnaa_do_mrsp: ThreadContext::do_mrsp;
    naaice_swnaa_post_recv_mrsp: ThreadContext::has_receive;
    naaice_swnaa_handle_mr_announce_and_request: ThreadContext::announced;
    naaice_swnaa_post_recv_data: ThreadContext::expect_call;
    naaice_swnaa_receive_data_transfer: |worker| worker.receive_data_transfer().map(drop);
    naaice_swnaa_poll_cq_nonblocking: |worker| worker.poll(POLL_LIMIT).map(drop);
    naaice_swnaa_disconnect_and_cleanup: |worker| {
        worker.clean_up();
        Ok(())
    };
}

/// # Safety
/// `comm_ctx` is any pointer; `wc` is NULL or leads to a `struct ibv_wc`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_work_completion(
    wc: *mut IbvWc,
    comm_ctx: *mut CommContext,
) -> c_int {
    outcome("naaice_swnaa_handle_work_completion", || {
        // SAFETY: the caller's contract.
        let Some(wc) = (unsafe { boundary::reference(wc) }) else {
            return Err(StepError::Argument("the completion is NULL or unaligned"));
        };
        let wc =
            wc.read().ok_or(StepError::Argument("the completion has an opcode or status of no use here"))?;
        steps::with(comm_ctx, |worker| worker.completed(&wc))
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_send_message(
    comm_ctx: *mut CommContext,
    message_type: c_int,
    errorcode: u8,
) -> c_int {
    const MSG_MR_ERR: c_int = 0;
    const MSG_MR_A: c_int = 2;
    outcome("naaice_swnaa_send_message", || {
        steps::with(comm_ctx, |worker| match message_type {
            MSG_MR_ERR => worker.give_up(errorcode),
            MSG_MR_A => worker.announced(),
            _ => Err(StepError::Argument("a server sends MSG_MR_A or MSG_MR_ERR")),
        })
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_do_data_transfer(
    comm_ctx: *mut CommContext,
    errorcode: u8,
) -> c_int {
    outcome("naaice_swnaa_do_data_transfer", || {
        steps::with(comm_ctx, |worker| worker.do_data_transfer(errorcode)).map(drop)
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_write_data(comm_ctx: *mut CommContext, errorcode: u8) -> c_int {
    outcome("naaice_swnaa_write_data", || steps::with(comm_ctx, |worker| worker.write_data(errorcode)))
}
