//! The steps of a worker, by the pointer its program has.

use mrsp::ReturnCode;

use super::{
    connection::{StepError, ThreadContext},
    hook::Hook,
};
use crate::naaice::{layout::CommContext, registry};

pub(crate) fn with<T>(
    worker: *mut CommContext,
    act: impl FnOnce(&mut ThreadContext) -> Result<T, StepError>,
) -> Result<T, StepError> {
    registry::with(worker, act)
}

pub(crate) fn do_mrsp(worker: *mut CommContext) -> Result<(), StepError> {
    with(worker, ThreadContext::do_mrsp)
}

/// False if the host left instead of calling.
pub(crate) fn receive_data_transfer(worker: *mut CommContext) -> Result<bool, StepError> {
    with(worker, ThreadContext::receive_data_transfer)
}

/// False if the host left; it may have had the answer.
pub(crate) fn do_data_transfer(worker: *mut CommContext, error: u8) -> Result<bool, StepError> {
    with(worker, |worker| worker.do_data_transfer(error))
}

pub(crate) fn disconnect_and_cleanup(worker: *mut CommContext) -> Result<(), StepError> {
    with(worker, |worker| {
        worker.clean_up();
        Ok(())
    })
}

/// Calls the program's kernel for the call that arrived; what the host is told beside the results, 0 for nothing.
pub(crate) fn call_kernel(worker: *mut CommContext, hook: Hook) -> Result<u8, StepError> {
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
