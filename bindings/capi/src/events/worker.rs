//! Subscriptions to a bridge's events.

use std::{
    ffi::{CString, c_char},
    os::fd::AsRawFd,
    ptr,
    time::Instant,
};

use naa_events::{BridgeAddress, Config, Event};

use super::{
    event::naa_event,
    options::{self, naa_worker_options},
};
use crate::{
    boundary,
    handles::{HandleTable, InUse, Misuse, WaitLimit},
    log,
    native::{
        address, naa_result,
        result::{Problem, guarded},
        session::give,
    },
};

/// A subscription to the events of a bridge.
#[derive(Debug)]
pub struct naa_worker(());

/// Counters of a worker since it was opened.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_worker_stats {
    /// Events that came.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often the bridge was found again.
    pub reconnects: u64,
    /// Events that were not released.
    pub held: u64,
}

static WORKERS: HandleTable<WorkerHandle> = HandleTable::new("a worker", 0x4e57);

#[derive(Debug)]
struct WorkerHandle {
    worker: naa_events::Worker,
    description: CString,
}

fn get(worker: *const naa_worker) -> Result<InUse<'static, WorkerHandle>, Misuse> {
    WORKERS.get(worker.addr())
}

/// Subscribes at a bridge. Returns when the bridge has answered, or could not.
///
/// `source`: "10.9.0.1", "10.9.0.1:12345", "[fd00::1]:12345" or a host's name: by RDMA. "unix:/run/naa-bridge.sock": the
/// socket of a bridge on this host, which puts events into memory that both map. `options`: NULL for the defaults.
/// `worker`: where the handle goes; NULL goes there after an error.
///
/// NAA_ERROR_UNREACHABLE, NAA_ERROR_TIMEOUT; NAA_ERROR_REFUSED, and the text has the bridge's reason; NAA_ERROR_FUNCTION if an
/// accelerator is there that is no bridge; NAA_ERROR_PEER; NAA_ERROR_ARGUMENT; NAA_ERROR_ENVIRONMENT, NAA_ERROR_DEVICE,
/// NAA_ERROR_MEMORY.
///
/// # Safety
/// The pointers lead to what is said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_open(
    source: *const c_char,
    options: *const naa_worker_options,
    worker: *mut *mut naa_worker,
) -> naa_result {
    guarded(|| {
        log::start();
        // SAFETY: the caller's contract.
        let (config, text) = unsafe {
            give(worker, ptr::null_mut(), "worker")?;
            (options::read(options)?, boundary::text(source))
        };
        let text = text.map_err(|_| Problem::argument("source is not UTF-8"))?;
        let text =
            text.ok_or_else(|| Problem::argument("source is NULL; give the bridge's, \"10.9.0.1\""))?;
        let opened = open(text, &config)?;
        let handle = WORKERS.insert(WorkerHandle { worker: opened, description: CString::default() })?;
        // SAFETY: the caller's contract.
        unsafe { give(worker, ptr::without_provenance_mut(handle), "worker") }
    })
}

/// Subscribes at the bridge that `text` names, at the first of its addresses that can be reached.
fn open(text: &str, config: &Config) -> Result<naa_events::Worker, Problem> {
    if text.starts_with("unix:") {
        let source = text.parse().map_err(naa_events::Error::from)?;
        return Ok(naa_events::Worker::open(&source, config)?);
    }
    let addresses = address::resolve(text)?;
    let opened =
        naa_host::try_each(text.trim(), &addresses, config.session.setup_timeout, |address, limit| {
            match naa_events::Worker::open_within(&BridgeAddress::Remote(address), config, limit) {
                Ok(worker) => Ok(Ok(worker)),
                Err(naa_events::Error::Session(error)) => Err(error),
                // The bridge was reached, so another address would not help.
                Err(error) => Ok(Err(error)),
            }
        });
    Ok(opened??)
}

