//! Methods of a session that only async sessions and pools use.

use std::{os::fd::OwnedFd, sync::Arc};

use super::Session;
use crate::{Device, Error, Param, SessionConfig};

impl Session {
    /// Returns the same file descriptor as [`descriptor`](Self::descriptor), and keeps it open beyond the session.
    pub(crate) fn shared_descriptor(&mut self) -> Result<Arc<OwnedFd>, Error> {
        self.connection.shared_descriptor()
    }

    /// Returns how many calls were posted on this session.
    pub(crate) fn calls_posted(&self) -> u64 {
        self.posted
    }

    /// Returns true if the session is over because the accelerator is gone.
    pub(crate) fn is_peer_gone(&self) -> bool {
        self.is_peer_gone
    }

    /// Handles what has arrived while the session had no call; returns false if the session is over.
    pub(crate) fn is_alive(&mut self) -> bool {
        if self.not_over().is_ok()
            && let Err(error) = self.drain()
        {
            let _ = self.fail(error);
        }
        self.not_over().is_ok()
    }

    /// Sets the settings that a program can change back to those of `config`, so that another task can use the session.
    pub(crate) fn reset(&mut self, config: &SessionConfig) {
        self.parts.fill(None);
        self.wait = config.wait;
        // The limits were valid when the session was set up.
        if let Ok(limits) = config.limits() {
            self.limits = limits;
        }
    }

    /// Fills the parameters with the content of `params`, which must have the same sizes.
    pub(crate) fn fill(&mut self, params: &[Param<'_>]) -> Result<(), Error> {
        self.regions.fill(params)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }
}
