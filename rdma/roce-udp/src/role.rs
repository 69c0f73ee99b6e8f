//! The progress owner of a device, kept in one atomic word.
//!
//! | from | on | to |
//! |---|---|---|
//! | None | a caller begins to wait | Caller |
//! | None | nobody drove for a while | Thread |
//! | Thread | a caller begins to wait (and wakes the thread, which leaves) | Caller |
//! | Thread | device closes | None |
//! | Caller | its wait ends and another caller waits | Caller (the other; the word stays) |
//! | Caller | its wait ends | None |
//!
//! The word says which thread sleeps on the socket and makes the next turn. The word protects no data; the engine's
//! lock does that. The lock is held for at most one turn, and never while sleeping. All changes of the word except None
//! to Thread are made under the lock.

use std::sync::atomic::Ordering;

use crate::{
    sync::{AtomicBool, AtomicU32},
    waiters::Waiters,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    None,
    Thread,
    Caller,
}

/// The role, and a number that changes with every change of the role.
pub(crate) type Seen = (Role, u32);

#[derive(Debug)]
pub(crate) struct RoleWord {
    /// The low two bits hold the role; the other bits count the changes of the role.
    word: AtomicU32,
    /// Whether the progress thread sleeps until it is woken (deep sleep).
    deep: AtomicBool,
}

impl RoleWord {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU32::new(0), deep: AtomicBool::new(false) }
    }

    fn decode(word: u32) -> Role {
        match word & 3 {
            0 => Role::None,
            1 => Role::Thread,
            _ => Role::Caller,
        }
    }

    pub(crate) fn get(&self) -> Seen {
        let word = self.word.load(Ordering::Acquire);
        (Self::decode(word), word >> 2)
    }

    /// Changes the role to `to` if `from` accepts the present role. Returns the former role. If `from` does not accept
    /// the present role, returns the present role as an error.
    fn update(&self, from: impl Fn(Role) -> bool, to: Role) -> Result<Role, Role> {
        let bits = match to {
            Role::None => 0,
            Role::Thread => 1,
            Role::Caller => 2,
        };
        let step = |word: u32| from(Self::decode(word)).then(|| (word & !3).wrapping_add(4) | bits);
        let result = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, step);
        result.map(Self::decode).map_err(Self::decode)
    }

    /// Changes the role from `from` to `to`; returns false if the role has changed meanwhile.
    pub(crate) fn change(&self, from: Role, to: Role) -> bool {
        self.update(|role| role == from, to).is_ok()
    }

    /// Gives the role to a caller that begins to wait, unless another caller has it. Returns the former role.
    pub(crate) fn take(&self) -> Option<Role> {
        self.update(|role| role != Role::Caller, Role::Caller).ok()
    }

    /// Passes the role of a caller whose wait ends to a waiter, or to nobody if there is no waiter. Returns true if the
    /// progress thread sleeps deeply and must be woken.
    pub(crate) fn pass_on(&self, waiters: &mut Waiters) -> bool {
        if waiters.hand_over() {
            return false;
        }
        self.change(Role::Caller, Role::None);
        // Atomic exchanges of one variable are totally ordered: either this exchange sees that the thread sleeps
        // deeply, or the thread's exchange in `fall_asleep` comes later and sees the change of the role.
        self.deep.swap(false, Ordering::AcqRel)
    }

    /// Returns whether the progress thread may sleep until it is woken. The thread may do so if the role is still as it
    /// was `seen`.
    pub(crate) fn fall_asleep(&self, seen: Seen) -> bool {
        self.deep.swap(true, Ordering::AcqRel);
        let unchanged = self.get() == seen;
        if !unchanged {
            self.awake();
        }
        unchanged
    }

    pub(crate) fn awake(&self) {
        // This is an exchange, too, because after a plain store the thread could miss changes that a caller made just
        // before.
        self.deep.swap(false, Ordering::AcqRel);
    }
}
