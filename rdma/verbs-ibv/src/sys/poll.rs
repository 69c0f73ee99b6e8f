//! Functions with which a thread sleeps until one of several file descriptors is readable.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

/// The maximum number of file descriptors on which a thread sleeps at the same time.
const MOST: usize = 5;

/// Sleeps until one of `fds` is readable, or until `timeout` is over. If `timeout` is `None`, there is no time limit. A
/// signal may end the sleep early. Returns true for each file descriptor that is readable.
pub(crate) fn sleep(
    fds: [Option<BorrowedFd<'_>>; MOST],
    timeout: Option<Duration>,
) -> io::Result<[bool; MOST]> {
    let mut polled = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MOST];
    // An entry without a file descriptor gets the number -1, because the Linux kernel ignores negative file
    // descriptors.
    for (entry, fd) in polled.iter_mut().zip(fds) {
        entry.fd = fd.map_or(-1, |fd| fd.as_raw_fd());
    }
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `polled` has `MOST` entries, the file descriptors are open while they are borrowed, and `timeout`
    // outlives the call.
    let code = unsafe { libc::ppoll(polled.as_mut_ptr(), MOST as libc::nfds_t, timeout, std::ptr::null()) };
    match not_negative(code) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok([false; MOST]),
        result => result.map(|_| polled.map(|entry| entry.revents != 0)),
    }
}

/// Converts the return value of a C function to a result. The function returns a number if it succeeds; if it fails, it
/// returns -1 and sets errno.
fn not_negative(returned: libc::c_int) -> io::Result<libc::c_int> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

/// Returns a file descriptor that is readable while at least one of `fds` is open and readable.
pub(crate) fn any_of<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>) -> io::Result<OwnedFd> {
    // SAFETY: `epoll_create1` takes no pointers.
    let epoll = not_negative(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: `epoll_create1` has just created this file descriptor, so nobody else owns it.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    for fd in fds {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: both file descriptors are open, and the local variable `event` outlives the call.
        super::check(unsafe {
            libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event)
        })?;
    }
    Ok(epoll)
}

pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: `fcntl` takes no pointer for this command, and `fd` is open while it is borrowed.
    let flags = not_negative(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: `fcntl` takes no pointer for this command, and `fd` is open while it is borrowed.
    super::check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

/// A file descriptor (eventfd) by which a thread wakes another thread that sleeps on it.
#[derive(Debug)]
pub(crate) struct Waker(File);

impl Waker {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: `eventfd` takes no pointers.
        let fd = not_negative(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: `eventfd` has just created this file descriptor, so nobody else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    pub(crate) fn wake(&self) {
        // If the eventfd's counter is at its limit, `write` fails; the error is ignored, because a counter above 0
        // wakes the other thread anyway.
        let _ = (&self.0).write(&1_u64.to_ne_bytes());
    }

    pub(crate) fn drain(&self) {
        // If the eventfd's counter is 0, `read` fails; the error is ignored, because the waker is already drained.
        let _ = (&self.0).read(&mut [0; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_a_sleep_until_it_is_drained() {
        let waker = Waker::new().unwrap();
        waker.wake();
        assert_eq!(
            sleep([None, Some(waker.as_fd()), None, None, None], None).unwrap(),
            [false, true, false, false, false]
        );
        waker.drain();
        let start = std::time::Instant::now();
        sleep([Some(waker.as_fd()), None, None, None, None], Some(Duration::from_millis(20))).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(20));
    }
}
