//! The open file: what a transaction does to it.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

use super::{
    SqliteConfig,
    lock::{self, Mark},
    schema::{self, corrupt},
};
use crate::{
    Change, Error, Revision, Snapshot,
    queue::Operation,
    record::{Record, State},
};

/// Bytes of a page. Records are small and lie anywhere, so most of what a batch writes are pages that it changes a little:
/// small ones take less time to sync.
const PAGE: u64 = 1024;

/// From this size of the log on, in pages, it is copied into the file.
const CHECKPOINT_PAGES: i64 = 4_000;

/// At this size of the log, in pages, nothing more is written until it could be copied into the file.
const MAX_LOG_PAGES: i64 = 64_000;

/// What is checked when a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    Everything,
    /// The state alone, of a file that was checked before.
    State,
}

#[derive(Debug)]
pub(crate) struct Database {
    connection: Connection,
    path: PathBuf,
    state: State,
    /// Why the end of a transaction failed, as long as that may come out of the log when the file is opened again.
    doubt: Option<Error>,
}

/// What a transaction did: the state after it, and for each operation whether it was refused, or the revision after it.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) state: State,
    pub(crate) results: Vec<Result<Revision, Error>>,
}

impl Database {
    /// Opens the file, or makes it.
    pub(crate) fn open(path: &Path, config: &SqliteConfig, mark: Mark, check: Check) -> Result<Self, Error> {
        let failed = |why: rusqlite::Error| schema::refusal(path, &why);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        bring_log_to_disk(path).map_err(|why| lock::refusal(path, &why))?;
        let connection = match &config.vfs {
            None => Connection::open_with_flags(path, flags),
            Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs.as_str()),
        };
        let connection = connection.map_err(failed)?;
        let set = |name: &str, value: &str| {
            connection.pragma_update_and_check(None, name, value, |_| Ok(())).or_else(|why| match why {
                // Some pragmas say what they are set to, some do not.
                rusqlite::Error::QueryReturnedNoRows => Ok(()),
                why => Err(why),
            })
        };
        let [page, pages] = [PAGE, (config.max_bytes / PAGE).max(1)].map(|n| n.to_string());
        for (name, value) in [
            ("page_size", page.as_str()),
            ("locking_mode", "EXCLUSIVE"),
            // EXTRA is the same as FULL if the store has a log. The change to a log has a journal, whose removal is brought to
            // disk too: if it came back after a power cut, it would undo what was stored since.
            ("synchronous", "EXTRA"),
            ("wal_autocheckpoint", "0"),
            ("trusted_schema", "OFF"),
            ("cell_size_check", "ON"),
            ("temp_store", "MEMORY"),
        ] {
            set(name, value).map_err(failed)?;
        }
        schema::recognize(&connection, path)?;
        let mode = "PRAGMA journal_mode = WAL";
        let mode = connection.query_row(mode, [], |row| row.get::<_, String>(0)).map_err(failed)?;
        if mode != "wal" {
            let why = format!("its journal mode is {mode} and cannot be changed");
            return Err(Error::Io { path: path.to_owned(), why });
        }
        set("max_page_count", &pages).map_err(failed)?;
        schema::migrate(&connection, path)?;
        let state = match check {
            Check::Everything => schema::verify(&connection, path)?,
            Check::State => schema::read_state(&connection, path)?,
        };
        if state.revision < mark.revision || state.term < mark.term {
            return Err(Error::Lost {
                path: path.to_owned(),
                mark: lock::path_of(path),
                found: state.revision,
                found_term: state.term,
                acknowledged: mark.revision,
                acknowledged_term: mark.term,
            });
        }
        let database = Self { connection, path: path.to_owned(), state, doubt: None };
        // What came out of the log is durable, and so are the names of the files.
        database.copy_log("TRUNCATE")?;
        sync_folder(path).map_err(|why| lock::refusal(path, &why))?;
        Ok(database)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Carries out the operations in one transaction, each wholly or not at all, and returns when it is durable. After an
    /// error, [`Error::Unknown`] apart, it changed nothing.
    pub(crate) fn transact(&mut self, operations: &[&Operation]) -> Result<Outcome, Error> {
        self.settle()?;
        self.keep_log_short()?;
        self.execute("BEGIN IMMEDIATE")?;
        let outcome = match self.apply(operations) {
            Ok(outcome) => outcome,
            Err(why) => return Err(self.roll_back(why)),
        };
        if outcome.state == self.state {
            self.execute("ROLLBACK")?;
            return Ok(outcome);
        }
        if let Err(why) = self.execute("COMMIT") {
            let why = self.roll_back(why);
            if matches!(why, Error::Full { .. } | Error::ReadOnly { .. }) {
                // The last page, which ends a transaction in the log, is not there.
                return Err(why);
            }
            self.doubt = Some(why.clone());
            return Err(match self.settle() {
                Ok(()) => why,
                Err(again) => Error::Unknown { path: self.path.clone(), why: again.to_string() },
            });
        }
        self.state = outcome.state;
        Ok(outcome)
    }

