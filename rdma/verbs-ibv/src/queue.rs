//! A completion queue as the seam has it: what was taken from the device while waiting is handed out first.

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

/// Completions taken from the device while waiting, at once.
const BATCH: usize = 16;
/// More than any queue holds.
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

    /// Takes the one interrupt, if there is one.
    pub(crate) fn take(&self) -> bool {
        // A load first: waits spin on this. The descriptor is drained by who was woken by it: it may become readable
        // only after this.
        self.set.load(Ordering::Acquire) && self.set.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) cq: std::sync::Arc<sys::Cq>,
    pub(crate) interrupt: Interrupt,
    /// At most what the device's queue holds, and what came since.
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

    /// Forgets the completions of a queue pair that is gone: devices leave them, and may use its number again.
    pub(crate) fn forget(&self, qp: QpNum) {
        let mut taken = self.taken();
        // A queue that fails has nothing to forget, and says so to who polls it.
        let _ = self.cq.poll(ALL, |wc| taken.push_back(wc));
        taken.retain(|wc| wc.qp != qp);
    }
}
