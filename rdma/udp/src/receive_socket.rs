//! Sockets that receive into buffers of their user.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    os::fd::{AsFd, BorrowedFd},
};

use crate::{
    Error, RecvHeaders, bind,
    sys::{memory_info::MemoryInfo, option},
};

/// A nonblocking UDP socket that only receives, on any local address; a wildcard address is allowed. The Linux kernel
/// merges received datagrams (GRO) if it can.
#[derive(Debug)]
pub struct ReceiveSocket {
    socket: UdpSocket,
    local: SocketAddr,
}

impl ReceiveSocket {
    /// Binds a socket to `local`, with port 0 for an ephemeral port. A socket of the address `::` receives no IPv4.
    /// `receive_buffer` is the number of bytes that is requested for the receive buffer, or `None` for the default of
    /// the operating system.
    ///
    /// # Errors
    /// Fails with [`Error::NotLocal`] if the address is not an address of this machine, with [`Error::AddressInUse`] if
    /// another socket has it, with [`Error::NoFiles`] if this process may have no more open files, and with
    /// [`Error::Io`] if the operating system refuses the socket.
    pub fn bind(local: SocketAddr, receive_buffer: Option<usize>) -> Result<Self, Error> {
        let failed = |what: &str| Error::io(format!("{what} on {local}"));
        let socket = bind::open(local)?;
        if local.is_ipv6() {
            option::set(&socket, (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY), 1)
                .map_err(failed("set an option of the UDP socket"))?;
        }
        // Without this option datagrams come one by one, which is slower.
        let _ = option::set(&socket, (libc::SOL_UDP, libc::UDP_GRO), 1);
        if let Some(bytes) = receive_buffer {
            bind::enlarge(&socket, bytes).map_err(failed("size the receive buffer"))?;
        }
        let (socket, local) = bind::bind(socket, local)?;
        Ok(Self { socket, local })
    }

    /// Returns the address to which the socket is bound. If the port 0 was requested, the address has the port that the
    /// Linux kernel chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Receives messages that have arrived into `buffers`, without waiting: one message into each buffer, in their
    /// order, and at most as many as `headers` has room for. A message here is a datagram, or several datagrams that the
    /// Linux kernel merged; a buffer of 64 KiB has room for any. Returns the number of messages, of which
    /// [`RecvHeaders::message`] tells senders and lengths; 0 means that no message has arrived.
    ///
    /// # Errors
    /// Fails if the operating system cannot receive on the socket.
    pub fn recv(&self, headers: &mut RecvHeaders, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match headers.fill(self.socket.as_fd(), buffers.iter_mut().map(|buffer| &mut **buffer)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(0)
            }
            result => result,
        }
    }

    /// Returns the size of the receive buffer in bytes. The Linux kernel counts its own overhead as a part of this size,
    /// and therefore doubles the requested size.
    ///
    /// # Errors
    /// Fails if the operating system does not report the size.
    pub fn recv_buffer(&self) -> io::Result<usize> {
        bind::recv_buffer(&self.socket)
    }

    /// Returns the number of datagrams that found no place in the receive buffer or had a wrong checksum, since the
    /// socket was made; what GRO merged counts as one. The number is modulo 2^32.
    ///
    /// # Errors
    /// Fails if the operating system does not report the number.
    pub fn drops(&self) -> io::Result<u32> {
        MemoryInfo::of(self.as_fd()).map(MemoryInfo::drops)
    }

    /// Returns the part of the receive buffer that would be in use if `more` bytes were in it besides. It can be more
    /// than 1.
    ///
    /// # Errors
    /// Fails if the operating system does not report how full the buffer is.
    pub fn fill(&self, more: u64) -> io::Result<f64> {
        MemoryInfo::of(self.as_fd()).map(|info| info.fill(more))
    }

    /// Returns another file descriptor of the same socket.
    ///
    /// # Errors
    /// Fails if this process may have no more open files.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, local: self.local })
    }
}

impl AsFd for ReceiveSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
