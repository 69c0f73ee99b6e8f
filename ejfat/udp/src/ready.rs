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

/// Descriptors that one look tells of, at most; the others have their turn at the next.
const AT_ONCE: usize = 64;

/// Numbered descriptors, of which the kernel tells those that can be read: waiting costs no more for more of them.
#[derive(Debug)]
pub struct ReadySet(OwnedFd);

impl ReadySet {
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// A descriptor that stays open as long as the set is used; when it is closed, it is not told of any more.
    pub fn add(&self, fd: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?)
    }

    /// Sleeps until one can be read, or the time is up or a signal comes, and calls `each` with those that can. False if
    /// there may be more of them.
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
