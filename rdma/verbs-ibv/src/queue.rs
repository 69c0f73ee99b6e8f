//! Completion queues of the driver interface. Completions that were taken from the device during a wait are returned
//! first.

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

/// The most completions that are taken from the device at once during a wait.
const BATCH: usize = 16;
/// More completions than any queue holds.
const ALL: usize = usize::MAX;

pub(crate) fn waker() -> Result<Waker, Error> {
    Waker::new().map_err(|e| Error::io("cannot make an eventfd", e))
}

/// Ends waits on a completion queue or on a channel.
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

    /// Takes the pending interrupt, if there is one.
    pub(crate) fn take(&self) -> bool {
        // Loads the flag first, because waits spin on this function. The thread that the file descriptor woke drains
        // it: the descriptor may become readable only after the flag was taken.
        self.set.load(Ordering::Acquire) && self.set.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) cq: std::sync::Arc<sys::Cq>,
    pub(crate) interrupt: Interrupt,
    /// Completions taken from the device: at most as many as its queue holds, and those that came since.
    taken: Mutex<VecDeque<Wc>>,
}

impl Queue {
    pub(crate) fn new(cq: sys::Cq) -> Result<Self, Error> {
        Ok(Self { cq: cq.into(), interrupt: Interrupt::new()?, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, VecDeque<Wc>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes completions, oldest first.
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

    /// Whether a completion can be polled.
    pub(crate) fn is_ready(&self) -> io::Result<bool> {
        let mut taken = self.taken();
        if taken.is_empty() {
            self.cq.poll(BATCH, |wc| taken.push_back(wc))?;
        }
        Ok(!taken.is_empty())
    }

    /// Removes the completions of a destroyed queue pair: devices keep them, and may use its number again.
    pub(crate) fn forget(&self, qp: QpNum) {
        let mut taken = self.taken();
        // A failed queue has no completions to remove, and reports the error to the next caller that polls it.
        let _ = self.cq.poll(ALL, |wc| taken.push_back(wc));
        taken.retain(|wc| wc.qp != qp);
    }
}
