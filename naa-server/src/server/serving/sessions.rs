//! The open sessions of a server. A completion and an ended call have the serial number of their session, and a CM event
//! has the CM's identifier of the connection.

use rustc_hash::FxHashMap as HashMap;
use verbs::CmId;

use crate::session::ServerSession;

#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Sessions are boxed, so that an unused place in the hash map takes the memory of a pointer instead of a
    /// session.
    by_serial: HashMap<u64, Box<ServerSession>>,
    serials: HashMap<CmId, u64>,
    next_serial: u64,
}

impl Sessions {
    /// Returns a serial number that no other session has or had.
    pub(super) fn new_serial(&mut self) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        serial
    }

    pub(super) fn insert(&mut self, session: ServerSession) {
        self.serials.insert(session.id, session.serial);
        self.by_serial.insert(session.serial, Box::new(session));
    }

    pub(super) fn remove(&mut self, serial: u64) -> Option<Box<ServerSession>> {
        let session = self.by_serial.remove(&serial)?;
        self.serials.remove(&session.id);
        Some(session)
    }

    /// Returns the session with the serial number `serial`, or `None` if this session has ended.
    pub(super) fn get_mut(&mut self, serial: u64) -> Option<&mut ServerSession> {
        self.by_serial.get_mut(&serial).map(|session| &mut **session)
    }

    /// Returns the serial number of the session whose connection has the identifier `id`.
    pub(super) fn serial_of(&self, id: CmId) -> Option<u64> {
        self.serials.get(&id).copied()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ServerSession> {
        self.by_serial.values_mut().map(|session| &mut **session)
    }

    pub(super) fn serials(&self) -> Vec<u64> {
        self.by_serial.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_serial.len()
    }
}
