//! The file descriptors on which programs sleep in their own event loops.

use std::os::fd::{AsFd, OwnedFd};

use naa_udp::Waker;
use verbs::{Error, WaitOn};

const NO_NOTIFIER: Error = Error::Invalid("no descriptor was asked for to be armed");

#[derive(Debug)]
struct Notifier {
    on: WaitOn,
    waker: Waker,
    armed: bool,
}

/// The eventfds of a device: at most one eventfd for each set of objects to wait for.
#[derive(Debug, Default)]
pub(crate) struct Notifiers(Vec<Notifier>);

impl Notifiers {
    pub(crate) fn descriptor(&mut self, on: WaitOn) -> Result<OwnedFd, Error> {
        let failed = |e| Error::io("cannot create an eventfd", e);
        if let Some(notifier) = self.0.iter().find(|notifier| notifier.on == on) {
            return notifier.waker.as_fd().try_clone_to_owned().map_err(failed);
        }
        let waker = Waker::new().map_err(failed)?;
        let fd = waker.as_fd().try_clone_to_owned().map_err(failed)?;
        self.0.push(Notifier { on, waker, armed: false });
        Ok(fd)
    }

    pub(crate) fn arm(&mut self, on: &WaitOn) -> Result<(), Error> {
        let notifier = self.0.iter_mut().find(|notifier| notifier.on == *on).ok_or(NO_NOTIFIER)?;
        notifier.waker.drain();
        notifier.armed = true;
        Ok(())
    }

    /// Signals and disarms each armed eventfd whose completion queue or channel is ready. All other eventfds stay as
    /// they are.
    pub(crate) fn notify(&mut self, ready: impl Fn(&WaitOn) -> bool) {
        for notifier in self.0.iter_mut().filter(|notifier| notifier.armed) {
            if ready(&notifier.on) {
                notifier.armed = false;
                notifier.waker.wake();
            }
        }
    }

    pub(crate) fn forget(&mut self, gone: impl Fn(&WaitOn) -> bool) {
        self.0.retain(|notifier| !gone(&notifier.on));
    }
}