/// Waits at most `timeout_ms` milliseconds for the next event; 0 only looks, a negative number is no limit. Release the
/// event by naa_event_release(): who keeps all of them gets no more.
///
/// A bridge that ended is looked for meanwhile, see naa_worker_options.reconnect_ms. Events of the old one stay readable.
///
/// NAA_ERROR_TIMEOUT if none came, with `data` NULL in `event`. NAA_ERROR_GONE if the bridge did not come back,
/// NAA_ERROR_REFUSED if it came back and refused, NAA_ERROR_PEER if it broke the protocol, NAA_ERROR_DEVICE: then the
/// subscription is over, and after that it is NAA_ERROR_OVER. NAA_ERROR_ARGUMENT; NAA_ERROR_STATE if another thread is using
/// the worker.
///
/// # Safety
/// `event` points to a naa_event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_next(
    worker: *mut naa_worker,
    timeout_ms: i32,
    event: *mut naa_event,
) -> naa_result {
    guarded(|| {
        // SAFETY: the caller's contract.
        unsafe { give(event, naa_event::NONE, "event") }?;
        let next = next(&mut get(worker)?.worker, timeout_ms)?;
        let next = next.ok_or(Problem::NoEvent(timeout_ms))?;
        // SAFETY: the caller's contract.
        unsafe { give(event, naa_event::hand_out(next)?, "event") }
    })
}

fn next(worker: &mut naa_events::Worker, timeout_ms: i32) -> Result<Option<Event>, Problem> {
    Ok(match options::limit(timeout_ms) {
        None => Some(worker.next()?),
        Some(limit) if limit.is_zero() => worker.try_next()?,
        Some(limit) => worker.next_until(Instant::now().checked_add(limit))?,
    })
}

/// Sets `fd` to a descriptor for poll(), epoll or an event loop. After naa_worker_next() with 0 ms gave nothing, it becomes
/// readable when it is time to call that again: call it until it gives nothing. Read nothing from it, and do not close
/// it: it is the worker's, whatever becomes of the bridge, and goes when the worker is closed.
///
/// NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the worker, NAA_ERROR_DEVICE.
///
/// # Safety
/// `fd` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_fd(worker: *mut naa_worker, fd: *mut i32) -> naa_result {
    guarded(|| {
        let mut worker = get(worker)?;
        let descriptor = worker.worker.descriptor()?.as_raw_fd();
        // SAFETY: the caller's contract.
        unsafe { give(fd, descriptor, "fd") }
    })
}

/// Sets `stats` to what the worker did so far.
///
/// NAA_ERROR_ARGUMENT, NAA_ERROR_STATE if another thread is using the worker.
///
/// # Safety
/// `stats` points to a naa_worker_stats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_get_stats(
    worker: *const naa_worker,
    stats: *mut naa_worker_stats,
) -> naa_result {
    guarded(|| {
        let naa_events::WorkerCounters { events, bytes, reconnects, held, .. } = get(worker)?.worker.stats();
        // SAFETY: the caller's contract.
        unsafe { give(stats, naa_worker_stats { events, bytes, reconnects, held }, "stats") }
    })
}

/// Which way events come, and why, for people. Valid until the next such call for this worker, or until it is closed;
/// NULL if `worker` is none or another thread is using it.
///
/// # Safety
/// None: `worker` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_describe(worker: *mut naa_worker) -> *const c_char {
    let mut text = ptr::null();
    guarded(|| {
        let mut worker = get(worker)?;
        // No text of ours has a zero byte.
        worker.description = CString::new(worker.worker.describe()).unwrap_or_default();
        text = worker.description.as_ptr();
        Ok(())
    });
    text
}

/// Ends the subscription and frees the worker; NULL is allowed. Events that were not released stay readable until they
/// are.
///
/// NAA_ERROR_ARGUMENT if `worker` is none, or was closed; NAA_ERROR_STATE if another thread is using it.
///
/// # Safety
/// None: `worker` is not looked through.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_worker_close(worker: *mut naa_worker) -> naa_result {
    guarded(|| {
        if !worker.is_null() {
            drop(WORKERS.remove(worker.addr(), WaitLimit::Brief)?);
        }
        Ok(())
    })
}
