//! Which of many descriptors can be read.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{Timespec, epoll},
    io::Errno,
};

/// One call of `wait` reports at most this many descriptors. The next call reports others.
const AT_ONCE: usize = 64;

/// Descriptors with numbers. The kernel tells which of them can be read, at a cost that does not grow with their number.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

impl ReadySet {
    /// Makes a set without descriptors.
    ///
    /// # Errors
    /// Fails if the operating system makes no epoll descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Adds a file descriptor, which must stay open while the set is used. The Linux kernel removes a closed descriptor
    /// from the set.
    ///
    /// # Errors
    /// Fails if the operating system does not accept the descriptor.
    pub fn add(&self, fd: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?)
    }

    /// Sleeps for at most `most` until a descriptor is readable, and calls `each` with the numbers of the readable
    /// descriptors. Returns false if more descriptors may be readable, or if a signal ended the sleep.
    ///
    /// # Errors
    /// Fails if the operating system cannot wait for the descriptors.
    pub fn wait(&self, most: Duration, mut each: impl FnMut(usize)) -> io::Result<bool> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; AT_ONCE];
        let most = Timespec { tv_sec: most.as_secs() as _, tv_nsec: most.subsec_nanos() as _ };
        match epoll::wait(&self.0, &mut events, Some(&most)) {
            Ok((ready, _)) => {
                ready.iter().for_each(|event| each(event.data.u64() as usize));
                Ok(ready.len() < AT_ONCE)
            }
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for ReadySet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
