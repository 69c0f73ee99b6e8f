//! The functions of naaice_swnaa.h.

use std::{
    ffi::{c_int, c_void},
    fmt::Display,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    connection::{Failed, Worker},
    hook::{self, Hook, Match, Rpc},
    link::Mailbox,
    master::{CannotServe, Handle, Master},
    program::ProgramContext,
    rdma::{CmEvent, IbvWc},
    steps,
    worker::{self, Procedure, Refused},
};
use crate::{
    boundary,
    naaice::{
        context::{Layout, State},
        layout::Context,
        outcome::report,
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
const POLL_PATIENCE: Duration = Duration::from_millis(10);

/// Why a server's function failed.
#[derive(Debug, thiserror::Error)]
enum ServerError {
    #[error(transparent)]
    Misuse(#[from] Misuse),
    #[error(transparent)]
    CannotServe(#[from] CannotServe),
    #[error("a host was refused: {0}")]
    Refused(#[from] Refused),
    #[error(transparent)]
    Failed(#[from] Failed),
    #[error("{0}")]
    Argument(&'static str),
}

/// Why which function failed.
#[derive(Debug, thiserror::Error)]
#[error("naaice_swnaa_{name}: {error}")]
struct Named<E> {
    name: &'static str,
    error: E,
}

/// 0, or -1 with the reason for the thread and on standard error.
fn outcome<E: Display>(name: &'static str, f: impl FnOnce() -> Result<(), E>) -> c_int {
    let failed = |error: &Named<E>| {
        report(error);
        -1
    };
    boundary::guarded(failed, -1, || f().map(|()| 0).map_err(|error| Named { name, error }))
}

fn master_of(ctx: *mut c_void) -> Result<Arc<Master>, Misuse> {
    registry::with(ctx, |handle: &mut Handle| Ok(handle.0.clone()))
}

/// Starts a server and tells the program where its context is.
unsafe fn init(
    ctx: *mut *mut c_void,
    port: u16,
    places: c_int,
    (layout, hook): (Layout, Option<Hook>),
) -> Result<(), ServerError> {
    // SAFETY: the caller's contract.
    let Some(ctx) = (unsafe { boundary::exclusive(ctx) }) else {
        return Err(ServerError::Argument("the place for the context is NULL or unaligned"));
    };
    let hook = hook.ok_or(ServerError::Argument(match layout {
        Layout::Main => {
            "the program defines no match_function_code, which names its kernels; see swnaa_kernels.h, and link \
             where it is defined"
        }
        Layout::Next => "the function to be called is NULL",
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
    match Master::start(port, layout, hook, program) {
        Ok(master) => {
            registry::insert(program.as_ptr(), Handle(master));
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
    outcome("init_master", || unsafe { init(ctx, local_cm_port, DEFAULT_CONNECTIONS, (Layout::Main, hook)) })
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
    outcome("init_master_sized", || unsafe {
        init(ctx, local_cm_port, max_connections, (Layout::Main, hook))
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
    outcome("init_master_next", || unsafe { init(ctx, local_cm_port, max_connections, (Layout::Next, hook)) })
}

/// # Safety
/// `ctx` is NULL or leads to a pointer that may be NULL or a server's context; afterwards that is NULL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_shutdown_master(
    ctx: *mut *mut c_void,
    timeout_ms: c_int,
) -> c_int {
    outcome("shutdown_master", || {
        // SAFETY: the caller's contract.
        let Some(ctx) = (unsafe { boundary::exclusive(ctx) }) else {
            return Err(ServerError::Argument("the place of the context is NULL or unaligned"));
        };
        let master = master_of(*ctx)?;
        let patience = u64::try_from(timeout_ms).map_or(Duration::MAX, Duration::from_millis);
        master.shut_down(patience)?;
        registry::remove::<Handle>(*ctx)?;
        for id in (0..=u8::MAX).take(master.program.places()) {
            // SAFETY: the context lives, and has so many slots.
            let prepared = unsafe { master.program.worker(id) };
            // The context is one that naaice_swnaa_init_worker prepared and that no host connected to; or the pointer
            // is NULL.
            let _ = registry::remove::<Worker>(prepared);
        }
        // SAFETY: no slot is used, so no thread looks at it, and no function finds it any more.
        unsafe { master.program.free() };
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
    outcome("set_worker", || {
        master_of(ctx)?.set_procedure(procedure.unwrap_or(worker::worker_procedure));
        Ok::<_, ServerError>(())
    })
}

/// # Safety
/// `ctx` is NULL or leads to any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_worker(ctx: *mut *mut c_void, worker_id: u8) -> c_int {
    outcome("init_worker", || {
        // SAFETY: the caller's contract.
        let Some(ctx) = (unsafe { boundary::reference(ctx) }) else {
            return Err(ServerError::Argument("the place of the context is NULL or unaligned"));
        };
        master_of(*ctx)?.prepare_slot(worker_id)?;
        Ok(())
    })
}

/// # Safety
/// `comm_ctx` is NULL or where a pointer can be put.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_communication_context(
    comm_ctx: *mut *mut Context,
) -> c_int {
    outcome("init_communication_context", || {
        // SAFETY: the caller's contract.
        let Some(place) = (unsafe { boundary::exclusive(comm_ctx) }) else {
            return Err(ServerError::Argument("the place for the context is NULL or unaligned"));
        };
        let worker = Worker::new(Layout::Main, 0);
        *place = worker.public.as_ptr();
        registry::insert(*place, worker);
        Ok(())
    })
}

/// Handles the oldest request, if one comes within `patience`.
fn handle_request(master: &Arc<Master>, patience: Duration) -> Result<Option<Arc<Mailbox>>, ServerError> {
    let Some(request) = master.next_request(patience) else { return Ok(None) };
    match worker::admit(master, &request) {
        Ok(mailbox) => Ok(Some(mailbox)),
        // It was told so, or asks no more; the server is well.
        Err(Refused::Full | Refused::Withdrawn) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// # Safety
/// `ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_poll_and_handle_connection_event(ctx: *mut c_void) -> c_int {
    outcome("poll_and_handle_connection_event", || {
        handle_request(&master_of(ctx)?, POLLING_TIMEOUT).map(drop)
    })
}

/// # Safety
/// `ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_setup_connection(ctx: *mut c_void) -> c_int {
    outcome("setup_connection", || {
        let master = master_of(ctx)?;
        // SAFETY: the program calls with its context, so it lives.
        let timeout = unsafe { master.program.timeout() };
        let limit = Duration::try_from_secs_f64(timeout).ok().filter(|limit| !limit.is_zero());
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let is_late = || deadline.is_some_and(|at| Instant::now() >= at) || master.is_closing();
        let mut waiting = None;
        while !is_late() {
            match waiting.as_deref().map(Mailbox::is_confirmed) {
                Some(Some(true)) => return Ok(()),
                Some(None) => std::thread::sleep(Duration::from_millis(1)),
                Some(Some(false)) | None => waiting = handle_request(&master, POLLING_TIMEOUT)?,
            }
        }
        Err(ServerError::Failed(Failed::TimedOut(timeout)))
    })
}

/// # Safety
/// Both are any pointers; `ev` is not looked at.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_connection_requests(
    ctx: *mut c_void,
    _ev: *mut CmEvent,
) -> c_int {
    outcome("handle_connection_requests", || {
        let handled = handle_request(&master_of(ctx)?, Duration::ZERO)?;
        handled.map(drop).ok_or(ServerError::Argument("no host asks for a connection that can be had"))
    })
}

/// # Safety
/// Both are any pointers; `ev` is not looked at.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_connection_established(
    comm_ctx: *mut Context,
    _ev: *mut CmEvent,
) -> c_int {
    outcome("handle_connection_established", || steps::with(comm_ctx, Worker::established))
}

/// # Safety
/// `comm_ctx` is any pointer; `ev` is NULL or leads to a `struct rdma_cm_event`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_error(comm_ctx: *mut Context, ev: *mut CmEvent) -> c_int {
    outcome("handle_error", || {
        // SAFETY: the caller's contract.
        let Some(event) = (unsafe { boundary::reference(ev) }) else {
            return Err(Failed::Argument("the event is NULL or unaligned"));
        };
        steps::with(comm_ctx, |worker| {
            if event.is_error() {
                worker.end(State::Error);
                return Err(Failed::Argument("the event says that the connection failed"));
            }
            if event.is_disconnect() {
                worker.end(State::Finished);
            }
            Ok(())
        })
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_init_mrsp(comm_ctx: *mut Context) -> c_int {
    outcome("init_mrsp", || steps::with(comm_ctx, Worker::init_mrsp))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_do_mrsp(comm_ctx: *mut Context) -> c_int {
    outcome("do_mrsp", || steps::do_mrsp(comm_ctx))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_post_recv_mrsp(comm_ctx: *mut Context) -> c_int {
    outcome("post_recv_mrsp", || steps::with(comm_ctx, Worker::has_receive))
}

/// # Safety
/// `comm_ctx` is any pointer; `wc` is NULL or leads to a `struct ibv_wc`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_work_completion(
    wc: *mut IbvWc,
    comm_ctx: *mut Context,
) -> c_int {
    outcome("handle_work_completion", || {
        // SAFETY: the caller's contract.
        let Some(wc) = (unsafe { boundary::reference(wc) }) else {
            return Err(Failed::Argument("the completion is NULL or unaligned"));
        };
        let wc =
            wc.read().ok_or(Failed::Argument("the completion has an opcode or status of no use here"))?;
        steps::with(comm_ctx, |worker| worker.completed(&wc))
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_handle_mr_announce_and_request(comm_ctx: *mut Context) -> c_int {
    outcome("handle_mr_announce_and_request", || steps::with(comm_ctx, Worker::announced))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_send_message(
    comm_ctx: *mut Context,
    message_type: c_int,
    errorcode: u8,
) -> c_int {
    const MSG_MR_ERR: c_int = 0;
    const MSG_MR_A: c_int = 2;
    outcome("send_message", || {
        steps::with(comm_ctx, |worker| match message_type {
            MSG_MR_ERR => worker.give_up(errorcode),
            MSG_MR_A => worker.announced(),
            _ => Err(Failed::Argument("a server sends MSG_MR_A or MSG_MR_ERR")),
        })
    })
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_post_recv_data(comm_ctx: *mut Context) -> c_int {
    outcome("post_recv_data", || steps::with(comm_ctx, Worker::expect_call))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_receive_data_transfer(comm_ctx: *mut Context) -> c_int {
    outcome("receive_data_transfer", || steps::receive_data_transfer(comm_ctx).map(drop))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_do_data_transfer(
    comm_ctx: *mut Context,
    errorcode: u8,
) -> c_int {
    outcome("do_data_transfer", || steps::do_data_transfer(comm_ctx, errorcode).map(drop))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_write_data(comm_ctx: *mut Context, errorcode: u8) -> c_int {
    outcome("write_data", || steps::with(comm_ctx, |worker| worker.write_data(errorcode)))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_poll_cq_nonblocking(comm_ctx: *mut Context) -> c_int {
    outcome("poll_cq_nonblocking", || steps::with(comm_ctx, |worker| worker.poll(POLL_PATIENCE)).map(drop))
}

/// # Safety
/// `comm_ctx` is any pointer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn naaice_swnaa_disconnect_and_cleanup(comm_ctx: *mut Context) -> c_int {
    outcome("disconnect_and_cleanup", || steps::disconnect_and_cleanup(comm_ctx))
}
