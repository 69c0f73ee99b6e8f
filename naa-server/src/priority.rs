//! How the operating system schedules the threads that compute.
//!
//! Threads that serve the network keep the priority of the process. Pool threads run below it, so that packets are
//! answered while they compute. An abandoned call runs only where a core has nothing else to do.
#![allow(unsafe_code)]

/// How many nice levels a pool thread is below the threads that serve the network.
const WORKER: i32 = 10;
/// How many nice levels an extra thread is below them. An extra thread serves a peer while all pool threads are taken,
/// and has priority over those.
const GUEST: i32 = 5;

/// A thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread(libc::pid_t);

impl Thread {
    pub(crate) fn current() -> Self {
        // SAFETY: the call takes nothing and always succeeds.
        Self(unsafe { libc::gettid() })
    }

    /// Lets the thread run only where a core has nothing else to do. A thread without privileges cannot raise its
    /// priority again, so it ends after this work.
    pub(crate) fn demote(self) {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters live as long as the call. A number that names no thread any more is an error.
        if unsafe { libc::sched_setscheduler(self.0, libc::SCHED_IDLE, &raw const parameters) } != 0 {
            let error = std::io::Error::last_os_error();
            tracing::debug!(%error, "a worker that nobody waits for keeps its priority");
        }
    }
}

/// Lets the calling thread run below the threads that serve the network.
pub(crate) fn become_worker() {
    nicer_by(WORKER);
}

/// Lets the calling thread run above the pool threads and below the threads that serve the network.
pub(crate) fn become_guest() {
    nicer_by(GUEST);
}

fn nicer_by(steps: i32) {
    // SAFETY: the calls take no pointers. On Linux, 0 names the calling thread.
    unsafe {
        let own = libc::getpriority(libc::PRIO_PROCESS, 0);
        // If this is not permitted, pool threads compete with the network threads for the cores.
        libc::setpriority(libc::PRIO_PROCESS, 0, own.saturating_add(steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_below_the_network_and_abandoned_work_below_all() {
        std::thread::spawn(|| {
            // SAFETY: no pointers.
            let priority = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            let before = priority();
            become_worker();
            assert_eq!(priority(), (before + WORKER).min(19));
            let own = Thread::current();
            std::thread::spawn(move || own.demote()).join().unwrap();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::sched_getscheduler(0) }, libc::SCHED_IDLE);
        })
        .join()
        .unwrap();
    }
}
