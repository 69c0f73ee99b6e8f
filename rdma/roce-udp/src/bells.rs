//! The file descriptors on which programs sleep in their own event loops.

use std::os::fd::{AsFd, OwnedFd};

use verbs::{Error, WaitOn};

use crate::socket::Waker;

const NO_BELL: Error = Error::Invalid("no descriptor was asked for to be armed");

#[derive(Debug)]
struct Bell {
    on: WaitOn,
    waker: Waker,
    armed: bool,
}

/// The eventfds of a device: at most one eventfd for each set of objects to wait for.
#[derive(Debug, Default)]
pub(crate) struct Bells(Vec<Bell>);

impl Bells {
    pub(crate) fn descriptor(&mut self, on: WaitOn) -> Result<OwnedFd, Error> {
        let failed = |e| Error::io("cannot create an eventfd", e);
        if let Some(bell) = self.0.iter().find(|bell| bell.on == on) {
            return bell.waker.as_fd().try_clone_to_owned().map_err(failed);
        }
        let waker = Waker::new().map_err(failed)?;
        let fd = waker.as_fd().try_clone_to_owned().map_err(failed)?;
        self.0.push(Bell { on, waker, armed: false });
        Ok(fd)
    }

    pub(crate) fn arm(&mut self, on: &WaitOn) -> Result<(), Error> {
        let bell = self.0.iter_mut().find(|bell| bell.on == *on).ok_or(NO_BELL)?;
        bell.waker.drain();
        bell.armed = true;
        Ok(())
    }

    /// Signals each armed eventfd whose objects are ready, and disarms it.
    pub(crate) fn ring(&mut self, ready: impl Fn(&WaitOn) -> bool) {
        for bell in self.0.iter_mut().filter(|bell| bell.armed) {
            if ready(&bell.on) {
                bell.armed = false;
                bell.waker.wake();
            }
        }
    }

    pub(crate) fn forget(&mut self, gone: impl Fn(&WaitOn) -> bool) {
        self.0.retain(|bell| !gone(&bell.on));
    }
}
