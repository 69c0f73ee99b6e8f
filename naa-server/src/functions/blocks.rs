//! The common part of built-in functions with arguments. The argument block is an input, and the status block is an
//! output.

use mrsp::{
    ReturnCode,
    builtin::{Arguments, BLOCK_BYTES, StatusBlock},
};

use super::{bounds, pieces::copy};
use crate::{
    call::{Call, CallFailure, Parts, ScratchQuota, Stop},
    function::{Execution, Function, FunctionInfo},
};

/// A built-in function that has an argument block and a status block.
#[derive(Debug)]
pub(super) struct Builtin {
    pub(super) info: FunctionInfo,
    /// The Rust function that executes a call and returns the length in bytes of the result in output 1.
    pub(super) compute: Compute,
}

pub(super) type Compute = fn(&Arguments, CallData<'_>) -> Result<usize, CallFailure>;

/// The regions of a call except the argument block and the status block.
#[derive(Debug)]
pub(super) struct CallData<'a> {
    parts: Parts<'a>,
    pub(super) stop: &'a Stop,
    /// The quota to which the scratch memory of the call is charged.
    pub(super) quota: ScratchQuota<'a>,
}

impl<'a> CallData<'a> {
    /// Takes input `index` and returns the first `bytes` bytes of this input. Fails if the call has no such input, if
    /// the region of the input was already taken, or if the input has fewer than `bytes` bytes. If the requested length
    /// does not fit in a `u64`, the caller passes `None` as `bytes`, and the method fails.
    pub(super) fn input(&mut self, index: usize, bytes: Option<u64>) -> Result<&'a [u8], CallFailure> {
        let region = self.parts.take_input(index).ok_or_else(|| missing("input", index))?;
        let (size, bytes) = (region.len(), bytes.and_then(|bytes| usize::try_from(bytes).ok()));
        let part = bytes.and_then(|bytes| region.get(..bytes));
        part.ok_or_else(|| misfit("input", index, size))
    }

    /// Takes the bytes of output 1. Fails if the call has no output 1, or if the region of output 1 was already taken
    /// as an input.
    pub(super) fn output(&mut self) -> Result<&'a mut [u8], CallFailure> {
        self.parts.take_output(1).ok_or_else(|| missing("output", 1))
    }

    /// Takes output 1 and returns the first `bytes` bytes of this output. Fails with [`CallFailure::OutputTooSmall`] if
    /// output 1 has fewer than `bytes` bytes. If the requested length does not fit in a `u64`, the caller passes `None`
    /// as `bytes`, and the method fails.
    pub(super) fn output_of(&mut self, bytes: Option<u64>) -> Result<&'a mut [u8], CallFailure> {
        let region = self.output()?;
        let len = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        match len {
            Some(len) if len <= region.len() => Ok(&mut region[..len]),
            _ => Err(CallFailure::OutputTooSmall { output: 1, needed: bytes }),
        }
    }

    /// Returns true if input 1 and output 1 are the same region.
    pub(super) fn is_in_place(&self) -> bool {
        self.parts.is_in_place(1, 1)
    }

    /// Takes output 1 for a computation in place, and returns the first `bytes` bytes of this output. If input 1 and
    /// output 1 are different regions, the first `bytes` bytes of input 1 are copied to output 1. Fails for the same
    /// reasons as [`input`](Self::input) and [`output_of`](Self::output_of). Also fails if [`Stop::check`] fails during
    /// the copy, and then returns the error of this check.
    pub(super) fn input_in_output(&mut self, bytes: Option<u64>) -> Result<&'a mut [u8], CallFailure> {
        if self.is_in_place() {
            return self.output_of(bytes);
        }
        let input = self.input(1, bytes)?;
        let output = self.output_of(bytes)?;
        copy(output, input, self.stop)?;
        Ok(output)
    }
}

fn missing(what: &str, index: usize) -> CallFailure {
    let text =
        format!("{what} {index} is missing or also serves as another; the catalogue lists the parameters");
    CallFailure::Arguments(text.into())
}

fn misfit(what: &str, index: usize, size: usize) -> CallFailure {
    CallFailure::Arguments(format!("{what} {index} has {size} bytes, fewer than the arguments say").into())
}

/// Returns the failure of a call whose `arguments` are those of another function.
pub(super) fn foreign(arguments: &Arguments) -> CallFailure {
    CallFailure::Arguments(format!("the arguments are those of function {}", arguments.function()).into())
}

impl Function for Builtin {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn execution(&self, bytes: u64) -> Execution {
        bounds::execution(self.info.code, bytes)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
        let room = call.parts().take_output(0).ok_or_else(|| missing("output", 0))?.len();
        if room < BLOCK_BYTES {
            return Err(CallFailure::OutputTooSmall { output: 0, needed: Some(BLOCK_BYTES as u64) });
        }
        call.set_status(BLOCK_BYTES as u32);
        // A failure is written into the status block before the computation, so that the host does not get
        // the status block of an earlier call if the computation panics. The arguments in input 0 are read
        // before the status block is written to output 0, because both may be the same region.
        let arguments = self.arguments(&call.parts());
        self.report(call, &Err(CallFailure::Internal("panicked".into())));
        let (stop, quota) = (call.stop(), call.scratch_quota());
        let result = arguments
            .and_then(|arguments| (self.compute)(&arguments, CallData { parts: call.parts(), stop, quota }));
        self.report(call, &result);
        call.set_produced(0, BLOCK_BYTES);
        call.set_produced(1, result?);
        Ok(())
    }
}

impl Builtin {
    fn arguments(&self, parts: &Parts<'_>) -> Result<Arguments, CallFailure> {
        let block = parts.peek_input(0).ok_or_else(|| missing("input", 0))?;
        Arguments::decode(block).map_err(|error| CallFailure::Arguments(error.to_string().into()))
    }

    /// Writes the status block for `result` to output 0.
    fn report(&self, call: &mut Call<'_>, result: &Result<usize, CallFailure>) {
        if let Some(status) = call.parts().take_output(0).and_then(|region| region.first_chunk_mut()) {
            *status = self.status(result);
        }
    }

    fn status(&self, result: &Result<usize, CallFailure>) -> [u8; BLOCK_BYTES] {
        let block = BLOCK_BYTES as u64;
        let (code, detail, produced) = match result {
            Ok(bytes) => (None, 0, *bytes as u64),
            Err(CallFailure::OutputTooSmall { needed, .. }) => {
                (Some(ReturnCode::OUTPUT_TOO_SMALL), needed.unwrap_or(0), 0)
            }
            Err(CallFailure::OverLimit { needed, .. }) => (Some(ReturnCode::OVER_LIMIT), *needed, 0),
            Err(failure) => (Some(failure.code()), 0, 0),
        };
        let produced = [block, produced, 0, 0, 0, 0];
        StatusBlock { function: self.info.code, code, detail, produced }.encode()
    }
}
