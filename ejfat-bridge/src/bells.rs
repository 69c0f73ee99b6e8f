//! What a loop that sleeps is woken by.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use ejfat_udp::Ports;
use rustix::event::{Timespec, epoll};

use crate::local::Listener;

/// Descriptors of descriptors: those of workers of this machine, and all of them with the ports.
#[derive(Debug)]
pub(crate) struct Bells {
    all: OwnedFd,
    workers: OwnedFd,
}

fn add(to: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::add(to, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

impl Bells {
    pub(crate) fn new(ports: &Ports, listener: Option<&Listener>) -> io::Result<Self> {
        let new = || epoll::create(epoll::CreateFlags::CLOEXEC);
        let bells = Self { all: new()?, workers: new()? };
        add(&bells.all, bells.workers.as_fd())?;
        add(&bells.all, ports.descriptor())?;
        if let Some(listener) = listener {
            bells.hear(listener.as_fd())?;
        }
        Ok(bells)
    }

    /// A worker's socket, as long as it is open.
    pub(crate) fn hear(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        add(&self.workers, socket)
    }

    /// The same socket is not heard until it is added again.
    pub(crate) fn ignore(&self, socket: BorrowedFd<'_>) {
        // One that is not there is not heard.
        let _ = epoll::delete(&self.workers, socket);
    }

    /// The ports are not heard any more.
    pub(crate) fn silence(&self, ports: &Ports) {
        // A descriptor that is not there never becomes readable.
        let _ = epoll::delete(&self.all, ports.descriptor());
    }

    pub(crate) fn all(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Whether a worker's socket, or where they connect, has something.
    pub(crate) fn of_workers(&self) -> bool {
        let mut events = Vec::with_capacity(1);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.workers, rustix::buffer::spare_capacity(&mut events), Some(&at_once))
            .is_ok_and(|n| n > 0)
    }
}
