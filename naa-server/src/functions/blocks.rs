//! The common part of built-in functions with arguments: the argument block is an input, the status block an output.

use mrsp::{
    ReturnCode,
    builtin::{Arguments, BLOCK_BYTES, StatusBlock},
};

use super::{bounds, pieces::copy};
use crate::{
    call::{Call, Failure, Parts, Purse, Stop},
    function::{Execution, Function, FunctionInfo},
};

/// A built-in function with its blocks.
#[derive(Debug)]
pub(super) struct Builtin {
    pub(super) info: FunctionInfo,
    /// Computes, and returns how many bytes of output 1 are a result.
    pub(super) compute: Compute,
}

pub(super) type Compute = fn(&Arguments, Data<'_>) -> Result<usize, Failure>;

/// Regions of a call except the two blocks.
#[derive(Debug)]
pub(super) struct Data<'a> {
    parts: Parts<'a>,
    pub(super) stop: &'a Stop,
    /// The quota for memory beside the regions.
    pub(super) purse: Purse<'a>,
}

impl<'a> Data<'a> {
    /// The first `bytes` of input `index`.
    pub(super) fn input(&mut self, index: usize, bytes: Option<u64>) -> Result<&'a [u8], Failure> {
        let region = self.parts.take_input(index).ok_or_else(|| missing("input", index))?;
        let (size, bytes) = (region.len(), bytes.and_then(|bytes| usize::try_from(bytes).ok()));
        let part = bytes.and_then(|bytes| region.get(..bytes));
        part.ok_or_else(|| misfit("input", index, size))
    }

    /// Output 1, which is not the same region as an input.
    pub(super) fn output(&mut self) -> Result<&'a mut [u8], Failure> {
        self.parts.take_output(1).ok_or_else(|| missing("output", 1))
    }

    /// The first `bytes` of output 1.
    pub(super) fn output_of(&mut self, bytes: Option<u64>) -> Result<&'a mut [u8], Failure> {
        let region = self.output()?;
        let len = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        match len {
            Some(len) if len <= region.len() => Ok(&mut region[..len]),
            _ => Err(Failure::OutputTooSmall { output: 1, needed: bytes }),
        }
    }

    /// Whether input 1 and output 1 are the same region.
    pub(super) fn is_in_place(&self) -> bool {
        self.parts.is_in_place(1, 1)
    }

    /// The first `bytes` of output 1, holding those of input 1, for a computation in place.
    pub(super) fn input_in_output(&mut self, bytes: Option<u64>) -> Result<&'a mut [u8], Failure> {
        if self.is_in_place() {
            return self.output_of(bytes);
        }
        let input = self.input(1, bytes)?;
        let output = self.output_of(bytes)?;
        copy(output, input, self.stop)?;
        Ok(output)
    }
}

fn missing(what: &str, index: usize) -> Failure {
    let text =
        format!("{what} {index} is missing or also serves as another; the catalogue lists the parameters");
    Failure::Arguments(text.into())
}

fn misfit(what: &str, index: usize, size: usize) -> Failure {
    Failure::Arguments(format!("{what} {index} has {size} bytes, fewer than the arguments say").into())
}

/// The failure of a call whose arguments are those of another function.
pub(super) fn foreign(arguments: &Arguments) -> Failure {
    Failure::Arguments(format!("the arguments are those of function {}", arguments.function()).into())
}

impl Function for Builtin {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn execution(&self, bytes: u64) -> Execution {
        bounds::execution(self.info.code, bytes)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), Failure> {
        let room = call.parts().take_output(0).ok_or_else(|| missing("output", 0))?.len();
        if room < BLOCK_BYTES {
            return Err(Failure::OutputTooSmall { output: 0, needed: Some(BLOCK_BYTES as u64) });
        }
        call.set_status(BLOCK_BYTES as u32);
        // The status of a failure is written first, so that a panic leaves no status of a former call. The arguments
        // are read before that, since input 0 may be the same region.
        let arguments = self.arguments(&call.parts());
        self.report(call, &Err(Failure::Internal("panicked".into())));
        let (stop, purse) = (call.stop(), call.purse());
        let result = arguments
            .and_then(|arguments| (self.compute)(&arguments, Data { parts: call.parts(), stop, purse }));
        self.report(call, &result);
        call.set_produced(0, BLOCK_BYTES);
        call.set_produced(1, result?);
        Ok(())
    }
}

impl Builtin {
    fn arguments(&self, parts: &Parts<'_>) -> Result<Arguments, Failure> {
        let block = parts.peek_input(0).ok_or_else(|| missing("input", 0))?;
        Arguments::decode(block).map_err(|error| Failure::Arguments(error.to_string().into()))
    }

    /// Writes the status block.
    fn report(&self, call: &mut Call<'_>, result: &Result<usize, Failure>) {
        if let Some(status) = call.parts().take_output(0).and_then(|region| region.first_chunk_mut()) {
            *status = self.status(result);
        }
    }

    fn status(&self, result: &Result<usize, Failure>) -> [u8; BLOCK_BYTES] {
        let block = BLOCK_BYTES as u64;
        let (code, detail, produced) = match result {
            Ok(bytes) => (None, 0, *bytes as u64),
            Err(Failure::OutputTooSmall { needed, .. }) => {
                (Some(ReturnCode::OUTPUT_TOO_SMALL), needed.unwrap_or(0), 0)
            }
            Err(Failure::OverLimit { needed, .. }) => (Some(ReturnCode::OVER_LIMIT), *needed, 0),
            Err(failure) => (Some(failure.code()), 0, 0),
        };
        let produced = [block, produced, 0, 0, 0, 0];
        StatusBlock { function: self.info.code, code, detail, produced }.encode()
    }
}
