//! Waits until a socket is ready or another thread wakes the waiting thread.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd},
    ptr,
    time::Duration,
};

use super::check;

/// A waker ends the wait of another thread. The waker is an eventfd, which counts the calls of [`Waker::wake`] until
/// [`Waker::drain`] is called, so that no wake-up is lost.
#[derive(Debug)]
pub struct Waker(File);

impl Waker {
    /// Makes a waker whose count of wake-ups is 0.
    ///
    /// # Errors
    /// Fails if the process has no free file descriptor.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the file descriptor is new, and nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Ends the wait of a thread that waits for this waker. If no thread waits for it now, the next wait ends at once.
    pub fn wake(&self) {
        // The write fails only if the eventfd's counter is at its limit. The failure does no harm, because any counter
        // above zero ends the wait.
        let _ = (&self.0).write(&1u64.to_ne_bytes());
    }

    /// Sets the count of wake-ups to 0; returns true if there was at least one wake-up.
    pub fn drain(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The maximum number of file descriptors in one wait; the limit keeps the array of `pollfd` on the stack small.
const MOST: usize = 32;

/// Waits until a file descriptor is ready or `timeout` has passed; if `timeout` is `None`, the wait has no time limit.
///
/// `sources` are the file descriptors, each with the poll(2) events for which the function waits. After the wait, the
/// function calls `came` once for each file descriptor. The arguments of `came` are the file descriptor's index in
/// `sources` and the poll(2) events that occurred, or 0 if none occurred.
///
/// If a signal interrupts the wait, the function returns early and does not call `came`.
///
/// # Errors
/// Fails with [`io::ErrorKind::InvalidInput`] if there are more than 32 file descriptors, and otherwise with the errors
/// of ppoll(2).
pub(crate) fn wait<'a>(
    sources: impl Iterator<Item = (BorrowedFd<'a>, i16)>,
    timeout: Option<Duration>,
    mut came: impl FnMut(usize, i16),
) -> io::Result<()> {
    let mut polled = [libc::pollfd { fd: -1, events: 0, revents: 0 }; MOST];
    let mut count = 0;
    for (fd, events) in sources {
        let poll = polled.get_mut(count).ok_or(io::ErrorKind::InvalidInput)?;
        (poll.fd, poll.events) = (fd.as_raw_fd(), events);
        count += 1;
    }
    // SAFETY: a `timespec` consists of integers, for which zero is a valid value, and of padding on some targets.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    if let Some(timeout) = timeout {
        time.tv_sec = libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX);
        time.tv_nsec = timeout.subsec_nanos() as _;
    }
    let time = if timeout.is_some() { &raw const time } else { ptr::null() };
    // SAFETY: `polled` has at least `count` entries, and `time` is null or a live timespec.
    let result = check(unsafe { libc::ppoll(polled.as_mut_ptr(), count as _, time, ptr::null()) });
    match result {
        Ok(_) => polled[..count].iter().enumerate().for_each(|(place, poll)| came(place, poll.revents)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
