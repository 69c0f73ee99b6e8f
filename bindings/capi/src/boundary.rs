//! Where C calls in: panics end here, arguments are looked at, failures become text and a number.

use std::{
    ffi::{CStr, c_char},
    fmt::Display,
    panic::{AssertUnwindSafe, catch_unwind},
};

use crate::last_error;

/// What `f` gives, or `failed` with the error kept for the thread. A panic is a defect of this library, told as such.
pub(crate) fn guarded<T, E: Display>(
    failed: impl Fn(&E) -> T,
    panicked: T,
    f: impl FnOnce() -> Result<T, E>,
) -> T {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(error)) => {
            last_error::set(&error);
            failed(&error)
        }
        Err(_) => {
            last_error::set(&"a defect of this library: it panicked; please report what stderr says");
            panicked
        }
    }
}

/// A pointer from C as a reference, if it can be one.
///
/// # Safety
/// If `pointer` is not null and is aligned, it points to a `T` that nobody changes as long as the reference lives.
pub(crate) unsafe fn reference<'a, T>(pointer: *const T) -> Option<&'a T> {
    if pointer.is_aligned() {
        // SAFETY: the caller's contract.
        unsafe { pointer.as_ref() }
    } else {
        None
    }
}

/// A pointer from C as a mutable reference, if it can be one.
///
/// # Safety
/// If `pointer` is not null and is aligned, it points to a `T` that nobody else uses as long as the reference lives.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Option<&'a mut T> {
    if pointer.is_aligned() {
        // SAFETY: the caller's contract.
        unsafe { pointer.as_mut() }
    } else {
        None
    }
}

/// `count` elements from C. If `count` is 0, the slice is empty, whatever the pointer is. `None` if there cannot be so
/// many.
///
/// # Safety
/// If `pointer` is not null and is aligned, it points to `count` elements that nobody changes as long as the slice
/// lives.
pub(crate) unsafe fn elements<'a, T>(pointer: *const T, count: usize) -> Option<&'a [T]> {
    if count == 0 {
        return Some(&[]);
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if pointer.is_null() || !pointer.is_aligned() || !fits {
        return None;
    }
    // SAFETY: the caller's contract; the length was checked.
    Some(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Text from C; `None` for a null pointer, an error for text that is not UTF-8.
///
/// # Safety
/// If `pointer` is not null, it points to text that ends with a zero.
pub(crate) unsafe fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, std::str::Utf8Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's contract.
    unsafe { CStr::from_ptr(pointer) }.to_str().map(Some)
}
