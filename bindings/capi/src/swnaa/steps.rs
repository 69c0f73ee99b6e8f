//! The steps of a worker, by the pointer its program has.

use mrsp::ReturnCode;

use super::{
    connection::{Failed, Worker},
    hook::Hook,
};
use crate::naaice::{layout::Context, registry};

pub(crate) fn with<T>(
    worker: *mut Context,
    act: impl FnOnce(&mut Worker) -> Result<T, Failed>,
) -> Result<T, Failed> {
    registry::with(worker, act)
}

pub(crate) fn do_mrsp(worker: *mut Context) -> Result<(), Failed> {
    with(worker, Worker::do_mrsp)
}

/// False if the host left instead of calling.
pub(crate) fn receive_data_transfer(worker: *mut Context) -> Result<bool, Failed> {
    with(worker, Worker::receive_data_transfer)
}

/// False if the host left; it may have had the answer.
pub(crate) fn do_data_transfer(worker: *mut Context, error: u8) -> Result<bool, Failed> {
    with(worker, |worker| worker.do_data_transfer(error))
}

pub(crate) fn disconnect_and_cleanup(worker: *mut Context) -> Result<(), Failed> {
    with(worker, |worker| {
        worker.clean_up();
        Ok(())
    })
}

/// Calls the program's kernel for the call that arrived; what the host is told beside the results, 0 for nothing.
pub(crate) fn call_kernel(worker: *mut Context, hook: Hook) -> Result<u8, Failed> {
    let fncode = with(worker, |worker| Ok(worker.public.fncode()))?;
    let unknown = u8::try_from(ReturnCode::UNKNOWN_FUNCTION.get()).unwrap_or(u8::MAX);
    // A host's function 128.
    if fncode == 0 {
        return Ok(unknown);
    }
    match hook {
        Hook::Rpc(rpc) => {
            // SAFETY: the program's function, on the context of this thread, which no Rust reference leads to now.
            Ok(unsafe { rpc(fncode, worker) })
        }
        Hook::Match(matching) => {
            let mut kernel = None;
            // SAFETY: the program's function, which fills in a function or leaves null.
            unsafe { matching(fncode, &raw mut kernel) };
            let Some(kernel) = kernel else {
                return Ok(unknown);
            };
            // SAFETY: as above.
            unsafe { kernel(worker) };
            Ok(0)
        }
    }
}
