//! How a call ended, for C.

use mrsp::builtin::StatusBlock;
use naa_host::{CallOutcome, FunctionCode};

use super::{naa_result, result::naa_result::*};

/// How a call ended.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct naa_outcome {
    /// NAA_OK, NAA_ERROR_FUNCTION, or why the session is over.
    pub result: naa_result,
    /// The function that was called, 1 to 127; 0: there was no call.
    pub function: i32,
    /// The function's return code, 24 bits; 0: success. Codes below 0x40 have a meaning that naa_last_error() tells.
    pub return_code: u32,
    /// With NAA_DIALECT_NEXT, 24 bits from the function.
    pub user: u32,
    /// Bytes of the last output region that were written by the accelerator.
    pub last_output_bytes: u64,
    /// From the status block of a built-in function (16 to 63): with return code 0x13 (output too small) the bytes that
    /// are needed, 0 if unknown.
    pub detail: u64,
    /// Bytes of each output region that are a result, also from the status block. Output 0 is the status block itself. All 0 for other
    /// functions.
    pub produced: [u64; 6],
}

impl naa_outcome {
    pub(super) const NONE: Self = Self {
        result: NAA_OK,
        function: 0,
        return_code: 0,
        user: 0,
        last_output_bytes: 0,
        detail: 0,
        produced: [0; 6],
    };

    /// A call whose session is over, or that still runs.
    pub(super) fn without_answer(result: naa_result, function: Option<FunctionCode>) -> Self {
        Self { result, function: function.map_or(0, |function| function.get().into()), ..Self::NONE }
    }

    pub(super) fn of(outcome: &CallOutcome, status: Option<&StatusBlock>) -> Self {
        use naa_host::CallResponse::{Failure, Success, User};
        let (result, return_code, user) = match outcome.answer {
            Success => (NAA_OK, 0, 0),
            Failure(code) => (NAA_ERROR_FUNCTION, code.get(), 0),
            User(user) => (NAA_OK, 0, user.get()),
        };
        Self {
            result,
            function: outcome.function.get().into(),
            return_code,
            user,
            last_output_bytes: outcome.last_write_bytes.into(),
            detail: status.map_or(0, |status| status.detail),
            produced: status.map_or([0; 6], |status| status.produced),
        }
    }
}
