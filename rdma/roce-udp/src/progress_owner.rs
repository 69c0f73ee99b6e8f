//! The progress owner of a device, kept in one atomic word.
//!
//! | from | on | to |
//! |---|---|---|
//! | None | a caller begins to wait | Caller |
//! | None | no thread was the progress owner for a while | Thread |
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

use std::sync::atomic::Ordering;

use crate::{
    sync::{AtomicBool, AtomicU32},
    waiters::Waiters,
};

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
    /// True while the progress thread is in `EmbeddedDevice::watch` and no caller has woken it. In `watch`, the
    /// progress thread may sleep for up to a second. If `deep` is true when a caller's wait ends and no other caller
    /// waits, the caller must wake the progress thread.
    deep: AtomicBool,
}

impl ProgressOwnerWord {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), deep: AtomicBool::new(false) }
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
    /// progress owner. If no thread waits, no thread is the progress owner afterwards. Returns true if the progress
    /// thread is in the long sleep of `EmbeddedDevice::watch`, and must be woken now.
    pub(crate) fn pass_on(&self, waiters: &mut Waiters) -> bool {
        if waiters.hand_over() {
            return false;
        }
        self.change(ProgressOwner::Caller, ProgressOwner::None);
        // All exchanges of one atomic variable have a total order, so the exchange of `deep` here is either before or
        // after the exchange of `deep` in `fall_asleep`. If the exchange in `fall_asleep` happens before the exchange
        // here, the caller finds `deep` set here and wakes the progress thread. If the exchange here happens before the
        // exchange in `fall_asleep`, the progress thread sees in `fall_asleep` that the progress owner has changed, and
        // does not sleep.
        self.deep.swap(false, Ordering::AcqRel)
    }

    /// Returns true if the progress thread may begin the long sleep of `EmbeddedDevice::watch`. The progress
    /// thread may sleep only if the progress owner has not changed since [`Self::get`] returned `seen`.
    pub(crate) fn fall_asleep(&self, seen: OwnerSnapshot) -> bool {
        self.deep.swap(true, Ordering::AcqRel);
        let unchanged = self.get() == seen;
        if !unchanged {
            self.awake();
        }
        unchanged
    }

    pub(crate) fn awake(&self) {
        // An exchange also reads the old value of `deep`, while a store would only write `deep`. In `pass_on`, a caller
        // stores the progress owner and then writes `deep`. If the exchange reads what this caller wrote to `deep`, the
        // progress thread also sees the progress owner that the caller stored.
        self.deep.swap(false, Ordering::AcqRel);
    }
}
