//! SHA-256 (FIPS 180-4).

use sha2::{Digest, Sha256};

use mrsp::builtin::Arguments;

use super::blocks::{CallData, foreign};
use crate::call::{CallFailure, Stop};

/// The number of bytes between two calls of [`Stop::check`].
const STRIDE: usize = 4 << 20;

/// Returns the SHA-256 digest of `data`.
pub fn compute(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

fn compute_until(data: &[u8], stop: &Stop) -> Result<[u8; 32], CallFailure> {
    let mut hasher = Sha256::new();
    for piece in data.chunks(STRIDE) {
        stop.check()?;
        hasher.update(piece);
    }
    Ok(hasher.finalize().into())
}

pub(super) fn run(arguments: &Arguments, mut data: CallData<'_>) -> Result<usize, CallFailure> {
    let &Arguments::Sha256 { bytes } = arguments else { return Err(foreign(arguments)) };
    let input = data.input(1, Some(bytes))?;
    let output = data.output_of(Some(32))?;
    output.copy_from_slice(&compute_until(input, data.stop)?);
    Ok(output.len())
}
