//! A disk whose power can be cut: a virtual file system of SQLite in memory.
//!
//! What is written counts as read back at once, and as durable only after a sync. When the power is cut, of each sector that was
//! written since the last sync either the old content or the new one remains. The files of the folder are what was durable
//! when the disk was made; [`Disk::power_cut`] and [`Disk::sync_to_folder`] write them.
#![allow(unsafe_code, reason = "SQLite calls a virtual file system by function pointers in C")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{CStr, CString, c_char, c_int, c_void},
    fmt, fs,
    path::{Path, PathBuf},
    ptr, slice,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs};
use simnet::Random;

const SECTOR: usize = 512;

/// What remains of writes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsynced {
    Lost,
    Kept,
    /// Each sector, each change of a length and each removal by itself.
    Some,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Writes, syncs and the like until the power is cut: from then on everything fails.
    pub(crate) power: Option<u64>,
    /// Bytes that all files together may have.
    pub(crate) room: Option<u64>,
    pub(crate) read_only: bool,
    /// Syncs from the next on that fail. What they were to sync is never durable, unless it is written again.
    pub(crate) failing_syncs: u64,
    /// Everything fails.
    pub(crate) broken: bool,
    /// The disk says that it may damage the neighbourhood of what it writes.
    pub(crate) cautious: bool,
}

#[derive(Debug, Default)]
struct Image {
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Written since the last sync.
    dirty: BTreeSet<usize>,
    /// Whether the name is durable.
    named: bool,
    removed: bool,
}

#[derive(Debug)]
struct Inner {
    files: BTreeMap<PathBuf, Image>,
    faults: Faults,
    syncs: u64,
}

/// A registered virtual file system.
pub(crate) struct Disk {
    name: CString,
    vfs: *mut sqlite3_vfs,
    inner: Arc<Mutex<Inner>>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("name", &self.name).finish_non_exhaustive()
    }
}

/// What SQLite has of an open file.
#[repr(C)]
struct OpenFile {
    base: sqlite3_file,
    path: *mut PathBuf,
    disk: *const Mutex<Inner>,
}

static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

impl Disk {
    pub(crate) fn new(faults: Faults) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("disk-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let name = CString::new(name).expect("no zero byte");
        let inner = Arc::new(Mutex::new(Inner { files: BTreeMap::new(), faults, syncs: 0 }));
        // SAFETY: SQLite's default file system exists as long as the program; a null name asks for it.
        let default = unsafe { ffi::sqlite3_vfs_find(ptr::null()) };
        assert!(!default.is_null(), "SQLite has a default file system");
        // SAFETY: it was just found; the copy takes its functions for paths, time and random numbers.
        let mut vfs = unsafe { *default };
        vfs.iVersion = 1;
        vfs.szOsFile = size_of::<OpenFile>() as c_int;
        vfs.pNext = ptr::null_mut();
        vfs.zName = name.as_ptr();
        vfs.pAppData = Arc::as_ptr(&inner).cast_mut().cast();
        vfs.xOpen = Some(open);
        vfs.xDelete = Some(delete);
        vfs.xAccess = Some(access);
        let vfs = Box::into_raw(Box::new(vfs));
        // SAFETY: `vfs` and all it points to live until `drop` has it unregistered.
        let registered = unsafe { ffi::sqlite3_vfs_register(vfs, 0) };
        assert_eq!(registered, ffi::SQLITE_OK);
        Self { name, vfs, inner }
    }

    /// The name of the VFS, as `SqliteConfig` takes it.
    pub(crate) fn name(&self) -> String {
        self.name.to_str().expect("ASCII").to_owned()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.inner().faults);
    }

    /// Bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        self.inner().used()
    }

    /// Syncs until now.
    pub(crate) fn syncs(&self) -> u64 {
        self.inner().syncs
    }

    /// Cuts the power and writes into the folder what remains. All later operations on open files fail.
    pub(crate) fn power_cut(&self, unsynced: Unsynced, random: &mut Random) {
        let mut inner = self.inner();
        inner.faults.broken = true;
        for (path, image) in &inner.files {
            match image.remaining(unsynced, random) {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => remove(path),
            }
        }
    }

    /// Writes into the folder what programs see.
    pub(crate) fn sync_to_folder(&self) {
        for (path, image) in &self.inner().files {
            if image.removed { remove(path) } else { fs::write(path, &image.current).unwrap() }
        }
    }
}

fn remove(path: &Path) {
    if path.exists() {
        fs::remove_file(path).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: it was registered by `new`, and the test closes its stores before their disk.
        unsafe { ffi::sqlite3_vfs_unregister(self.vfs) };
        // SAFETY: it came from a box, and SQLite does not know it any more.
        drop(unsafe { Box::from_raw(self.vfs) });
    }
}

