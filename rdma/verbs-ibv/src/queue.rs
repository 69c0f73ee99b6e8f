//! The completion queues of the driver interface. A poll first returns the completions that were taken from the device
//! during a wait.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use verbs::{Error, QpNum, Wc};

use crate::sys::{self, Waker};

/// The maximum number of completions that a wait takes from the device at once.
const BATCH: usize = 16;
/// A number that is larger than the number of completions in any queue.
const ALL: usize = usize::MAX;

pub(crate) fn waker() -> Result<Waker, Error> {
    Waker::new().map_err(|e| Error::io("cannot make an eventfd", e))
}

/// The request of `Driver::interrupt` to end one wait on a completion queue or on an event channel. The
/// request is a flag, and `waker` wakes the thread that sleeps in the wait.
#[derive(Debug)]
pub(crate) struct Interrupt {
    set: AtomicBool,
    pub(crate) waker: Waker,
}

impl Interrupt {
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { set: AtomicBool::new(false), waker: waker()? })
    }

    pub(crate) fn set(&self) {
        self.set.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Clears the request to end the wait. Returns true if there was a request.
    pub(crate) fn take(&self) -> bool {
        // The flag is loaded before it is swapped, because a load is cheaper and spinning threads call this function
        // often. This function does not drain the waker, because a drain could come too early: `set` sets the flag
        // first, and writes to the waker later. A thread that sleeps on the waker's file descriptor drains the waker
        // when the thread wakes up.
        self.set.load(Ordering::Acquire) && self.set.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct IbvCq {
    pub(crate) cq: std::sync::Arc<sys::RawCq>,
    pub(crate) interrupt: Interrupt,
    /// The completions that were taken from the device and that the program has not polled yet.
    taken: Mutex<VecDeque<Wc>>,
}

impl IbvCq {
    pub(crate) fn new(cq: sys::RawCq) -> Result<Self, Error> {
        Ok(Self { cq: cq.into(), interrupt: Interrupt::new()?, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Wc>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves completions to `out`, oldest first, and returns their number.
    pub(crate) fn poll(&self, out: &mut [Wc]) -> io::Result<usize> {
        let mut taken = self.taken();
        let early = taken.len().min(out.len());
        let room = out.len() - early;
        let mut places = out.iter_mut();
        let mut place = |wc| {
            if let Some(place) = places.next() {
                *place = wc;
            }
        };
        taken.drain(..early).for_each(&mut place);
        Ok(early + self.cq.poll(room, place)?)
    }

    /// Returns true if a completion can be polled.
    pub(crate) fn is_ready(&self) -> io::Result<bool> {
        let mut taken = self.taken();
        if taken.is_empty() {
            self.cq.poll(BATCH, |wc| taken.push_back(wc))?;
        }
        Ok(!taken.is_empty())
    }

    /// Removes the completions of a destroyed queue pair. A device may keep the completions of a destroyed queue pair,
    /// and may give the number of the destroyed queue pair to a new queue pair.
    pub(crate) fn forget(&self, qp: QpNum) {
        let mut taken = self.taken();
        // An error is ignored, because a failed queue has no completions to remove and reports the error to the next
        // caller that polls it.
        let _ = self.cq.poll(ALL, |wc| taken.push_back(wc));
        taken.retain(|wc| wc.qp != qp);
    }
}
