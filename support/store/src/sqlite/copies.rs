//! Backups, and stores made of them.

use std::{
    fs,
    io::{self, Read as _},
    ops::Range,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use naa_files::Destination;
use rusqlite::Connection;

use super::{
    SqliteConfig,
    database::{Check, Database, sync_folder},
    lock::{self, Lock, Mark, beside},
    schema,
};
use crate::{Error, Revision, Term, record::State};

/// What the names of a store's files end with.
const FILES: [&str; 5] = ["", "-wal", "-shm", "-journal", ".lock"];

/// Where a database has its versions for writing and reading (SQLite's file format, 1.3.3).
const VERSIONS: Range<usize> = 18..20;

/// The versions of a file that may have a log, and of one that has none.
const WITH_LOG: [u8; 2] = [2, 2];
const WITHOUT_LOG: [u8; 2] = [1, 1];

/// The difference between a restored store's term and the newest known term. Terms that were claimed after the backup was written are
/// not known, if the store that they were claimed in is lost. There are fewer of them than this: each start claims one, and so does
/// each try to write again after the disk failed, of which there are two a second.
const RAISE: u64 = 1 << 24;

/// What a store has that was made of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// Above all terms that were claimed in the backup, in the store that was replaced, and in one that was lost.
    pub term: Term,
    /// The revision of the newest batch in the backup.
    pub revision: Revision,
    /// The number of keys.
    pub keys: u64,
}

/// A file that a backup may be written to.
pub(crate) fn backup_destination(store: &Path, to: &Path) -> Result<Destination, Error> {
    let destination = destination(to)?;
    let id = |of: &Destination| {
        let id = of.id().map(|(device, folder, name)| (device, folder, name.to_owned()));
        id.map_err(|why| Error::CannotCopy(why.to_string()))
    };
    for own in FILES.map(|ending| beside(store, ending)) {
        let is_same_place = id(&destination)? == id(&self::destination(&own)?)?;
        if is_same_place || is_same_file(&own, to) {
            return Err(Error::CannotCopy(format!(
                "{} is {}, a file of the store itself; name another file for its backup",
                to.display(),
                own.display()
            )));
        }
    }
    Ok(destination)
}

/// Checks the bytes of the store at `store` and writes them to the file.
pub(crate) fn backup(store: &Path, bytes: &[u8], to: &Destination) -> Result<Revision, Error> {
    let (connection, state) = image(store, bytes)?;
    write(connection, to)?;
    Ok(state.revision)
}

/// Returns the revision of a backup, after a check of all that it has.
///
/// # Errors
/// Fails with [`Error::Corrupt`], [`Error::Newer`] or [`Error::NotAStore`] if the file is not a sound backup, and with
/// the error of the operating system if the file cannot be read.
pub fn revision_of(backup: &Path, config: &SqliteConfig) -> Result<Revision, Error> {
    let bytes = read(backup, config.max_bytes)?;
    image(backup, &bytes).map(|(_, state)| state.revision)
}

/// Makes the store at `to` of the backup `from`, in place of the store that is there, if there is one. The new store's term is far
/// above those of both, so that no term is claimed twice, also not one that was claimed after the backup in a store that is lost.
///
/// The backup is checked before anything changes. If the process is killed, the store is the former one, or the new one, or
/// is refused until it is restored again.
///
/// The file of a store that was closed is a backup, too. The file of a store that is open or was killed is not a backup, because the
/// newest changes are in the log beside the file.
///
/// # Errors
/// Fails with [`Error::InUse`] if the store `to` is open. Fails with [`Error::Corrupt`], [`Error::Newer`] or
/// [`Error::NotAStore`] if `from` is not a sound backup. Fails with [`Error::CannotCopy`] if `from` has a log beside it
/// or is the store itself. Fails with the error of the operating system if a file cannot be read or written, or if the
/// newest term of an undamaged store `to` cannot be read.
pub fn restore(from: &Path, to: &Path, config: &SqliteConfig) -> Result<Restored, Error> {
    let destination = destination(to)?;
    if is_same_file(from, to) {
        let text = format!("{} is the store that is to be replaced; name a backup of it", from.display());
        return Err(Error::CannotCopy(text));
    }
    let to = &lock::resolve(to)?;
    let (lock, mark) = Lock::take(to)?;
    let refused = |why: io::Error| lock::refusal(to, &why);
    let bytes = read(from, config.max_bytes)?;
    check_log(from, &bytes)?;
    let (connection, mut state) = image(from, &bytes)?;
    let newest = state.term.max(newest_term(to, config, mark)?);
    state.term = Term(newest.0.saturating_add(RAISE));
    let updated = connection.execute("UPDATE state SET value = ?1 WHERE id = 1", [state.encode()]);
    updated.map_err(|why| schema::refusal(from, &why))?;

    // The mark first: whatever happens from here on, a store with less than the former one or the new one is refused.
    lock.write(Mark { term: state.term, revision: mark.revision.max(state.revision) }).map_err(refused)?;
    lock.sync().map_err(refused)?;
    // A log belongs to the file that it was written for. It must be gone before another file has that name.
    for ending in ["-wal", "-journal"] {
        match fs::remove_file(beside(to, ending)) {
            Err(why) if why.kind() != io::ErrorKind::NotFound => return Err(refused(why)),
            _ => {}
        }
    }
    sync_folder(to).map_err(refused)?;
    write(connection, &destination)?;
    lock.write(Mark::of(&state)).map_err(refused)?;
    lock.sync().map_err(refused)?;
    Ok(Restored { term: state.term, revision: state.revision, keys: state.rows })
}

