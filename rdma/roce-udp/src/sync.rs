//! Atomics and parking, from the standard library or from the model checker.

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32},
    thread::{Thread, current, park, park_timeout},
};

#[cfg(all(test, loom))]
pub(crate) use {
    loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32},
    model::{Thread, current, park, park_timeout},
};

/// Parking whose token is kept until it is used, like that of the standard library. The model checker's own parking
/// forgets the token if the thread yields or waits for a lock meanwhile.
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

    /// Parks without a time limit, because the model has no time and no code may depend on a time-out.
    pub(crate) fn park_timeout(_: std::time::Duration) {
        park();
    }
}
