//! Allocates page-aligned memory for regions. Deregistering a region does not free its memory, which stays mapped until
//! the last [`Memory`] that refers to it is dropped.
//!
//! Every region is a mapping of its own, so that its pages are free for other programs as soon as the region is
//! unmapped. No page of a region contains bytes that do not belong to the region, so a peer cannot see other data of
//! the program. The Linux kernel allocates a page only when the page is first accessed.
//!
//! ```rust
//! let memory = region::alloc(5000)?;
//! assert_eq!(memory.addr() % region::page_size() as u64, 0);
//! assert!(region::footprint(5000) >= Some(5000));
//! memory.write(4998, b"ab");
//! assert_eq!(memory.to_vec(4996, 4), b"\0\0ab");
//!
//! // Another process that has the file descriptor shares the bytes.
//! let (file, shared) = region::memfd("example", 5000)?;
//! let reader = region::map_file_read_only(&file, 5000)?;
//! shared.write(0, b"event");
//! let mut bytes = [0; 5];
//! reader.read(0, &mut bytes);
//! assert_eq!(&bytes, b"event");
//! # Ok::<(), std::io::Error>(())
//! ```
#![allow(unsafe_code)]
#![warn(missing_docs)]

use std::{
    ffi::CString,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    ptr,
    sync::{Arc, OnceLock},
};

use verbs::Memory;

/// The minimum size in bytes for which huge pages are requested. On x86-64, and on arm64 with pages of 4 KiB, the
/// smallest huge page has 2 MiB.
const HUGE_PAGE: usize = 2 << 20;

/// Returns the size in bytes of a memory page of this machine.
pub fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        // SAFETY: sysconf takes no pointers.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    })
}

/// Returns the size in bytes of this machine's memory, or `None` if the operating system does not report the size.
pub fn physical_memory() -> Option<u64> {
    // SAFETY: sysconf takes no pointers.
    let pages = u64::try_from(unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) }).ok()?;
    pages.checked_mul(page_size() as u64)
}

/// Returns the number of bytes that a region of `len` bytes occupies: whole pages, and at least one page. Returns
/// `None` if the address space has no room for a mapping of this length.
pub fn footprint(len: usize) -> Option<usize> {
    let mapped = len.max(1).checked_next_multiple_of(page_size())?;
    isize::try_from(mapped).is_ok().then_some(mapped)
}

/// Maps `len` zeroed bytes, private to this process, starting at a page boundary.
///
/// The memory is unmapped when the last clone of the returned `Memory` is dropped. A region of 0 bytes also has its own
/// address.
///
/// # Errors
/// Fails with [`io::ErrorKind::OutOfMemory`] if there is not enough memory or address space for the mapping.
pub fn alloc(len: usize) -> io::Result<Memory> {
    map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)
}

/// Maps zeroed bytes like [`alloc`], but the bytes belong to the returned file, so that another process can map the
/// file and share the bytes.
///
/// The file has the name `name` in /proc. Seals prevent changes of the file's size. Without the seals, a process that
/// has the file could remove pages that other processes have mapped.
///
/// # Errors
/// Fails with [`io::ErrorKind::InvalidInput`] if `name` contains a zero byte or is longer than 249 bytes. Fails with
/// [`io::ErrorKind::OutOfMemory`] if there is not enough memory or address space for the mapping.
pub fn memfd(name: &str, len: usize) -> io::Result<(OwnedFd, Memory)> {
    shared(name, len, libc::F_SEAL_SEAL)
}

/// Creates a file like [`memfd`] does, but other processes can map this file only for reading.
///
/// # Errors
/// Fails with the errors of [`memfd`]; also fails with Linux kernels before 5.1, which do not have the seal
/// F_SEAL_FUTURE_WRITE.
pub fn memfd_for_readers(name: &str, len: usize) -> io::Result<(OwnedFd, Memory)> {
    // The value of F_SEAL_FUTURE_WRITE in linux/fcntl.h.
    const FUTURE_WRITE: libc::c_int = 0x10;
    shared(name, len, FUTURE_WRITE | libc::F_SEAL_SEAL)
}