/// The newest term of the store that is there. It may be damaged, which is why it is replaced: then it is that of the mark, which was
/// on disk before the term was used. A store that cannot be read for another reason is not replaced.
fn newest_term(store: &Path, config: &SqliteConfig, mark: Mark) -> Result<Term, Error> {
    if !store.exists() {
        return Ok(mark.term);
    }
    match Database::open(store, config, Mark::default(), Check::State) {
        Ok(database) => Ok(mark.term.max(database.state().term)),
        Err(Error::Corrupt { .. } | Error::NotAStore { .. }) => Ok(mark.term),
        Err(why) => Err(why),
    }
}

fn read(path: &Path, max_bytes: u64) -> Result<Vec<u8>, Error> {
    let refused = |why: io::Error| lock::refusal(path, &why);
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(refused)?;
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > max_bytes {
        let why = format!("it has more than the {max_bytes} bytes that the store may have");
        return Err(Error::Io { path: path.to_owned(), why });
    }
    Ok(bytes)
}

/// Refuses the file of a store whose newest changes are in a log. It is looked for after the bytes were read, so a store that is
/// open and was written to meanwhile is refused, too.
fn check_log(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let log = beside(&lock::resolve(path)?, "-wal");
    let is_there = match fs::metadata(&log) {
        Ok(log) => log.len() > 0,
        Err(why) if why.kind() == io::ErrorKind::NotFound => false,
        Err(why) => return Err(lock::refusal(&log, &why)),
    };
    if is_there && bytes.get(VERSIONS) == Some(&WITH_LOG[..]) {
        return Err(Error::CannotCopy(format!(
            "{} is the file of a store that was not closed, and its newest changes are in {}; make a backup of that store, and \
             restore the backup",
            path.display(),
            log.display()
        )));
    }
    Ok(())
}

/// Whether both paths lead to one file that is there.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let [one, other] = [one, other].map(|path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino())));
    one.is_some() && one == other
}

/// A database in memory of the bytes of a file, checked and brought to the newest version.
fn image(path: &Path, bytes: &[u8]) -> Result<(Connection, State), Error> {
    let refused = |why: rusqlite::Error| schema::refusal(path, &why);
    let mut bytes = bytes.to_vec();
    match bytes.get_mut(VERSIONS) {
        Some(versions) if *versions == WITH_LOG => versions.copy_from_slice(&WITHOUT_LOG),
        Some(versions) if *versions == WITHOUT_LOG => {}
        _ => return Err(Error::NotAStore { path: path.to_owned(), why: "it is no database".to_owned() }),
    }
    let mut connection = Connection::open_in_memory().map_err(refused)?;
    let len = bytes.len();
    connection.deserialize_read_exact("main", bytes.as_slice(), len, false).map_err(refused)?;
    schema::migrate(&connection, path)?;
    let state = schema::verify(&connection, path)?;
    Ok((connection, state))
}

fn destination(to: &Path) -> Result<Destination, Error> {
    Destination::new(to).map_err(|why| Error::CannotCopy(why.to_string()))
}

fn write(mut connection: Connection, to: &Destination) -> Result<(), Error> {
    let bytes = connection.serialize("main").map_err(|why| schema::refusal(to.path(), &why))?;
    to.replace(&bytes).map_err(|why| Error::CannotCopy(why.to_string()))
}
