//! Detects fork(): a child process has a copy of the device's memory, but none of the device's threads.

use std::sync::{
    Once,
    atomic::{AtomicU32, Ordering},
};

static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The number of forks between the process that first called `generation` and this process.
pub(crate) fn generation() -> u32 {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is allowed between fork and exec. `pthread_atfork` fails
        // only if memory runs out; after such a failure, forks are not noticed.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    GENERATION.load(Ordering::Relaxed)
}
