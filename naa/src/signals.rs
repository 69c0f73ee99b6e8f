//! Ctrl-C and SIGTERM: say goodbye to peers before leaving.

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

/// Runs `goodbye` when the process is told to end. A second signal ends it at once.
pub(crate) fn on_terminate(goodbye: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::Builder::new().name("naa-signals".into()).spawn(move || {
        let mut goodbye = Some(goodbye);
        for signal in signals.forever() {
            let Some(goodbye) = goodbye.take() else { std::process::exit(128 + signal) };
            std::thread::spawn(goodbye);
        }
    })?;
    Ok(())
}
