//! An event that a program has.

use std::{fmt, sync::Arc};

use ejfat::ring::{Descriptor, Given};

use crate::ring::Ring;

/// An event, where the bridge put it. Dropped, it is given back, and its slots are used again.
///
/// It keeps its ring, also when the bridge is gone and the worker has another one. Its bytes do not change as long as the
/// bridge keeps to the protocol; [`bytes`](Self::bytes) rests on that, as results do over devices that do not revoke
/// ([`naa_host::Session`]). Subscribe to bridges that you trust.
#[must_use = "an event that is dropped is given back"]
pub struct Event {
    ring: Arc<Ring>,
    given: Given,
}

impl Event {
    pub(crate) fn new(ring: Arc<Ring>, given: Given) -> Self {
        Self { ring, given }
    }

    /// In place.
    pub fn bytes(&self) -> &[u8] {
        self.ring.bytes(&self.given)
    }

    /// What the bridge says of it: name, tick, when its first segment came.
    pub fn descriptor(&self) -> &Descriptor {
        self.given.descriptor()
    }
}

impl AsRef<[u8]> for Event {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Event").field(self.descriptor()).finish()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.ring.give_back(self.given);
    }
}
