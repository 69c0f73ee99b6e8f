//! The file beside a store that says who has it open, and what was acknowledged last.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{Error, Revision, Term, record::State};

/// What was acknowledged last. It is written when an acknowledged change is durable, and brought to disk with each claim of a term:
/// after a power cut its revision may be older than what was acknowledged, but never newer, and its term is the newest that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mark {
    pub(crate) term: Term,
    pub(crate) revision: Revision,
}

impl Mark {
    pub(crate) fn of(state: &State) -> Self {
        Self { term: state.term, revision: state.revision }
    }
}

/// Held as long as the store is open. The system gives it back when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    process: u32,
}

/// Where the lock of the store at `path` is.
pub(crate) fn path_of(path: &Path) -> PathBuf {
    beside(path, ".lock")
}

/// The path with `ending` behind it.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The absolute path of the store, or of the one that a symbolic link leads to: log and lock lie beside the store, however it was
/// named.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf, Error> {
    if path.is_symlink() {
        return fs::canonicalize(path).map_err(|why| refusal(path, &why));
    }
    std::path::absolute(path).map_err(|why| refusal(path, &why))
}

impl Lock {
    /// Gives the lock, and the mark that the last holder left.
    pub(crate) fn take(store: &Path) -> Result<(Self, Mark), Error> {
        let path = path_of(store);
        let failed = |why: io::Error| refusal(&path, &why);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(failed)?;
        let mut text = String::new();
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let process = file.read_to_string(&mut text).ok().and_then(|_| parse(&text)).map(|(p, _)| p);
                let holder = process.map_or("another process".to_owned(), |p| format!("process {p}"));
                return Err(Error::InUse { path: store.to_owned(), holder });
            }
            Err(why) => return Err(failed(why.into())),
        }
        // Without text it is new, or was never brought to disk.
        let read = file.read_to_string(&mut text);
        let mark = match read {
            Ok(_) if text.bytes().all(|byte| byte == 0) => Some(Mark::default()),
            Ok(_) => parse(&text).map(|(_, mark)| mark),
            Err(why) if why.kind() == io::ErrorKind::InvalidData => None,
            Err(why) => return Err(failed(why)),
        };
        let mark = mark.ok_or_else(|| Error::Io {
            path: path.clone(),
            why: "it does not say what was acknowledged last; check the store's disk, and remove this file"
                .to_owned(),
        })?;
        let lock = Self { file, process: std::process::id() };
        lock.write(mark).map_err(failed)?;
        Ok((lock, mark))
    }

    /// Always writes as many bytes at the same place, so that a full disk does not matter.
    pub(crate) fn write(&self, mark: Mark) -> io::Result<()> {
        self.file.write_all_at(text(self.process, mark).as_bytes(), 0)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn text(process: u32, Mark { term, revision }: Mark) -> String {
    format!("process {process:010}\nterm {:020}\nrevision {:020}\n", term.0, revision.0)
}

/// The process and the mark.
fn parse(text: &str) -> Option<(u32, Mark)> {
    let mut lines = text.lines();
    let mut number = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
    let process = u32::try_from(number("process")?).ok()?;
    let mark = Mark { term: Term(number("term")?), revision: Revision(number("revision")?) };
    Some((process, mark))
}

/// Why the system refuses to use the file.
pub(crate) fn refusal(path: &Path, why: &io::Error) -> Error {
    let path = path.to_owned();
    let text = why.to_string();
    match why.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full { path, why: text },
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            Error::ReadOnly { path, why: text }
        }
        _ => Error::Io { path, why: text },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mark = Mark { term: Term(3), revision: Revision(u64::MAX) };
        assert_eq!(parse(&text(77, mark)), Some((77, mark)));
        assert_eq!(text(1, Mark::default()).len(), text(u32::MAX, mark).len());
        assert_eq!(parse("process 1\nterm 2\n"), None);
    }
}
