//! A store in a file of SQLite.

mod copies;
mod database;
mod lock;
mod schema;
mod writer;

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

pub use copies::{Restored, restore, revision_of};

use self::{database::Check, lock::Lock, writer::Writer};
use crate::{
    Batch, Done, Error, Revision, Snapshot, Store, Term, Watch,
    history::History,
    queue::{NoRoom, Operation, Queue, Request, Waiter, Write},
};

/// How a store is opened.
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// Bytes that the file may have at most.
    pub max_bytes: u64,
    /// The name of the virtual file system of SQLite that reads and writes the file, one that was registered in this process;
    /// SQLite's own if there is none.
    pub vfs: Option<String>,
}

impl Default for SqliteConfig {
    fn default() -> Self {
        Self { max_bytes: 256 << 20, vfs: None }
    }
}

/// A [`Store`] in one file, which one process at a time has open.
///
/// A thread owns the file. It takes all batches that wait and makes one transaction of them, so their callers share the time
/// that the disk takes to make it durable. When the store is dropped, what waits is still stored.
///
/// Beside the file FILE are FILE-wal, the newest changes, and FILE.lock, which says which process has the store open and what
/// was acknowledged last: a store that has less than that is refused ([`Error::Lost`]).
pub struct SqliteStore {
    path: Arc<Path>,
    queue: Arc<Queue>,
    history: Arc<History>,
    thread: Option<JoinHandle<()>>,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the store, or makes it if there is none; checks all of it and brings it to the version of this program.
    ///
    /// # Errors
    /// Fails with [`Error::InUse`] if another process, or another part of this process, has the store open. Fails with
    /// [`Error::Corrupt`], [`Error::Lost`], [`Error::Newer`] or [`Error::NotAStore`] if the file is not a sound store.
    /// Fails with [`Error::Full`], [`Error::ReadOnly`] or [`Error::Io`] if the operating system refuses an operation.
    pub fn open(path: &Path, config: &SqliteConfig) -> Result<Self, Error> {
        let path = &lock::resolve(path)?;
        let (lock, mark) = Lock::take(path)?;
        let database = database::Database::open(path, config, mark, Check::Everything)?;
        let queue = Arc::new(Queue::default());
        let history = Arc::new(History::new(database.state().revision));
        let writer = Writer::new(database, lock, history.clone());
        let thread = {
            let (queue, history) = (queue.clone(), history.clone());
            thread::Builder::new().name("naa-store".to_owned()).spawn(move || {
                let _closes = Closes { queue: queue.clone(), history };
                writer.run(&queue);
            })
        };
        let thread = thread.map_err(|why| Error::Io { path: path.to_owned(), why: why.to_string() })?;
        Ok(Self { path: Arc::from(path.as_path()), queue, history, thread: Some(thread) })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes everything that was acknowledged before the call into one file, which [`restore`] takes, while the store goes on
    /// working; a file of that name is replaced when the new one is complete and on disk. Gives the revision that it has.
    ///
    /// # Errors
    /// Fails with [`Error::CannotCopy`] if the file `to` cannot be written or is a file of the store itself, and with
    /// the error of the storage if the store cannot be read.
    pub fn backup(&self, to: &Path) -> Result<Revision, Error> {
        let to = copies::backup_destination(&self.path, to)?;
        copies::backup(&self.path, &self.ask(Request::Copy)?, &to)
    }

    /// Checks that a file is none of the store's own, for one that stands or will stand beside a backup.
    ///
    /// # Errors
    /// Fails with [`Error::CannotCopy`] if `to` is a file of the store itself, or if the metadata of its folder cannot
    /// be read.
    pub fn check_backup(&self, to: &Path) -> Result<(), Error> {
        copies::backup_destination(&self.path, to).map(drop)
    }

    /// Sends a request and waits for its result.
    fn ask<T: Send + 'static>(&self, request: impl FnOnce(Waiter<T>) -> Request) -> Result<T, Error> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done = move |result| {
            // The receiver lives until it has got the result.
            let _ = sender.send(result);
        };
        self.queue.push(request(Waiter::new(&self.path, Box::new(done))), NoRoom::Wait);
        receiver.recv().unwrap_or_else(|_| {
            let why = "the thread that writes ended".to_owned();
            Err(Error::Unknown { path: self.path.to_path_buf(), why })
        })
    }
}

impl Store for SqliteStore {
    fn claim(&self, seen: Term, next: Term) -> Result<(), Error> {
        let operation = Operation::Claim { seen, next };
        self.ask(|waiter| Request::Write(Write { operation, waiter })).map(drop)
    }

    fn append(&self, batch: Batch) -> Result<Revision, Error> {
        batch.check()?;
        self.ask(|waiter| Request::Write(Write { operation: Operation::Append(batch), waiter }))
    }

    fn append_with(&self, batch: Batch, done: Done<Revision>) {
        match batch.check() {
            Ok(_) => {
                let waiter = Waiter::new(&self.path, done);
                let write = Write { operation: Operation::Append(batch), waiter };
                self.queue.push(Request::Write(write), NoRoom::Refuse);
            }
            Err(why) => done(Err(why.into())),
        }
    }

    fn load(&self) -> Result<Snapshot, Error> {
        self.ask(Request::Load)
    }

    fn watch(&self, from: Revision) -> Result<Box<dyn Watch>, Error> {
        Ok(Box::new(self.history.watch(from)?))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.queue.close();
        // A thread cannot wait for its own end: one that drops the store while it answers ends later.
        if let Some(thread) = self.thread.take().filter(|t| t.thread().id() != thread::current().id()) {
            // If it panicked, that was printed.
            let _ = thread.join();
        }
    }
}

/// Nobody waits for a thread that ended, however it ended.
struct Closes {
    queue: Arc<Queue>,
    history: Arc<History>,
}

impl Drop for Closes {
    fn drop(&mut self) {
        self.queue.close();
        self.history.close();
        for request in self.queue.take().into_iter().flatten() {
            // The thread may unwind already: another panic may not leave this.
            let _ = catch_unwind(AssertUnwindSafe(|| request.refuse(Error::Closed)));
        }
    }
}
