//! Results: files that appear under their names when they are complete, or standard output.
//!
//! A result is written to a file with a name of its own in the same folder, locked as long as its writer lives,
//! and renamed. So a process that dies leaves no half result under a final name, and the next one tells by the
//! lock which files are nobody's any more.

use std::{
    collections::BTreeSet,
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, bail, ensure};

use super::stop::Interrupted;
use crate::Usage;

/// Bytes between two looks at the progress.
const STRIDE: usize = 4 << 20;
const PREFIX: &str = ".naa-";
const POSTFIX: &str = ".partial";

/// Where a result goes.
#[derive(Debug)]
pub(super) struct Sink {
    path: PathBuf,
    /// To disk before it gets its name.
    sync: bool,
}

/// Names of standard output: what is behind it is not to be replaced.
const STDOUT: [&str; 4] = ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/// Whether `path` is a name of standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    STDOUT.iter().any(|name| path == Path::new(name))
}

impl Sink {
    /// Fails at once where writing is bound to fail.
    pub(super) fn new(path: &Path, sync: bool) -> anyhow::Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("cannot write {}: {} is no folder; create it", path.display(), folder.display());
        }
        ensure!(!path.is_dir(), "cannot write {}: it is a folder; name a file in it", path.display());
        Ok(Self { path: path.into(), sync })
    }

    pub(super) fn is_stdout(&self) -> bool {
        is_stdout(&self.path)
    }

    /// Where its unfinished file would be.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        let is_file = !self.is_stdout() && (self.path.is_file() || !self.path.exists());
        is_file.then(|| folder_of(&link_target(&self.path)))
    }

    /// Writes everything, calling `tick` every few MiB; `ready` may refuse at the end.
    pub(super) fn write(
        &self,
        bytes: &[u8],
        tick: impl FnMut() -> Result<(), Interrupted>,
        ready: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let failed = || match self.is_stdout() {
            true => "cannot write standard output".to_owned(),
            false => format!("cannot write {}", self.path.display()),
        };
        if self.is_stdout() {
            ready()?;
            return write_all(&mut io::stdout().lock(), bytes, tick, failed);
        }
        if self.path.exists() && !self.path.is_file() {
            // A device or a pipe: not to be replaced by a file.
            ready()?;
            let mut out = File::options().write(true).open(&self.path).with_context(failed)?;
            return write_all(&mut out, bytes, tick, failed);
        }
        let target = link_target(&self.path);
        let mut partial = Partial::create(&folder_of(&target)).with_context(failed)?;
        if let Ok(existing) = target.metadata() {
            partial.file.set_permissions(existing.permissions()).with_context(failed)?;
        }
        write_all(&mut partial.file, bytes, tick, failed)?;
        if self.sync {
            partial.file.sync_all().with_context(failed)?;
        }
        ready()?;
        partial.rename(&target).with_context(failed)
    }
}

/// Refuses two results for one place. Devices and pipes take any number.
pub(super) fn check_distinct(sinks: &[Sink]) -> anyhow::Result<()> {
    let mut taken = BTreeSet::new();
    for sink in sinks {
        if sink.is_stdout() {
            if !taken.insert(PathBuf::from(STDOUT[0])) {
                let text =
                    "standard output would get two results, and nobody could tell them apart; name files";
                return Err(Usage::error(text));
            }
        } else if sink.folder().is_some() && !taken.insert(real_path(&sink.path)) {
            let text = format!("{} would be written twice; name each output", sink.path.display());
            return Err(Usage::error(text));
        }
    }
    Ok(())
}

/// The file that writing to `path` makes or replaces, however it is named.
fn real_path(path: &Path) -> PathBuf {
    let target = link_target(path);
    let folder = folder_of(&target);
    // A folder that cannot be read is found out when something is written to it.
    let folder = folder.canonicalize().unwrap_or(folder);
    target.file_name().map_or(target.clone(), |name| folder.join(name))
}

/// An unfinished file. Goes away unless it is renamed.
struct Partial {
    path: PathBuf,
    file: File,
}

