//! The file descriptors that wake the server loop while it sleeps.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use ejfat_udp::Ports;
use rustix::event::{Timespec, epoll};

use crate::local::Listener;

/// Two epoll sets of file descriptors. The set `workers` has the sockets of local workers and the socket to which local
/// workers connect. The set `all` has the file descriptor of the set `workers` and the file descriptor of the UDP ports
/// at which segments arrive.
#[derive(Debug)]
pub(crate) struct WakeSet {
    all: OwnedFd,
    workers: OwnedFd,
}

fn add_to(to: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(epoll::add(to, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?)
}

impl WakeSet {
    pub(crate) fn new(ports: &Ports, listener: Option<&Listener>) -> io::Result<Self> {
        let new = || epoll::create(epoll::CreateFlags::CLOEXEC);
        let set = Self { all: new()?, workers: new()? };
        add_to(&set.all, set.workers.as_fd())?;
        add_to(&set.all, ports.descriptor())?;
        if let Some(listener) = listener {
            set.add(listener.as_fd())?;
        }
        Ok(set)
    }

    /// Adds a socket to the set `workers`. The socket stays in the set until it is closed or [`Self::remove`] removes
    /// it.
    pub(crate) fn add(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        add_to(&self.workers, socket)
    }

    /// Removes a socket from the set `workers`. The removed socket does not wake the server loop until [`Self::add`]
    /// adds the socket again.
    pub(crate) fn remove(&self, socket: BorrowedFd<'_>) {
        // An error means that the socket is not in the set. The error is ignored, because a socket that is not in the
        // set does not wake the server loop.
        let _ = epoll::delete(&self.workers, socket);
    }

    /// Removes the UDP ports from the set `all`, so that segments no longer wake the server loop.
    pub(crate) fn remove_ports(&self, ports: &Ports) {
        // An error means that the file descriptor of the ports is not in the set. The error is ignored, because ports
        // that are not in the set do not wake the server loop.
        let _ = epoll::delete(&self.all, ports.descriptor());
    }

    pub(crate) fn all(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Returns true if a socket in the set `workers` is readable.
    pub(crate) fn of_workers(&self) -> bool {
        let mut events = Vec::with_capacity(1);
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.workers, rustix::buffer::spare_capacity(&mut events), Some(&at_once))
            .is_ok_and(|n| n > 0)
    }
}
