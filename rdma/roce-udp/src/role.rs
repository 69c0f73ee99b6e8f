//! Who drives the device: one word.
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
//! The word says who sleeps on the socket and whose business the next turn is. It protects nothing: the engine
//! has a lock, held for one turn at most and never while sleeping. All changes but None to Thread are made under
//! that lock.

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

/// The role, and a number that changes whenever it does.
pub(crate) type Seen = (Role, u32);

#[derive(Debug)]
pub(crate) struct RoleWord {
    /// The low two bits hold the role, the others count its changes.
    word: AtomicU32,
    /// The progress thread sleeps until roused.
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

    /// Moves to `to` if `from` holds; says whose the role was, or is otherwise.
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

    /// Moves from `from` to `to`; false when the role is another by now.
    pub(crate) fn change(&self, from: Role, to: Role) -> bool {
        self.update(|role| role == from, to).is_ok()
    }

    /// A caller begins to wait: it gets the role unless another caller has it. Returns whose it was.
    pub(crate) fn take(&self) -> Option<Role> {
        self.update(|role| role != Role::Caller, Role::Caller).ok()
    }

    /// The driving caller leaves: the role passes to a waiter, or to nobody. True when the progress thread sleeps
    /// deeply and must be roused.
    pub(crate) fn pass_on(&self, waiters: &mut Waiters) -> bool {
        if waiters.hand_over() {
            return false;
        }
        self.change(Role::Caller, Role::None);
        // Exchanges of one variable have an order: either this one sees that the thread sleeps deeply, or the
        // thread's `fall_asleep` came later and sees the change of the role.
        self.deep.swap(false, Ordering::AcqRel)
    }

    /// The progress thread may sleep until roused, if the role is still as it was `seen`.
    pub(crate) fn fall_asleep(&self, seen: Seen) -> bool {
        self.deep.swap(true, Ordering::AcqRel);
        let unchanged = self.get() == seen;
        if !unchanged {
            self.awake();
        }
        unchanged
    }

    pub(crate) fn awake(&self) {
        // Also an exchange: a store would hide what a caller that came just before it had done.
        self.deep.swap(false, Ordering::AcqRel);
    }
}