/// Creates and maps a new file, and afterwards adds `seals` to the file.
fn shared(name: &str, len: usize, seals: libc::c_int) -> io::Result<(OwnedFd, Memory)> {
    let mapped = footprint(len).ok_or_else(|| refused(len, &io::Error::from_raw_os_error(libc::ENOMEM)))?;
    let fd = file(name, mapped)?;
    seal(&fd, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    let memory = map(len, libc::MAP_SHARED, Some(&fd))?;
    seal(&fd, seals)?;
    Ok((fd, memory))
}

/// Memory that this process can only read, while other processes write it.
#[derive(Clone, Debug)]
pub struct ReadOnly(Memory);

impl ReadOnly {
    /// Returns a pointer to the first byte of the memory. Other processes may change the bytes at any time.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Returns the size of the memory in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the memory has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Copies the bytes that start at `offset` into `out`.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        self.0.read(offset, out);
    }

    /// Copies the `len` bytes at `offset` piece by piece, and passes the copy of each piece to `take`, like
    /// [`Memory::try_pieces`].
    ///
    /// # Errors
    /// Returns the first error that `take` returns.
    ///
    /// # Panics
    /// Panics if the range is not inside the memory.
    pub fn try_pieces<const N: usize, E>(
        &self,
        offset: usize,
        len: usize,
        take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.0.try_pieces::<N, E>(offset, len, take)
    }
}

/// Maps the first `len` bytes of a file of another process.
///
/// # Errors
/// Fails with [`io::ErrorKind::InvalidInput`] if the file is shorter than `len`, or if the file is not sealed against
/// shrinking.
pub fn map_file(fd: &OwnedFd, len: usize) -> io::Result<Memory> {
    check_file(fd, len)?;
    map(len, libc::MAP_SHARED, Some(fd))
}

/// Maps the first `len` bytes of the file like [`map_file`], but only for reading.
///
/// # Errors
/// Fails with the errors of [`map_file`].
pub fn map_file_read_only(fd: &OwnedFd, len: usize) -> io::Result<ReadOnly> {
    check_file(fd, len)?;
    map_with(len, libc::PROT_READ, libc::MAP_SHARED, Some(fd)).map(ReadOnly)
}

fn check_file(fd: &OwnedFd, len: usize) -> io::Result<()> {
    let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    // SAFETY: the call takes no pointers.
    let seals = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return wrong("the file could shrink; it must be a memfd that is sealed against that");
    }
    // SAFETY: the call takes no pointers.
    let size = unsafe { libc::lseek(fd.as_raw_fd(), 0, libc::SEEK_END) };
    if u64::try_from(size).unwrap_or(0) < len as u64 {
        return wrong("the file is shorter than what is to be mapped");
    }
    Ok(())
}

fn file(name: &str, len: usize) -> io::Result<OwnedFd> {
    let (name, flags) = (CString::new(name)?, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
    // SAFETY: `name` is a C string that lives through the call.
    let fd = check(unsafe { libc::memfd_create(name.as_ptr(), flags) })?;
    // SAFETY: the file descriptor is new, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let len = libc::off_t::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the call takes no pointers.
    check(unsafe { libc::ftruncate(fd.as_raw_fd(), len) })?;
    Ok(fd)
}

fn seal(fd: &OwnedFd, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Returns the result of a system call, or the error in `errno` if the result is negative.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A mapping, which is unmapped when the `OwnedMapping` is dropped.
struct OwnedMapping {
    addr: *mut libc::c_void,
    len: usize,
}

// SAFETY: a mapping consists only of an address and a length, and any thread may unmap it.
unsafe impl Send for OwnedMapping {}
// SAFETY: a shared reference to an `OwnedMapping` gives no access to the mapped memory.
unsafe impl Sync for OwnedMapping {}

impl Drop for OwnedMapping {
    fn drop(&mut self) {
        // SAFETY: `map_with` mapped the range, and nothing refers to the range after the last `Memory` was dropped.
        unsafe { libc::munmap(self.addr, self.len) };
    }
}

fn map(len: usize, flags: libc::c_int, file: Option<&OwnedFd>) -> io::Result<Memory> {
    map_with(len, libc::PROT_READ | libc::PROT_WRITE, flags, file)
}

fn map_with(
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    file: Option<&OwnedFd>,
) -> io::Result<Memory> {
    let mapped = footprint(len).ok_or_else(|| refused(len, &io::Error::from_raw_os_error(libc::ENOMEM)))?;
    let fd = file.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: the Linux kernel chooses a free address range, so no existing mapping changes.
    let addr = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, flags, fd, 0) };
    if addr == libc::MAP_FAILED {
        return Err(refused(len, &io::Error::last_os_error()));
    }
    let mapping = OwnedMapping { addr, len: mapped };
    advise_huge(&mapping);
    // SAFETY: `mapping`, which becomes the owner of the memory, keeps at least `len` bytes mapped for reading. If
    // `protection` does not permit writing, the caller puts the memory into a `ReadOnly`, which never writes.
    Ok(unsafe { Memory::from_raw_parts(addr.cast(), len, Arc::new(mapping)) })
}

