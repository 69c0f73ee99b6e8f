//! Where somebody wants one result: a file that is replaced, or a device or pipe.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, PROC_SUPER_MAGIC, fchmod, fstat, fstatfs, openat, readlinkat, statat,
    },
    io::Errno,
    process::geteuid,
};

use crate::{CannotWrite, ResultFolder, Unfinished, other, result_folder::kind};

/// Symbolic links that are followed at most, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// The place of one result.
///
/// A symbolic link that belongs to this user, or to root, stands for what it leads to, which is found out once, at the
/// start. A link of somebody else is refused, and one that appears later is replaced.
#[derive(Debug)]
pub struct Destination {
    path: PathBuf,
    folder: ResultFolder,
    name: OsString,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A file, or nothing yet.
    File,
    /// A device, a pipe or the like, which nothing may replace.
    Special,
    /// The same, opened through a link of procfs, which nobody can have planted.
    Descriptor,
}

impl Destination {
    /// Fails at once where writing is bound to fail.
    ///
    /// # Errors
    /// Fails if the folder of `path` does not exist, or if `path` is a folder or a symbolic link of another user.
    pub fn new(path: &Path) -> Result<Self, CannotWrite> {
        Self::find(path).map_err(|why| CannotWrite::new(path, why))
    }

    fn find(path: &Path) -> io::Result<Self> {
        let mut at = path.to_path_buf();
        for _ in 0..MOST_LINKS {
            let above = match at.parent() {
                Some(above) if !above.as_os_str().is_empty() => above,
                _ => Path::new("."),
            };
            let is_folder = || other("it is a folder; name a file in it");
            let folder = ResultFolder::open(above)?;
            let name = at.file_name().filter(|_| !at.as_os_str().as_bytes().ends_with(b"/"));
            let name = name.ok_or_else(is_folder)?.to_owned();
            let found = |folder, name, kind| Ok(Self { path: path.to_owned(), folder, name, kind });
            match kind(&folder, &name)? {
                None | Some(FileType::RegularFile) => return found(folder, name, Kind::File),
                Some(FileType::Directory) => return Err(is_folder()),
                Some(FileType::Symlink) => {}
                Some(_) => return found(folder, name, Kind::Special),
            }
            if fstatfs(&folder)?.f_type == PROC_SUPER_MAGIC {
                let stat = statat(&folder, &name, AtFlags::empty())?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                    return found(folder, name, Kind::Descriptor);
                }
            }
            let target = own_link(&folder, &name)?;
            at = above.join(target);
        }
        Err(Errno::LOOP.into())
    }

    /// The path as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the result will be a file, and not go to a device or pipe.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// The folder that the file appears in.
    pub fn folder(&self) -> &ResultFolder {
        &self.folder
    }

    /// Two destinations with equal ids are one file, however they were named.
    ///
    /// # Errors
    /// Fails if the folder's metadata cannot be read.
    pub fn id(&self) -> io::Result<(u64, u64, &OsStr)> {
        let stat = fstat(&self.folder)?;
        Ok((stat.st_dev, stat.st_ino, &self.name))
    }

    /// An unfinished file for the result. It has the permissions of the file that is there if that belongs to this user;
    /// the bits for set-user-ID, set-group-ID and the like are not taken over.
    ///
    /// # Errors
    /// Fails if no file can be made in the folder.
    pub fn begin(&self) -> io::Result<Unfinished<'_>> {
        let mut file = self.folder.begin()?;
        if let Ok(there) = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(there.st_mode) == FileType::RegularFile
            && there.st_uid == geteuid().as_raw()
        {
            fchmod(file.file(), Mode::from_raw_mode(there.st_mode & 0o777))?;
        }
        Ok(file)
    }

    /// Opens the device or pipe.
    ///
    /// # Errors
    /// Fails if the device or pipe cannot be opened, or if a file has taken its place.
    pub fn open_special(&self) -> io::Result<File> {
        let mut flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        if self.kind != Kind::Descriptor {
            flags |= OFlags::NOFOLLOW;
        }
        let file = File::from(openat(&self.folder, &self.name, flags, Mode::empty())?);
        if file.metadata()?.is_file() {
            return Err(other("it was a device or a pipe and is a file now; call again"));
        }
        Ok(file)
    }

    /// Has `fill` write the result, and `ready` refuse it at the end. With `sync` it is on disk when it gets its name,
    /// and so is its name when this returns. A device or pipe gets what `fill` writes as it comes, after `ready`.
    ///
    /// # Errors
    /// Fails with the error of `fill` or `ready`, or with [`CannotWrite`] if the file cannot be written. After an error
    /// of `fill` or `ready`, an existing file at the path is unchanged.
    pub fn write<E: From<CannotWrite>>(
        &self,
        sync: bool,
        fill: impl FnOnce(&mut File) -> Result<(), E>,
        ready: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |why: io::Error| E::from(CannotWrite::new(&self.path, why));
        if !self.is_file() {
            ready()?;
            return fill(&mut self.open_special().map_err(failed)?);
        }
        let mut file = self.begin().map_err(failed)?;
        fill(file.file())?;
        if sync {
            file.sync().map_err(failed)?;
        }
        ready()?;
        file.replace(&self.name).map_err(failed)?;
        if sync { self.folder.sync().map_err(failed) } else { Ok(()) }
    }

    /// Has the bytes replace what is there, and brings them to disk.
    ///
    /// # Errors
    /// Fails if the bytes cannot be written.
    pub fn replace(&self, bytes: &[u8]) -> Result<(), CannotWrite> {
        let fill = |file: &mut File| {
            io::Write::write_all(file, bytes).map_err(|why| CannotWrite::new(&self.path, why))
        };
        self.write(true, fill, || Ok(()))
    }
}

/// Where a link leads that this user or root made.
fn own_link(folder: &ResultFolder, name: &OsStr) -> io::Result<PathBuf> {
    let link = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let owner = fstat(&link)?.st_uid;
    let target = readlinkat(&link, "", Vec::new())?;
    let target = Path::new(OsStr::from_bytes(target.as_bytes())).to_owned();
    if owner != 0 && owner != geteuid().as_raw() {
        let target = target.display();
        return Err(other(format!(
            "it is a symbolic link of user {owner}, which is not followed; name {target} if that is meant, or remove \
             the link"
        )));
    }
    Ok(target)
}
