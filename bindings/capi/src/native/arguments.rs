//! Arguments of built-in functions.

use std::{ffi::c_void, ops::RangeInclusive};

use mrsp::builtin::{
    ArgumentBlock, Arguments, BLOCK_BYTES, CRC32C, DGEMM, FFT, HISTOGRAM, LZ4_COMPRESS, LZ4_DECOMPRESS,
    SHA256, SORT, VECTOR_ADD, ZSTD_COMPRESS, ZSTD_DECOMPRESS,
};
use naa_host::FunctionCode;

use super::{
    call::function_code,
    naa_result,
    result::{Problem, guarded},
};
use crate::boundary;

/// Bytes of an argument block and of a status block.
pub const NAA_BLOCK_BYTES: usize = 64;

const _: () = assert!(NAA_BLOCK_BYTES == BLOCK_BYTES);

/// Writes the argument block of a built-in function (16 to 63) to `block`, of NAA_BLOCK_BYTES bytes.
///
/// Built-in functions take an argument block as their first input and give a status block as their first output, of
/// NAA_BLOCK_BYTES each:
///
/// | function          | values                                | inputs           | outputs       |
/// |-------------------|---------------------------------------|------------------|---------------|
/// | 16 sha256         | bytes                                 | data             | 32 bytes      |
/// | 17 crc32c         | bytes                                 | data             | uint32_t      |
/// | 18 dgemm          | m, n, k                               | A (m x k), B (k x n), double, by rows | C (m x n) |
/// | 19 fft            | n, 0 forward or 1 inverse             | n complex double | n complex double |
/// | 20 lz4-compress   | bytes                                 | data             | data          |
/// | 21 lz4-decompress | bytes                                 | data             | data          |
/// | 22 zstd-compress  | bytes, level (0: default)             | data             | data          |
/// | 23 zstd-decompress| bytes                                 | data             | data          |
/// | 24 vector-add     | n, type                               | a, b (n numbers) | a + b         |
/// | 25 histogram      | n, type, bins, lo, hi (bits of double)| n numbers        | bins + 3 uint64_t |
/// | 26 sort           | n, type, 0 ascending or 1 descending  | n numbers        | n numbers     |
///
/// Types: 0 uint8_t, 1 uint32_t, 2 int32_t, 3 uint64_t, 4 int64_t, 5 float, 6 double. How much of each output is a
/// result: naa_outcome.produced.
///
/// NAA_ERROR_ARGUMENT if the function is none of these or the values are not its.
///
/// # Safety
/// `block` points to NAA_BLOCK_BYTES bytes, `values` to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_arguments(
    block: *mut c_void,
    function: i32,
    values: *const i64,
    count: usize,
) -> naa_result {
    guarded(|| {
        if block.is_null() {
            return Err(Problem::NoPlace("block"));
        }
        // SAFETY: the caller's contract.
        let values = unsafe { boundary::elements(values, count) };
        let values = values
            .ok_or_else(|| Problem::argument("values is NULL or not aligned; it is an array of int64_t"))?;
        let encoded = encode(function, values)?;
        // SAFETY: the caller's contract; bytes need no alignment.
        unsafe { block.cast::<u8>().copy_from_nonoverlapping(encoded.as_ptr(), encoded.len()) };
        Ok(())
    })
}

/// How many values a built-in function has; those that are left out at the end are 0. `None`: it is none.
fn counts(function: FunctionCode) -> Option<RangeInclusive<usize>> {
    Some(match function {
        SHA256 | CRC32C | LZ4_COMPRESS | LZ4_DECOMPRESS | ZSTD_DECOMPRESS => 1..=1,
        ZSTD_COMPRESS => 1..=2,
        FFT | VECTOR_ADD => 2..=2,
        DGEMM | SORT => 3..=3,
        HISTOGRAM => 5..=5,
        _ => return None,
    })
}

fn encode(function: i32, values: &[i64]) -> Result<[u8; BLOCK_BYTES], Problem> {
    let function = function_code(function)?;
    if let Some(counts) = counts(function).filter(|counts| !counts.contains(&values.len())) {
        let (given, wanted) = (values.len(), counts.end());
        return Err(Problem::argument(format!(
            "function {function} has {wanted} values, and {given} are given"
        )));
    }
    let mut words = [0; 6];
    for (word, value) in words.iter_mut().zip(values) {
        *word = value.cast_unsigned();
    }
    let encoded = ArgumentBlock { function, words }.encode();
    Arguments::decode(&encoded).map_err(|error| Problem::argument(error.to_string()))?;
    Ok(encoded)
}
