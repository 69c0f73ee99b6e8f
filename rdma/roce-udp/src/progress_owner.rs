//! The progress owner of a device, kept in one atomic word.
//!
//! | from | on | to |
//! |---|---|---|
//! | None | a caller begins to wait | Caller |
//! | None | the takeover timer expires, or a program arms a file descriptor | Thread |
//! | Thread | a caller begins to wait (and wakes the thread, which leaves) | Caller |
//! | Thread | device closes | None |
//! | Caller | its wait ends and another caller waits | Caller (the other caller; the word does not change) |
//! | Caller | its wait ends | None |
//!
//! [`ProgressOwnerWord`] stores a [`ProgressOwner`], which says which thread is the progress owner. The
//! progress owner sleeps on the socket and makes the next turn. The stored value protects no data, because
//! the engine's lock protects the device's state. A thread holds the engine's lock for at most one turn, and
//! never while it sleeps. The stored value changes only with the engine's lock held, except that the progress
//! thread changes it from `None` to `Thread` without the lock.

use std::{sync::atomic::Ordering, time::Duration};

use crate::{
    sync::{AtomicU32, AtomicU64},
    waiters::Waiters,
};

/// The longest time for which no thread is the progress owner. If no caller waits again within this time, the progress
/// thread becomes the progress owner. The shortest time is a half of it.
pub(crate) const TAKEOVER: Duration = Duration::from_micros(400);

/// Says which thread is the progress owner: the progress thread, a caller that waits, or no thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgressOwner {
    None = 0,
    Thread = 1,
    Caller = 2,
}

/// The [`ProgressOwner`] that a [`ProgressOwnerWord`] stores, and a number that changes whenever another
/// [`ProgressOwner`] is stored.
pub(crate) type OwnerSnapshot = (ProgressOwner, u32);

#[derive(Debug)]
pub(crate) struct ProgressOwnerWord {
    /// The low two bits hold the [`ProgressOwner`]; the other bits count its changes.
    word: AtomicU32,
    /// The time at which the takeover timer expires, in nanoseconds since the device was opened; 0 if the progress
    /// thread has noticed that the timer has expired, and the timer was not set again.
    expiry: AtomicU64,
}

impl ProgressOwnerWord {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), expiry: AtomicU64::new(0) }
    }

    fn decode(word: u32) -> ProgressOwner {
        match word & 3 {
            0 => ProgressOwner::None,
            1 => ProgressOwner::Thread,
            _ => ProgressOwner::Caller,
        }
    }

    pub(crate) fn get(&self) -> OwnerSnapshot {
        let word = self.word.load(Ordering::Acquire);
        (Self::decode(word), word >> 2)
    }

    /// Stores `to` if the function `from` returns true for the stored value, and returns the value that was stored
    /// before. If `from` returns false, the stored value stays and is returned as an error.
    fn update(
        &self,
        from: impl Fn(ProgressOwner) -> bool,
        to: ProgressOwner,
    ) -> Result<ProgressOwner, ProgressOwner> {
        let step = |word: u32| from(Self::decode(word)).then(|| (word & !3).wrapping_add(4) | to as u32);
        let result = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        result.map(Self::decode).map_err(Self::decode)
    }

    /// Stores `to` if `from` is stored; returns false if another value is stored.
    pub(crate) fn change(&self, from: ProgressOwner, to: ProgressOwner) -> bool {
        self.update(|role| role == from, to).is_ok()
    }

    /// Makes a caller the progress owner when this caller begins to wait. Returns the previous progress
    /// owner, or `None` if another caller is the progress owner.
    pub(crate) fn take(&self) -> Option<ProgressOwner> {
        self.update(|role| role != ProgressOwner::Caller, ProgressOwner::Caller).ok()
    }

    /// A caller that is the progress owner calls `pass_on` when its wait ends. Another waiting thread then becomes the
    /// progress owner. If no thread waits, no thread is the progress owner afterwards. Returns true if the caller must
    /// set the takeover timer to expire after [`TAKEOVER`]. `now` is in nanoseconds since the device was opened.
    ///
    /// While callers come and go, the timer is set again before it expires, at most once in half of [`TAKEOVER`], and
    /// the progress thread sleeps.
    pub(crate) fn pass_on(&self, waiters: &mut Waiters, now: u64) -> bool {
        const TAKEOVER_NANOS: u64 = TAKEOVER.as_nanos() as u64;
        if waiters.hand_over() {
            return false;
        }
        self.change(ProgressOwner::Caller, ProgressOwner::None);
        // All exchanges of one atomic variable have a total order, so the exchange here is either before or after the
        // exchange in `timer_expired`. If it is before, the progress thread sees in `timer_expired` that no thread is
        // the progress owner. If it is after, the caller finds the value 0 here and sets the timer.
        let expiry = self.expiry.fetch_or(0, Ordering::AcqRel);
        if expiry >= now + TAKEOVER_NANOS / 2 {
            return false;
        }
        self.expiry.store(now + TAKEOVER_NANOS, Ordering::Release);
        true
    }

    /// The progress thread calls `timer_expired` each time it wakes up, before it checks who is the progress owner.
    pub(crate) fn timer_expired(&self) {
        // An exchange also reads the old value, while a store would only write the new one. In `pass_on`, a caller
        // stores the progress owner and then exchanges `expiry`. If the exchange here reads what this caller wrote, the
        // progress thread also sees the progress owner that the caller stored.
        self.expiry.swap(0, Ordering::AcqRel);
    }
}
