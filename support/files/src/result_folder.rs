//! An open folder, and unfinished files in it.

use std::{
    ffi::OsStr,
    fs::{self, File, TryLockError},
    hash::{BuildHasher as _, RandomState},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, fdatasync, fstat, fsync, linkat, open, openat,
        renameat, renameat_with, statat, syncfs, unlinkat,
    },
    io::Errno,
};

use crate::other;

const PREFIX: &str = ".naa-";
const POSTFIX: &str = ".partial";

/// A folder for results. It stays the same one whatever happens to its name.
#[derive(Debug)]
pub struct ResultFolder {
    fd: OwnedFd,
    path: PathBuf,
    /// Whether the folder may be opened for reading. If not, its entries are synchronised with the whole file system.
    readable: bool,
    /// Whether its file system has files without names, as far as known.
    nameless: AtomicBool,
}

impl ResultFolder {
    /// Opens the folder at `path`, which must exist.
    ///
    /// # Errors
    /// Fails if there is no folder at `path`, or if this process has no right to use the folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match open(path, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => open(path, flags | OFlags::PATH, Mode::empty()).map(|fd| (fd, false)),
            other => other.map(|fd| (fd, true)),
        };
        let (fd, readable) = opened.map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => other(format!("{} is no folder; create it", path.display())),
            error => error.into(),
        })?;
        // Files without names get theirs through procfs.
        let nameless = Path::new("/proc/self/fd").exists();
        Ok(Self { fd, path: path.to_owned(), readable, nameless: nameless.into() })
    }

    /// Opens the folder and makes it first if need be; removes what dead processes left unfinished in it.
    ///
    /// # Errors
    /// Fails if the folder cannot be made or opened.
    pub fn create(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let folder = Self::open(path)?;
        folder.remove_abandoned();
        Ok(folder)
    }

    /// Returns the path with which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is anything of this name, be it a link that leads nowhere.
    pub fn has(&self, name: &OsStr) -> bool {
        statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// A file that has no name yet, and goes away unless it gets one.
    ///
    /// # Errors
    /// Fails if no file can be made in the folder.
    pub fn begin(&self) -> io::Result<Unfinished<'_>> {
        if self.nameless.load(Relaxed) {
            let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            match openat(&self.fd, ".", flags, Mode::from_raw_mode(0o666)) {
                Ok(fd) => return Ok(Unfinished { folder: self, file: fd.into(), name: None }),
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => {
                    self.nameless.store(false, Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.begin_named()
    }

    fn begin_named(&self) -> io::Result<Unfinished<'_>> {
        loop {
            let name = unpredictable();
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = match openat(&self.fd, &name, flags, Mode::from_raw_mode(0o666)) {
                Err(Errno::EXIST) => continue,
                opened => File::from(opened?),
            };
            let locked = file.try_lock();
            // Before the lock was taken, another process may have removed the file as an abandoned one.
            let taken = matches!(locked, Err(TryLockError::WouldBlock));
            if !taken && self.is_at(&file, &name) {
                // Where there are no locks nobody can remove it either.
                return Ok(Unfinished { folder: self, file, name: Some(name) });
            }
        }
    }

    fn is_at(&self, file: &File, name: &str) -> bool {
        let id = |stat: rustix::fs::Stat| (stat.st_dev, stat.st_ino);
        let there = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW);
        fstat(file).ok().map(id).is_some_and(|own| there.ok().map(id) == Some(own))
    }

    /// Brings names that were given in it to disk.
    ///
    /// # Errors
    /// Fails if the disk reports an error.
    pub fn sync(&self) -> io::Result<()> {
        if self.readable {
            return Ok(fsync(&self.fd)?);
        }
        // It may be written to, but not opened for reading, without which it cannot be synchronised alone.
        let file = self.begin()?;
        Ok(syncfs(&file.file)?)
    }

    /// Brings everything to disk that was written to its file system.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        if self.readable { Ok(syncfs(&self.fd)?) } else { self.sync() }
    }

    /// Removes what dead processes left unfinished in it.
    pub fn remove_abandoned(&self) {
        // A folder that cannot be read is found out when something is written to it.
        let entries = rustix::fs::Dir::read_from(&self.fd).into_iter().flatten().flatten();
        let names = entries.map(|entry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
        for name in names.filter(|name| is_unfinished(Path::new(name))) {
            // In a folder that others use too, an entry of this name may be anything.
            let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::WRONLY | OFlags::CLOEXEC;
            let Ok(file) = openat(&self.fd, &name, flags, Mode::empty()).map(File::from) else { continue };
            let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
            let is_at = name.to_str().is_some_and(|name| self.is_at(&file, name));
            if is_file && file.try_lock().is_ok() && is_at {
                let _ = unlinkat(&self.fd, &name, AtFlags::empty());
            }
        }
    }
}

impl AsFd for ResultFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Whether a file of this name is one that was not finished.
pub fn is_unfinished(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(POSTFIX))
}

