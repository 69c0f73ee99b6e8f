//! Texts.

use std::ffi::{CStr, c_char};

use super::result::naa_result;
use crate::{boundary, last_error};

const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The version of the library, "0.1.0". The text stays.
#[unsafe(no_mangle)]
pub extern "C" fn naa_version() -> *const c_char {
    VERSION.as_ptr()
}

/// What went wrong last on this thread: who has to act, and the remedy. Valid until the next failure on this thread;
/// "" before the first, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn naa_last_error() -> *const c_char {
    last_error::get()
}

/// The name of a result, "NAA_ERROR_GONE"; "unknown" for a number that is none. The text stays.
#[unsafe(no_mangle)]
pub extern "C" fn naa_result_name(result: i32) -> *const c_char {
    naa_result::name_of(result).unwrap_or(c"unknown").as_ptr()
}

/// The code of the function that is called `name` by NAAICE or `naa serve`: "increment" is 1, "dgemm" is 18. 0 if
/// there is none. naa_session_find_function() asks an accelerator, and so knows kernels too.
///
/// # Safety
/// `name` is NULL or points to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_function_code(name: *const c_char) -> i32 {
    // SAFETY: the caller's contract.
    let name = unsafe { boundary::text(name) }.ok().flatten();
    name.and_then(mrsp::builtin::by_name).map_or(0, |code| code.get().into())
}
