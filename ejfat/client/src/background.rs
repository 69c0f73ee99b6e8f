//! Threads that run until they are not needed any more.

use std::{
    io,
    sync::mpsc::{self, Receiver, Sender},
    thread::{self, JoinHandle},
};

/// A thread that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Background {
    /// No message is ever sent: the thread ends when this is dropped.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread. `run` has to return when the channel that it gets is closed.
    pub(crate) fn start(name: &str, run: impl FnOnce(Receiver<()>) + Send + 'static) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || run(stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // The thread does not panic. If it ever did, the panic's message is already on standard error.
            let _ = thread.join();
        }
    }
}
