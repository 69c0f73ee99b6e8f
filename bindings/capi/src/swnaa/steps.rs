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
            let Some(kernel) = kernel else { return Ok(unknown) };
            // SAFETY: as above.
            unsafe { kernel(worker) };
            Ok(0)
        }
    }
}
