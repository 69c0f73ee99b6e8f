//! Atomics and parking, from the standard library or from the model checker.

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64},
    thread::{Thread, current, park, park_timeout},
};

#[cfg(all(test, loom))]
pub(crate) use {
    loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64},
    model::{Thread, current, park, park_timeout},
};

/// Parking for the model checker: an unpark token is kept until a thread parks, as in the standard library. The model
/// checker's own parking loses a token that arrives while the thread yields or waits for a lock.
#[cfg(all(test, loom))]
mod model {
    use loom::sync::{Arc, Condvar, Mutex};

    #[derive(Clone, Debug)]
    pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar)>);

    loom::thread_local! {
        static THREAD: Thread = Thread(Arc::new((Mutex::new(false), Condvar::new())));
    }

    impl Thread {
        pub(crate) fn unpark(&self) {
            *self.0.0.lock().unwrap() = true;
            self.0.1.notify_all();
        }
    }

    pub(crate) fn current() -> Thread {
        THREAD.with(Clone::clone)
    }

    pub(crate) fn park() {
        let thread = current();
        let mut token = thread.0.0.lock().unwrap();
        while !std::mem::take(&mut *token) {
            token = thread.0.1.wait(token).unwrap();
        }
    }

    /// Parks without a time limit, because the model checker has no time. Code that needs the time-out would therefore
    /// hang in the model checker.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        park();
    }
}
