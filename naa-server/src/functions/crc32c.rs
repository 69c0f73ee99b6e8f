//! CRC-32C, the Castagnoli polynomial (RFC 3720, section 12.1).

use mrsp::builtin::Arguments;

use super::blocks::{CallData, foreign};
use crate::call::{CallFailure, Stop};

/// The number of bytes between two calls of [`Stop::check`].
const STRIDE: usize = 16 << 20;

/// Returns the checksum of `data`.
pub fn compute(data: &[u8]) -> u32 {
    ::crc32c::crc32c(data)
}

fn compute_until(data: &[u8], stop: &Stop) -> Result<u32, CallFailure> {
    data.chunks(STRIDE).try_fold(0, |crc, piece| {
        stop.check()?;
        Ok(::crc32c::crc32c_append(crc, piece))
    })
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Crc32c { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    let output = data.output_of(Some(4))?;
    output.copy_from_slice(&compute_until(input, data.stop)?.to_le_bytes());
    Ok(output.len())
}