/// Requests huge pages from the Linux kernel. If the Linux kernel does not support huge pages, it refuses the request,
/// and the mapping keeps small pages.
fn advise_huge(mapping: &OwnedMapping) {
    if mapping.len >= HUGE_PAGE {
        // SAFETY: `mapping` owns the range, and the advice does not change the bytes in the range.
        unsafe { libc::madvise(mapping.addr, mapping.len, libc::MADV_HUGEPAGE) };
    }
}

fn refused(len: usize, error: &io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::ENOMEM) {
        return io::Error::new(error.kind(), format!("cannot map {len} bytes: {error}"));
    }
    let remedy = "use smaller or fewer regions, or raise the limit that is reached: `ulimit -v`, \
                  vm.overcommit_memory, vm.max_map_count";
    io::Error::new(
        io::ErrorKind::OutOfMemory,
        format!("cannot map {len} bytes: the kernel has no room for them; {remedy}"),
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns true if a mapping of this process contains `addr`.
    fn is_mapped(addr: u64) -> bool {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            (hex(start)..hex(end)).contains(&addr)
        })
    }

    #[test]
    fn regions_are_zeroed_writable_and_start_on_a_page() {
        for len in [1, 64, 4095, 4096, 4097, 3 << 20] {
            let memory = alloc(len).unwrap();
            assert_eq!((memory.len(), memory.addr() % page_size() as u64), (len, 0));
            assert!(memory.to_vec(0, len).iter().all(|&byte| byte == 0));
            memory.write(len - 1, &[7]);
            assert_eq!(memory.to_vec(len - 1, 1), [7]);
        }
    }

    #[test]
    fn empty_regions_have_addresses_of_their_own() {
        let (a, b) = (alloc(0).unwrap(), alloc(0).unwrap());
        assert!(a.is_empty() && b.is_empty());
        assert_ne!(a.addr(), b.addr());
        assert!(is_mapped(a.addr()));
    }

    #[test]
    fn the_mapping_goes_with_the_last_clone() {
        // The check runs in a child process, because another test in this process may immediately map the same address
        // range again.
        if std::env::var_os("NAA_REGION_CHILD").is_none() {
            let name = "tests::the_mapping_goes_with_the_last_clone";
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--test-threads=1"])
                .env("NAA_REGION_CHILD", "1")
                .status();
            assert!(status.unwrap().success());
            return;
        }
        let memory = alloc(64 << 20).unwrap();
        let middle = memory.addr() + (32 << 20);
        let part = memory.slice(5, 5);
        drop(memory);
        assert!(is_mapped(middle));
        drop(part);
        assert!(!is_mapped(middle));
    }

    #[test]
    fn memory_is_backed_only_when_touched() {
        let resident = || {
            let statm = fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * page_size()
        };
        let before = resident();
        let _memory = alloc(1 << 30).unwrap();
        assert!(resident() < before + (256 << 20));
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_with_a_remedy() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            let error = alloc(len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
            assert!(error.to_string().contains("ulimit -v"), "{error}");
            assert!(memfd("too-large", len).is_err());
        }
    }

    #[test]
    fn a_memfd_is_shared_and_cannot_shrink() {
        let (readable, events) = memfd_for_readers("naa-test", 5000).unwrap();
        assert!(map_file(&readable, 5000).is_err());
        let reader = map_file_read_only(&readable, 5000).unwrap();
        events.write(4999, &[7]);
        let mut last = [0];
        reader.read(4999, &mut last);
        assert_eq!(last, [7]);
        assert!(map_file_read_only(&readable, 1 << 20).is_err());
        let (fd, memory) = memfd("naa-test", 5000).unwrap();
        assert_eq!(memory.len(), 5000);
        let other = map_file(&fd, 5000).unwrap();
        memory.write(4999, &[9]);
        assert_eq!(other.to_vec(4999, 1), [9]);
        assert!(fs::File::from(fd).set_len(0).is_err());
        assert_eq!(memfd("a\0b", 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(memfd("empty", 0).unwrap().1.is_empty());
    }
}
