//! Who drives the device: one word.
//!
//! | from | on | to |
//! |---|---|---|
//! | None | a caller begins to wait | Caller |
//! | None | nobody drove for a while | Thread |
//! | Thread | a caller begins to wait (and wakes the thread, which leaves) | Caller |
//! | Thread | device closes | None |
//! | Caller | its wait ends and another caller waits | Caller (the other) |
//! | Caller | its wait ends | None |
//!
//! The word says who sleeps on the socket and whose business the next turn is. It protects nothing: the engine
//! has a lock, held for one turn at most and never while sleeping.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    None,
    Thread,
    Caller,
}

/// The low two bits hold the role, the others count its changes.
#[derive(Debug)]
pub(crate) struct RoleWord(AtomicU32);

impl RoleWord {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn decode(word: u32) -> Role {
        match word & 3 {
            0 => Role::None,
            1 => Role::Thread,
            _ => Role::Caller,
        }
    }

    /// The role, and a number that changes whenever it does.
    pub(crate) fn get(&self) -> (Role, u32) {
        let word = self.0.load(Ordering::Acquire);
        (Self::decode(word), word >> 2)
    }

    /// Moves from `from` to `to`; false when the role is another by now.
    pub(crate) fn change(&self, from: Role, to: Role) -> bool {
        let bits = |role| match role {
            Role::None => 0,
            Role::Thread => 1,
            Role::Caller => 2,
        };
        let step = |word: u32| (Self::decode(word) == from).then(|| (word & !3).wrapping_add(4) | bits(to));
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, step).is_ok()
    }
}