impl Partial {
    fn create(folder: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{PREFIX}{}-{count}{POSTFIX}", std::process::id()));
            let file = match File::options().write(true).create_new(true).open(&path) {
                // Of a process on another machine, or of a dead one that had this number.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                opened => opened?,
            };
            let locked = file.try_lock();
            // Between the two somebody may have taken it for an abandoned one.
            let taken = matches!(locked, Err(TryLockError::WouldBlock));
            if !taken && is_at(&file, &path) {
                // Where there are no locks nobody can remove it either.
                return Ok(Self { path, file });
            }
        }
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        // Nothing is left to be removed.
        self.path.clear();
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What is wrong has been found; a rest that cannot be removed adds nothing.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let id = |meta: fs::Metadata| (meta.dev(), meta.ino());
    file.metadata().ok().map(id) == fs::symlink_metadata(path).ok().map(id)
}

/// Whether a file of this name is one that was not finished.
pub(super) fn is_partial(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(POSTFIX))
}

/// Removes what dead processes left unfinished in `folder`.
pub(super) fn remove_abandoned(folder: &Path) {
    // A folder that cannot be read is found out when something is written to it.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()).filter(|path| is_partial(path)) {
        // In a shared folder it may be anything.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let Ok(file) = File::options().write(true).custom_flags(flags).open(&path) else { continue };
        let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
        if is_file && file.try_lock().is_ok() && is_at(&file, &path) {
            let _ = fs::remove_file(&path);
        }
    }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.into(),
        _ => ".".into(),
    }
}

/// Where writing to `path` ends up; the file need not exist.
fn link_target(path: &Path) -> PathBuf {
    /// As the kernel follows.
    const LINKS: usize = 40;
    let mut target = path.to_path_buf();
    for _ in 0..LINKS {
        let Ok(link) = target.read_link() else { break };
        target = target.parent().map_or_else(|| link.clone(), |folder| folder.join(&link));
    }
    target
}

fn write_all(
    out: &mut impl Write,
    bytes: &[u8],
    mut tick: impl FnMut() -> Result<(), Interrupted>,
    failed: impl Fn() -> String,
) -> anyhow::Result<()> {
    for piece in bytes.chunks(STRIDE) {
        out.write_all(piece).with_context(&failed)?;
        tick()?;
    }
    out.flush().with_context(&failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("naa-output-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn count(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn only_abandoned_files_are_removed() {
        let folder = folder("abandoned");
        let living = Partial::create(&folder).unwrap();
        fs::write(folder.join(".naa-1-0.partial"), "of a dead process").unwrap();
        fs::write(folder.join("naa-1-0.partial"), "of somebody").unwrap();
        remove_abandoned(&folder);
        assert!(is_at(&living.file, &living.path));
        assert_eq!(count(&folder), 2);
        drop(living);
        assert_eq!(count(&folder), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_refused_result_leaves_what_was_there() {
        let folder = folder("refused");
        let path = folder.join("result");
        fs::write(&path, "old").unwrap();
        let sink = Sink::new(&path, true).unwrap();
        assert!(sink.write(b"new", || Ok(()), || bail!("changed")).is_err());
        assert!(sink.write(b"new", || Err(Interrupted), || Ok(())).is_err());
        assert_eq!((fs::read(&path).unwrap(), count(&folder)), (b"old".to_vec(), 1));
        sink.write(b"new", || Ok(()), || Ok(())).unwrap();
        assert_eq!((fs::read(&path).unwrap(), count(&folder)), (b"new".to_vec(), 1));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn two_results_are_not_for_one_place() {
        let folder = folder("distinct");
        let refusal = |names: &[&str]| {
            let sinks: Vec<_> = names.iter().map(|name| Sink::new(Path::new(name), false).unwrap()).collect();
            check_distinct(&sinks).err().map(|error| error.to_string())
        };
        let file = |name: &str| folder.join(name).display().to_string();
        let (result, same, link) = (file("result"), file("./result"), file("link"));
        std::os::unix::fs::symlink("result", &link).unwrap();
        assert_eq!(refusal(&["-", &result, &file("other"), "/dev/null", "/dev/null"]), None);
        for twice in [&result, &same, &link] {
            let text = refusal(&["-", &result, twice]).unwrap();
            assert!(text.contains(&format!("{twice} would be written twice")), "{text}");
        }
        for stdout in STDOUT {
            assert!(refusal(&[&result, "-", stdout]).unwrap().contains("standard output"), "{stdout}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
