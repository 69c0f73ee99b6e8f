//! What went wrong last, for each thread.

use std::{
    cell::RefCell,
    ffi::{CString, c_char},
    fmt::Display,
};

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps the text of `error` for this thread's [`get`].
pub(crate) fn set(error: &dyn Display) {
    // A zero would end the text for C.
    let text: Vec<u8> = error.to_string().into_bytes().into_iter().filter(|&byte| byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    // While the thread ends, the text is gone, and nobody can ask for it.
    let _ = LAST.try_with(|last| last.replace(text));
}

/// The text, valid until this thread's next failure; empty before the first.
pub(crate) fn get() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn text() -> String {
        // SAFETY: the text is of this thread, which sets no other meanwhile.
        unsafe { CStr::from_ptr(get()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn each_thread_has_its_own() {
        set(&"no route\0 to 10.9.0.1");
        assert_eq!(text(), "no route to 10.9.0.1");
        std::thread::spawn(|| assert_eq!(text(), "")).join().unwrap();
    }
}
