//! A descriptor for event loops of programs that outlives connections.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::{read, write},
};

/// What is to be looked at without a connection saying so.
#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    /// Set after the descriptor was.
    rang: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, rang: AtomicBool::new(false) })
    }

    pub(crate) fn ring(&self) {
        // Only a counter that is full refuses, and then the descriptor is readable.
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
        self.rang.store(true, Ordering::Release);
    }

    pub(crate) fn silence(&self) {
        if self.rang.swap(false, Ordering::Acquire) {
            let mut count = [0; 8];
            let _ = read(&self.fd, &mut count);
        }
    }
}

/// A bell and the descriptor of a connection.
#[derive(Debug)]
pub(crate) struct Both(OwnedFd);

impl Both {
    pub(crate) fn new(bell: &Bell) -> io::Result<Self> {
        let both = Self(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        both.add(bell.fd.as_fd())?;
        Ok(both)
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(0);
        Ok(epoll::add(&self.0, fd, data, epoll::EventFlags::IN)?)
    }

    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        // One that was closed is gone already.
        let _ = epoll::delete(&self.0, fd);
    }
}

impl AsFd for Both {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