impl Image {
    /// What is there after a power cut, if anything.
    fn remaining(&self, unsynced: Unsynced, random: &mut Random) -> Option<Vec<u8>> {
        let mut kept = || match unsynced {
            Unsynced::Lost => false,
            Unsynced::Kept => true,
            Unsynced::Some => random.chance(500_000),
        };
        if self.removed && kept() || !self.named && !kept() {
            return None;
        }
        let mut bytes = self.durable.clone();
        if self.current.len() < bytes.len() && kept() {
            bytes.truncate(self.current.len());
        }
        for sector in &self.dirty {
            let from = sector * SECTOR;
            let to = self.current.len().min(from + SECTOR);
            if from < to && kept() {
                bytes.resize(bytes.len().max(to), 0);
                bytes[from..to].copy_from_slice(&self.current[from..to]);
            }
        }
        Some(bytes)
    }

    fn touch(&mut self, from: usize, to: usize) {
        self.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
    }
}

impl Inner {
    fn used(&self) -> u64 {
        self.files.values().filter(|image| !image.removed).map(|image| image.current.len() as u64).sum()
    }

    /// Counts what changes the disk, and says whether it may.
    fn step(&mut self) -> Result<(), c_int> {
        if let Some(left) = &mut self.faults.power {
            *left = left.saturating_sub(1);
            self.faults.broken |= *left == 0;
        }
        match self.faults {
            Faults { broken: true, .. } => Err(ffi::SQLITE_IOERR),
            Faults { read_only: true, .. } => Err(ffi::SQLITE_READONLY),
            _ => Ok(()),
        }
    }

    /// The file of that name, as it is in the folder if nobody had it open yet.
    fn file(&mut self, path: &Path) -> &mut Image {
        self.files.entry(path.to_owned()).or_insert_with(|| match fs::read(path) {
            Ok(bytes) => Image { durable: bytes.clone(), current: bytes, named: true, ..Image::default() },
            Err(_) => Image { removed: true, ..Image::default() },
        })
    }

    fn write(&mut self, path: &Path, bytes: &[u8], at: usize) -> Result<(), c_int> {
        self.step()?;
        let end = at + bytes.len();
        let grown = end.saturating_sub(self.file(path).current.len()) as u64;
        if grown > 0 && self.faults.room.is_some_and(|room| self.used() + grown > room) {
            return Err(ffi::SQLITE_FULL);
        }
        let image = self.file(path);
        if image.current.len() < end {
            let from = image.current.len();
            image.current.resize(end, 0);
            image.touch(from, end);
        }
        image.current[at..end].copy_from_slice(bytes);
        image.touch(at, end);
        Ok(())
    }

    fn sync(&mut self, path: &Path) -> Result<(), c_int> {
        self.step()?;
        self.syncs += 1;
        if let Some(left) = self.faults.failing_syncs.checked_sub(1) {
            self.faults.failing_syncs = left;
            // As Linux does: it reports the error once, and counts the pages as written.
            self.file(path).dirty.clear();
            return Err(ffi::SQLITE_IOERR_FSYNC);
        }
        let image = self.file(path);
        image.durable.resize(image.current.len(), 0);
        for sector in std::mem::take(&mut image.dirty) {
            let from = (sector * SECTOR).min(image.current.len());
            let to = image.current.len().min(from + SECTOR);
            image.durable[from..to].copy_from_slice(&image.current[from..to]);
        }
        image.named = true;
        Ok(())
    }
}

fn code(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(ffi::SQLITE_OK)
}

/// The file, and its disk, locked.
///
/// # Safety
/// `file` was opened by [`open`] and not closed; its disk lives.
unsafe fn parts<'a>(file: *mut sqlite3_file) -> (&'a Path, MutexGuard<'a, Inner>) {
    // SAFETY: SQLite reserves `szOsFile` bytes, which `open` made an `OpenFile`.
    let file = unsafe { &*file.cast::<OpenFile>() };
    // SAFETY: the path is a box of `open`'s, and the caller says that the disk lives.
    let (path, disk) = unsafe { (&*file.path, &*file.disk) };
    (path, disk.lock().unwrap())
}

/// # Safety
/// `vfs` is one of [`Disk::new`], whose disk lives.
unsafe fn disk<'a>(vfs: *mut sqlite3_vfs) -> &'a Mutex<Inner> {
    // SAFETY: `pAppData` is what the disk's `Arc` points to.
    unsafe { &*(*vfs).pAppData.cast::<Mutex<Inner>>() }
}

/// # Safety
/// `name` is a string of C.
unsafe fn path(name: *const c_char) -> PathBuf {
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) };
    PathBuf::from(name.to_str().expect("tests use names in UTF-8"))
}

unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: `file` has room for an `OpenFile`; without methods SQLite does not close it.
    unsafe { (*file).pMethods = ptr::null() };
    if name.is_null() {
        return ffi::SQLITE_CANTOPEN;
    }
    // SAFETY: SQLite passes the registered file system and a string.
    let (disk, path) = unsafe { (disk(vfs), path(name)) };
    let mut inner = disk.lock().unwrap();
    if inner.faults.broken {
        return ffi::SQLITE_CANTOPEN;
    }
    let image = inner.file(&path);
    if image.removed {
        if flags & ffi::SQLITE_OPEN_CREATE == 0 {
            return ffi::SQLITE_CANTOPEN;
        }
        // What was durable under that name comes back if this one is never synced.
        image.removed = false;
        image.current.clear();
        image.dirty.clear();
        if inner.faults.read_only {
            inner.file(&path).removed = true;
            return ffi::SQLITE_CANTOPEN;
        }
    }
    let open = OpenFile {
        base: sqlite3_file { pMethods: &raw const METHODS },
        path: Box::into_raw(Box::new(path)),
        disk,
    };
    // SAFETY: SQLite reserved the room, aligned for it.
    unsafe { file.cast::<OpenFile>().write(open) };
    if !out_flags.is_null() {
        // SAFETY: it is not null, so SQLite wants the flags.
        unsafe { *out_flags = flags };
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(vfs: *mut sqlite3_vfs, name: *const c_char, sync: c_int) -> c_int {
    // SAFETY: SQLite passes the registered file system and a string.
    let (disk, path) = unsafe { (disk(vfs), path(name)) };
    let mut inner = disk.lock().unwrap();
    if let Err(why) = inner.step() {
        return why;
    }
    let image = inner.file(&path);
    if image.removed {
        return ffi::SQLITE_IOERR_DELETE_NOENT;
    }
    image.removed = true;
    if sync != 0 {
        *image = Image { removed: true, ..Image::default() };
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn access(
    vfs: *mut sqlite3_vfs,
    name: *const c_char,
    _flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite passes the registered file system and a string.
    let (disk, path) = unsafe { (disk(vfs), path(name)) };
    let there = !disk.lock().unwrap().file(&path).removed;
    // SAFETY: SQLite passes room for the result.
    unsafe { *out = c_int::from(there) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: `open` made the file, and SQLite closes it once.
    let open = unsafe { file.cast::<OpenFile>().read() };
    // SAFETY: it came from a box.
    drop(unsafe { Box::from_raw(open.path) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, len: c_int, at: sqlite3_int64) -> c_int {
    // SAFETY: `open` made the file.
    let (path, mut inner) = unsafe { parts(file) };
    // SAFETY: SQLite passes room for `len` bytes.
    let to = unsafe { slice::from_raw_parts_mut(to.cast::<u8>(), len as usize) };
    if inner.faults.broken {
        return ffi::SQLITE_IOERR_READ;
    }
    let bytes = inner.file(path).current.get(at as usize..).unwrap_or(&[]);
    let there = bytes.len().min(to.len());
    to[..there].copy_from_slice(&bytes[..there]);
    to[there..].fill(0);
    if there < to.len() { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK }
}

unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: sqlite3_int64,
) -> c_int {
    // SAFETY: `open` made the file.
    let (path, mut inner) = unsafe { parts(file) };
    // SAFETY: SQLite passes `len` bytes.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), len as usize) };
    code(inner.write(path, bytes, at as usize))
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, len: sqlite3_int64) -> c_int {
    // SAFETY: `open` made the file.
    let (path, mut inner) = unsafe { parts(file) };
    let stepped = inner.step();
    if stepped.is_ok() {
        inner.file(path).current.truncate(len as usize);
    }
    code(stepped)
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: `open` made the file.
    let (path, mut inner) = unsafe { parts(file) };
    code(inner.sync(path))
}

unsafe extern "C" fn file_size(file: *mut sqlite3_file, out: *mut sqlite3_int64) -> c_int {
    // SAFETY: `open` made the file.
    let (path, mut inner) = unsafe { parts(file) };
    // SAFETY: SQLite passes room for the result.
    unsafe { *out = inner.file(path).current.len() as sqlite3_int64 };
    ffi::SQLITE_OK
}

/// The store has a lock of its own.
unsafe extern "C" fn lock(_file: *mut sqlite3_file, _level: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: SQLite passes room for the result.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(
    _file: *mut sqlite3_file,
    _operation: c_int,
    _argument: *mut c_void,
) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_file: *mut sqlite3_file) -> c_int {
    SECTOR as c_int
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: `open` made the file.
    let (_, inner) = unsafe { parts(file) };
    if inner.faults.cautious { 0 } else { ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE }
}
