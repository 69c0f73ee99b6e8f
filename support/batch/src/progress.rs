//! What calls tell while they go on, and how they are interrupted.

use std::{
    net::SocketAddr,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

/// Why a call was given up.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// What a call does now.
#[derive(Clone, Copy, Debug)]
pub enum Phase<'a> {
    /// The call waits for a session with this accelerator.
    Connecting(SocketAddr),
    /// This file is read into a region.
    Reading(&'a Path),
    /// This number of bytes is sent, then the accelerator computes.
    Computing(u64),
    /// A result of this number of bytes is written.
    Writing(u64),
}

/// Learns what a call does.
pub trait Progress {
    /// A phase begins.
    fn phase(&mut self, phase: Phase<'_>);

    /// The call goes on. This is called ten times a second at least, except while a file is read or written slowly.
    ///
    /// # Errors
    /// If the call is to be given up.
    fn tick(&mut self) -> Result<(), Interrupted>;
}

/// The progress of a call in a batch, which tells nothing and ends the call if the flag is set.
pub(crate) struct Flag<'a>(pub(crate) &'a AtomicBool);

impl Progress for Flag<'_> {
    fn phase(&mut self, _: Phase<'_>) {}

    fn tick(&mut self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }
}