    /// Makes sure that a transaction whose end failed is not in the log: writes another one over it, which changes nothing.
    /// Opening the file again would not do: after a sync that failed, the system counts as written what is not on the disk.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(doubt) = &self.doubt else { return Ok(()) };
        let write = || {
            self.execute("BEGIN IMMEDIATE")?;
            self.write_state(&self.state)?;
            self.execute("COMMIT")
        };
        if let Err(why) = write() {
            let why = format!("{doubt}; then: {}", self.roll_back(why));
            return Err(Error::Io { path: self.path.clone(), why });
        }
        self.doubt = None;
        Ok(())
    }

    fn apply(&self, operations: &[&Operation]) -> Result<Outcome, Error> {
        let mut state = self.state;
        let mut results = Vec::with_capacity(operations.len());
        for operation in operations {
            let admitted = admit(&state, operation);
            if admitted.is_ok() {
                match operation {
                    Operation::Claim { next, .. } => state.term = *next,
                    Operation::Append(batch) => {
                        state.revision.0 += 1;
                        for change in &batch.changes {
                            self.change(&mut state, change)?;
                        }
                    }
                }
            }
            results.push(admitted.map(|()| state.revision));
        }
        if state != self.state {
            self.write_state(&state)?;
        }
        Ok(Outcome { state, results })
    }

    fn change(&self, state: &mut State, Change { key, value }: &Change) -> Result<(), Error> {
        let mut statement = self.prepare("SELECT value FROM record WHERE key = ?1")?;
        let former = statement.query_row([key], |row| row.get::<_, Vec<u8>>(0)).optional();
        let former = former.map_err(|why| self.refusal(&why))?;
        if let Some(former) = &former {
            let wrong = |why: &dyn std::fmt::Display| {
                corrupt(&self.path, format!("the row of {}: {why}", key.escape_ascii()))
            };
            let record = Record::decode(key, former).map_err(|why| wrong(&why))?;
            if !state.remove(record.checksum) {
                return Err(wrong(&"it is not counted"));
            }
        }
        let written = match value {
            None if former.is_none() => return Ok(()),
            None => self.prepare("DELETE FROM record WHERE key = ?1")?.execute([key]),
            Some(value) => {
                let (bytes, checksum) = Record::encode(key, state.revision, value);
                state.add(checksum);
                let sql = "INSERT INTO record (key, value) VALUES (?1, ?2) \
                           ON CONFLICT (key) DO UPDATE SET value = excluded.value";
                self.prepare(sql)?.execute(params![key, bytes])
            }
        };
        written.map(drop).map_err(|why| self.refusal(&why))
    }

    fn write_state(&self, state: &State) -> Result<(), Error> {
        let mut statement = self.prepare("UPDATE state SET value = ?1 WHERE id = 1")?;
        match statement.execute([state.encode()]).map_err(|why| self.refusal(&why))? {
            1 => Ok(()),
            _ => Err(corrupt(&self.path, "the row of its state is missing")),
        }
    }

    /// Everything that is stored.
    pub(crate) fn load(&mut self) -> Result<Snapshot, Error> {
        self.settle()?;
        let mut entries = BTreeMap::new();
        let state = schema::read_all(&self.connection, &self.path, |key, value| {
            entries.insert(key, value.to_vec());
        })?;
        Ok(Snapshot { term: state.term, revision: state.revision, entries })
    }

    /// The bytes of a file that has everything.
    pub(crate) fn copy(&mut self) -> Result<Vec<u8>, Error> {
        self.settle()?;
        let bytes = self.connection.serialize("main").map_err(|why| schema::refusal(&self.path, &why))?;
        Ok(bytes.to_vec())
    }

    /// Copies a long log into the file. If that fails the log grows on, up to its bound.
    fn keep_log_short(&self) -> Result<(), Error> {
        let (pages, _) = self.log("NOOP")?;
        if pages < CHECKPOINT_PAGES {
            return Ok(());
        }
        match self.copy_log("PASSIVE") {
            Err(why) if pages >= MAX_LOG_PAGES => Err(why),
            _ => Ok(()),
        }
    }

    fn copy_log(&self, mode: &str) -> Result<(), Error> {
        let (pages, copied) = self.log(mode)?;
        if pages == copied {
            return Ok(());
        }
        let why = format!("{copied} of {pages} pages of its log could be copied into it");
        Err(Error::Io { path: self.path.clone(), why })
    }

    /// Pages of the log, and how many of them are in the file.
    fn log(&self, mode: &str) -> Result<(i64, i64), Error> {
        let mut statement = self.prepare(&format!("PRAGMA wal_checkpoint({mode})"))?;
        statement.query_row([], |row| Ok((row.get(1)?, row.get(2)?))).map_err(|why| self.refusal(&why))
    }

    fn prepare(&self, sql: &str) -> Result<rusqlite::CachedStatement<'_>, Error> {
        self.connection.prepare_cached(sql).map_err(|why| self.refusal(&why))
    }

    fn execute(&self, sql: &str) -> Result<(), Error> {
        self.prepare(sql)?.execute([]).map(drop).map_err(|why| self.refusal(&why))
    }

    /// Ends a transaction after an error, unless SQLite did. If that fails the next one cannot begin, and says so.
    fn roll_back(&self, why: Error) -> Error {
        if !self.connection.is_autocommit() {
            let _ = self.execute("ROLLBACK");
        }
        why
    }

    fn refusal(&self, why: &rusqlite::Error) -> Error {
        schema::refusal(&self.path, why)
    }
}

/// Whether the newest term allows it.
fn admit(state: &State, operation: &Operation) -> Result<(), Error> {
    let newest = state.term;
    let term = match operation {
        Operation::Append(batch) => batch.term,
        Operation::Claim { seen, .. } => *seen,
    };
    match operation {
        _ if term < newest => Err(Error::Stale { term, newest }),
        _ if term > newest => Err(Error::Unclaimed { term, newest }),
        Operation::Claim { seen, next } if next <= seen => {
            Err(Error::TermNotAbove { seen: *seen, next: *next })
        }
        _ => Ok(()),
    }
}

/// Brings to disk what a process left in the log that ended without closing the file. A sync alone would not do: if one failed
/// before, the system counts as written what is not on the disk. So the same bytes are written again.
fn bring_log_to_disk(path: &Path) -> io::Result<()> {
    let mut file = match OpenOptions::new().read(true).write(true).open(lock::beside(path, "-wal")) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut bytes = vec![0; 1 << 16];
    let mut at = 0;
    loop {
        match file.read(&mut bytes)? {
            0 => return file.sync_all(),
            len => file.write_all_at(&bytes[..len], at)?,
        }
        at = file.stream_position()?;
    }
}

/// Brings the names of the files to disk.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}
