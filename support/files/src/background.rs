//! Brings results of a stream to disk, beside the stream.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use crate::{ResultFolder, Unfinished};

/// Results wait so long for others, so that many of them cost as much as one.
const PERIOD: Duration = Duration::from_secs(1);
/// More results than this in a period are brought to disk with all of their file system.
const MOST_SINGLE: usize = 16;

/// A thread that brings results to disk after they got their names: within about a second, and all of them when
/// [`finish`](Self::finish) returns. The thread that writes results does not wait for the disk.
#[derive(Debug)]
pub struct Background {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    folder: Arc<ResultFolder>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<File>,
    /// There were more than `files`.
    more: bool,
    end: bool,
    failed: Option<io::Error>,
}

impl State {
    fn is_idle(&self) -> bool {
        self.files.is_empty() && !self.more
    }
}

impl Background {
    /// Starts the thread that brings results in `folder` to disk.
    ///
    /// # Errors
    /// Fails if the operating system starts no thread.
    pub fn start(folder: Arc<ResultFolder>) -> io::Result<Self> {
        let shared = Arc::new(Shared { folder, state: Mutex::default(), changed: Condvar::new() });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("naa-sync".into()).spawn(move || own.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Gives `file` a name that nothing has, as [`Unfinished::appear`] does, and brings its content and its name to
    /// disk. The file must be one of the folder.
    ///
    /// # Errors
    /// Fails if an earlier result was not brought to disk, or if the file cannot have the name.
    pub fn appear<'a>(&self, file: Unfinished<'a>, name: &OsStr) -> io::Result<Option<Unfinished<'a>>> {
        let mut state = self.shared.lock();
        if let Some(failed) = state.failed.take() {
            return Err(failed);
        }
        let has_place = state.files.len() < MOST_SINGLE;
        drop(state);
        // A file that cannot be kept open too is brought to disk with the others of its file system.
        let content = if has_place { file.duplicate().ok() } else { None };
        let unnamed = file.appear(name)?;
        if unnamed.is_none() {
            self.add(content);
        }
        Ok(unnamed)
    }

    /// The file has its name already: otherwise the thread might synchronise the folder before the name is in it, and
    /// not again afterwards.
    fn add(&self, content: Option<File>) {
        let mut state = self.shared.lock();
        let was_idle = state.is_idle();
        match content {
            Some(content) if state.files.len() < MOST_SINGLE => state.files.push(content),
            _ => state.more = true,
        }
        drop(state);
        if was_idle {
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every result and its name is on disk.
    ///
    /// # Errors
    /// Fails if a result was not brought to disk.
    pub fn finish(&mut self) -> io::Result<()> {
        self.shared.lock().end = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| io::Error::other("the thread that synchronises files panicked"))?;
        }
        self.shared.lock().failed.take().map_or(Ok(()), Err)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // An error is lost here; a program that wants to know of it calls `finish` before.
        let _ = self.finish();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            while state.is_idle() && !state.end {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let waited = self.changed.wait_timeout_while(state, PERIOD, |state| !state.end);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_idle() && state.end {
                return;
            }
            let (files, more) = (std::mem::take(&mut state.files), std::mem::take(&mut state.more));
            drop(state);
            let done = self.sync(&files, more);
            state = self.lock();
            if let Err(error) = done {
                state.failed.get_or_insert(error);
            }
        }
    }

    fn sync(&self, files: &[File], more: bool) -> io::Result<()> {
        if more {
            return self.folder.sync_all();
        }
        files.iter().try_for_each(File::sync_data)?;
        self.folder.sync()
    }
}
