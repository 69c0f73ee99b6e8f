//! A file descriptor for event loops of programs that outlives connections.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    event::{EventfdFlags, epoll, eventfd},
    io::{read, write},
};

/// Wakes a program for what no connection says.
#[derive(Debug)]
pub(crate) struct Notifier {
    fd: OwnedFd,
    /// Set after the descriptor was.
    notified: AtomicBool,
}

impl Notifier {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, notified: AtomicBool::new(false) })
    }

    pub(crate) fn notify(&self) {
        // Only a counter that is full refuses, and then the descriptor is readable.
        let _ = write(&self.fd, &1_u64.to_ne_bytes());
        self.notified.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        if self.notified.swap(false, Ordering::Acquire) {
            let mut count = [0; 8];
            let _ = read(&self.fd, &mut count);
        }
    }
}

/// An epoll set with a notifier and the file descriptor of a connection.
#[derive(Debug)]
pub(crate) struct EpollSet(Arc<OwnedFd>);

impl EpollSet {
    pub(crate) fn new(notifier: &Notifier) -> io::Result<Self> {
        let set = Self(Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?));
        set.add(notifier.fd.as_fd())?;
        Ok(set)
    }

    /// Returns a reference that keeps the file descriptor open.
    #[cfg(feature = "tokio")]
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        self.0.clone()
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

impl AsFd for EpollSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