/// Keys of the hash are the system's random numbers, so nobody can prepare a file or a link of this name.
fn unpredictable() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Relaxed);
    let [one, other] = [(); 2].map(|()| RandomState::new().hash_one(count));
    format!("{PREFIX}{one:016x}{other:016x}{POSTFIX}")
}

/// A file that is being written.
#[derive(Debug)]
pub struct Unfinished<'a> {
    folder: &'a ResultFolder,
    file: File,
    /// Where the file system wants one; the file is removed with it.
    name: Option<String>,
}

impl Unfinished<'_> {
    /// Returns the file, to which the content of the result is written.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Brings its content to disk.
    ///
    /// # Errors
    /// Fails if the disk reports an error or is full.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fdatasync(&self.file)?)
    }

    /// Gives it a name that nothing has; `None` if it was given. The file stays unfinished if something has the name.
    ///
    /// # Errors
    /// Fails if the file cannot have the name for a reason other than an existing file.
    pub fn appear(self, name: &OsStr) -> io::Result<Option<Self>> {
        match self.link(name) {
            Ok(()) => Ok(None),
            Err(Errno::EXIST) => Ok(Some(self)),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives it a name. A file or a link that has the name is replaced.
    ///
    /// # Errors
    /// Fails if the file cannot have the name.
    pub fn replace(mut self, name: &OsStr) -> io::Result<()> {
        let folder = &self.folder.fd;
        if self.name.is_none() {
            match self.link(name) {
                Err(Errno::EXIST) => {}
                linked => return Ok(linked?),
            }
            // Only a file that has a name can replace another one.
            let _ = self.file.try_lock();
            let passing = unpredictable();
            self.link(OsStr::new(&passing))?;
            self.name = Some(passing);
        }
        if let Some(own) = &self.name {
            renameat(folder, own, folder, name)?;
            self.name = None;
        }
        Ok(())
    }

    /// Names it unless something has the name. A file without a name keeps that state in `self`: its name is not removed.
    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let folder = &self.folder.fd;
        let Some(own) = &self.name else {
            let file = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            return linkat(CWD, &file, folder, name, AtFlags::SYMLINK_FOLLOW);
        };
        match renameat_with(folder, own, folder, name, RenameFlags::NOREPLACE) {
            // Network file systems do not know the flag, but links.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                // The other name goes when this is dropped.
                linkat(folder, own, folder, name, AtFlags::empty())
            }
            renamed => renamed,
        }
    }

    /// The file, which may have got a name.
    pub(crate) fn duplicate(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing is left to be removed after it was renamed: its name is unpredictable, so it is nobody else's.
            let _ = unlinkat(&self.folder.fd, name, AtFlags::empty());
        }
    }
}

/// What there is at a name, without following a link.
pub(crate) fn kind(folder: &ResultFolder, name: &OsStr) -> Result<Option<FileType>, Errno> {
    match statat(&folder.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "result_folder_tests.rs"]
mod tests;
