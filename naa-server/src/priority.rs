//! The priorities that the operating system gives to the threads that compute.
//!
//! Threads that serve the network keep the priority of the process. Pool threads have a lower priority than the threads
//! that serve the network, so that packets are answered while pool threads compute. An abandoned call runs only while a
//! core has nothing else to do.
#![allow(unsafe_code)]

/// The number that a pool thread adds to its nice value. The threads that serve the network add nothing, so their
/// priority is higher than the priority of pool threads.
pub(crate) const POOL_THREAD: i32 = 10;
/// The number that an extra thread adds to its nice value. An extra thread is started for a source network while all
/// pool threads are taken. An extra thread has a higher priority than pool threads, so that the source network of this
/// thread is served at once.
pub(crate) const EXTRA_THREAD: i32 = 5;

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(libc::pid_t);

impl Thread {
    pub(crate) fn current() -> Self {
        // SAFETY: `gettid` has no arguments and always succeeds.
        Self(unsafe { libc::gettid() })
    }

    /// Lets the thread run only while a core has nothing else to do. A thread without privileges cannot raise its
    /// priority again, so a demoted pool thread ends after its call.
    pub(crate) fn demote(self) {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: `parameters` is a local variable that lives until `sched_setscheduler` returns. `sched_setscheduler`
        // returns an error if no thread has the ID `self.0`.
        if unsafe { libc::sched_setscheduler(self.0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "a worker that nobody waits for keeps its priority");
        }
    }
}

/// Lowers the priority of the calling thread by `steps` nice levels.
pub(crate) fn nicer_by(steps: i32) {
    // SAFETY: `getpriority` and `setpriority` take no pointers. On Linux, the id 0 names the calling thread.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        // If `setpriority` fails, the error is ignored, and the calling thread competes for the cores with the threads
        // that serve the network.
        libc::setpriority(libc::PRIO_PROCESS, 0, own.saturating_add(steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_below_the_network_and_abandoned_work_below_all() {
        std::thread::spawn(|| {
            // SAFETY: `getpriority` takes no pointers.
            let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = priority();
            nicer_by(POOL_THREAD);
            assert_eq!(priority(), (before + POOL_THREAD).min(19));
            let own = Thread::current();
            std::thread::spawn(move || own.demote()).join().unwrap();
            // SAFETY: `sched_getscheduler` takes no pointers.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
    }
}
