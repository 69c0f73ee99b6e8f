//! Ctrl-C, SIGTERM, or the end of standard input tells a process to end; SIGHUP tells a service to read its files again.

use std::{
    io::IsTerminal as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

/// Signals this soon after the first one are ignored, so that the report can be printed. Supervisors and terminals often send
/// several at once.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the process was told to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// The functions that run before a second signal ends the process.
static LAST: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// Returns whether the process was told to end since [`on_terminate`] was called.
pub(crate) fn is_ending() -> bool {
    ENDING.load(Ordering::Relaxed)
}

/// Runs `last` when a second signal ends the process. It must not take long.
pub(crate) fn before_sudden_end(last: impl FnOnce() + Send + 'static) {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(last));
}

/// Runs `at_end` when the process is told to end. A second signal ends it at once, if it comes a second later or more.
pub(crate) fn on_terminate(at_end: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let (to_end, ended) = mpsc::channel();
    // This thread waits from the beginning: when the signal comes, there may be no memory to start one.
    let run_at_end = move || ended.recv().is_ok().then(at_end);
    std::thread::Builder::new().name("naa-end".into()).spawn(run_at_end)?;
    std::thread::Builder::new().name("naa-signals".into()).spawn(move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    ENDING.store(true, Ordering::Relaxed);
                    // This fails only if the other thread has ended, which it does after a signal.
                    let _ = to_end.send(());
                }
                Some(first) if first.elapsed() >= GRACE => {
                    let last = std::mem::take(&mut *LAST.lock().unwrap_or_else(PoisonError::into_inner));
                    last.into_iter().for_each(|last| last());
                    std::process::exit(128 + signal)
                }
                Some(_) => {}
            }
        }
    })?;
    Ok(())
}

/// Returns the receiver of the message that the process is to end: after a signal, or, with `until_eof`, when standard input ends.
pub(crate) fn end_channel(until_eof: bool) -> anyhow::Result<mpsc::Receiver<()>> {
    let (to_end, ended) = mpsc::channel();
    if until_eof {
        let to_end = to_end.clone();
        on_stdin_end(move || _ = to_end.send(()))?;
    }
    on_terminate(move || _ = to_end.send(()))?;
    Ok(ended)
}

/// Has SIGHUP set the flag that is returned, and no longer end the process, which is a service. A service that does not need the
/// signal ignores the flag. In a terminal SIGHUP means that the terminal is gone, so there it still ends the process.
pub(crate) fn on_hang_up() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::default();
    let in_terminal = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
    if !in_terminal {
        signal_hook::flag::register(SIGHUP, Arc::clone(&flag)).context("cannot watch for SIGHUP")?;
    }
    Ok(flag)
}

/// Handles SIGXFSZ, so that a write beyond the limit of `ulimit -f` returns an error and does not kill the process.
pub(crate) fn report_full_files() {
    // This fails only for signals that no program may handle.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::default());
}

/// Runs `at_end` when standard input ends. If standard input is a pipe to the parent process, it ends however the parent ends.
pub(crate) fn on_stdin_end(at_end: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let until_end = || {
        // An error counts as the end, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        at_end();
    };
    std::thread::Builder::new().name("naa-stdin".into()).spawn(until_end)?;
    Ok(())
}

/// Returns a function that tells whether standard input has ended.
pub(crate) fn watch_stdin() -> std::io::Result<impl Fn() -> bool> {
    let ended = Arc::<AtomicBool>::default();
    let end = ended.clone();
    on_stdin_end(move || end.store(true, Ordering::Relaxed))?;
    Ok(move || ended.load(Ordering::Relaxed))
}
