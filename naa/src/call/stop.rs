//! Ctrl-C and SIGTERM: calls are given up, and no incomplete file stays behind.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use naa_batch::Interrupted;

/// Whether a signal came after [`listen`].
pub(super) static STOPPED: AtomicBool = AtomicBool::new(false);
/// The time in which the program may end in good order before it is ended.
const GRACE: Duration = Duration::from_secs(3);
/// The exit status that shells report after Ctrl-C.
pub(super) const EXIT_CODE: i32 = 130;

/// Installs the signal handlers. [`check`] reports signals that come after this.
pub(super) fn listen() -> anyhow::Result<()> {
    crate::signals::on_terminate(|| {
        STOPPED.store(true, Ordering::Relaxed);
        std::thread::sleep(GRACE);
        std::process::exit(EXIT_CODE);
    })
}

/// # Errors
/// [`Interrupted`] after a signal.
pub(super) fn check() -> Result<(), Interrupted> {
    if STOPPED.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
}
