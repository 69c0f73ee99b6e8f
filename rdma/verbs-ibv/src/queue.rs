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
/// The limit that is passed to a poll so that the poll takes all completions of a queue. No queue has that many
/// completions.
const ALL: usize = usize::MAX;

pub(crate) fn waker() -> Result<Waker, Error> {
    Waker::new().map_err(|e| Error::io("cannot make an eventfd", e))
}

/// A request to end one wait on a completion queue or on an event channel. `Driver::interrupt` makes the request. The
/// flag `set` stores the request, and `waker` wakes a thread that sleeps in the wait.
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
        // often. This function does not drain the waker, that is, does not make its eventfd unreadable again. The
        // method `set` sets the flag first and writes to the eventfd later, so a drain here could come before the write
        // and have no effect. Instead, a thread that sleeps on the eventfd drains the waker when the thread wakes up.
        self.set.load(Ordering::Acquire) && self.set.swap(false, Ordering::AcqRel)
    }
}

#[derive(Debug)]
pub(crate) struct IbvCq {
    pub(crate) cq: std::sync::Arc<sys::RawCq>,
    pub(crate) interrupt: Interrupt,
    taken: Mutex<Taken>,
}

/// The completions that were taken from the device before the program polled them, and an error that the program has
/// not received yet.
#[derive(Debug, Default)]
struct Taken {
    completions: VecDeque<Wc>,
    /// The error that the last poll got from the device, but did not return because the poll returned completions. The
    /// program's next poll returns the error.
    error: Option<io::Error>,
}

impl Taken {
    /// Moves completions to `out`, oldest first, and returns their number. The function `device` moves completions from
    /// the device to its argument, and returns their number, together with an error if the device fails. If the device
    /// fails and there are completions to return, this call returns the completions, and the next call returns the
    /// error.
    fn poll(
        &mut self,
        out: &mut [Wc],
        device: impl FnOnce(&mut [Wc]) -> (usize, Option<io::Error>),
    ) -> io::Result<usize> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let early = self.completions.len().min(out.len());
        out.iter_mut().zip(self.completions.drain(..early)).for_each(|(place, wc)| *place = wc);
        let (polled, error) = device(&mut out[early..]);
        match error {
            Some(error) if early + polled == 0 => Err(error),
            error => {
                self.error = error;
                Ok(early + polled)
            }
        }
    }
}

impl IbvCq {
    pub(crate) fn new(cq: sys::RawCq) -> Result<Self, Error> {
        Ok(Self { cq: cq.into(), interrupt: Interrupt::new()?, taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves completions to `out`, oldest first, and returns their number.
    pub(crate) fn poll(&self, out: &mut [Wc]) -> io::Result<usize> {
        self.taken().poll(out, |places| {
            let (room, mut polled) = (places.len(), 0);
            let result = self.cq.poll(room, |wc| {
                places[polled] = wc;
                polled += 1;
            });
            (polled, result.err())
        })
    }

    /// Returns true if the next poll can return a completion, or an error that an earlier poll did not return.
    pub(crate) fn is_ready(&self) -> io::Result<bool> {
        let mut taken = self.taken();
        if taken.completions.is_empty() && taken.error.is_none() {
            self.cq.poll(BATCH, |wc| taken.completions.push_back(wc))?;
        }
        Ok(!taken.completions.is_empty() || taken.error.is_some())
    }

    /// Removes the completions of a destroyed queue pair. A device may keep these completions, and may give the QPN of
    /// the destroyed queue pair to a new queue pair. The kept completions would then count as completions of the new
    /// queue pair.
    pub(crate) fn forget(&self, qp: QpNum) {
        let mut taken = self.taken();
        // An error is ignored, because a failed queue has no completions to remove and reports the error to the next
        // caller that polls it.
        let _ = self.cq.poll(ALL, |wc| taken.completions.push_back(wc));
        taken.completions.retain(|wc| wc.qp != qp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_before_a_failure_are_returned_before_the_error() {
        let wc = |wr_id| Wc { wr_id, ..Wc::EMPTY };
        let mut taken = Taken { completions: [wc(1), wc(2)].into(), error: None };
        let mut out = [Wc::EMPTY; 4];
        let polled = taken.poll(&mut out, |places| {
            places[0] = wc(3);
            (1, Some(io::Error::other("failed")))
        });
        assert_eq!((polled.unwrap(), out.map(|wc| wc.wr_id)), (3, [1, 2, 3, 0]));
        assert!(taken.poll(&mut out, |_| panic!("the device has failed")).is_err());
        assert_eq!(taken.poll(&mut out, |_| (0, None)).unwrap(), 0);
        assert!(taken.poll(&mut out, |_| (0, Some(io::Error::other("failed")))).is_err());
    }
}
