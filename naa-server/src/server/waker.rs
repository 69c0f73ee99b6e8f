//! Wakes the server's loop, wherever it sleeps.

use std::{
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, Weak},
};

use verbs::{Driver, WaitOn};

/// Others have clones. It does not keep the device.
#[derive(Clone, Debug)]
pub(super) struct Waker {
    driver: Weak<dyn Driver>,
    on: WaitOn,
    /// Where the loop sleeps on descriptors.
    bell: Option<Arc<UnixStream>>,
}

impl Waker {
    pub(super) fn new(driver: &Arc<dyn Driver>, on: WaitOn) -> Self {
        Self { driver: Arc::downgrade(driver), on, bell: None }
    }

    /// With a bell for loops that sleep on descriptors.
    pub(super) fn with_bell(self) -> io::Result<(Self, Bell)> {
        let (ring, hear) = UnixStream::pair()?;
        ring.set_nonblocking(true)?;
        hear.set_nonblocking(true)?;
        Ok((Self { bell: Some(Arc::new(ring)), ..self }, Bell(hear)))
    }

    pub(super) fn wake(&self) {
        if let Some(mut bell) = self.bell.as_deref() {
            // A full one rings already.
            let _ = bell.write(&[1]);
        }
        if let Some(driver) = self.driver.upgrade() {
            driver.interrupt(self.on);
        }
    }
}

/// Readable when somebody woke the loop.
#[derive(Debug)]
pub(super) struct Bell(UnixStream);

impl Bell {
    pub(super) fn hear(&mut self) {
        let mut heard = [0; 64];
        while self.0.read(&mut heard).is_ok_and(|count| count == heard.len()) {}
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
