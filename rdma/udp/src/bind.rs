//! The steps by which every socket of this crate is made.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd, OwnedFd},
};

use crate::{Error, sys::option};

/// Opens a nonblocking UDP socket of the address family of `addr`.
pub(crate) fn open(addr: SocketAddr) -> Result<OwnedFd, Error> {
    option::open(addr).map_err(|source| match source.raw_os_error() {
        Some(libc::EMFILE) => Error::NoFiles { addr, source },
        _ => Error::io(format!("open a UDP socket for {addr}"))(source),
    })
}

/// Requests a receive buffer of `bytes` bytes; the buffer may be larger than `net.core.rmem_max` only if this process
/// has the capability CAP_NET_ADMIN.
pub(crate) fn enlarge(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    option::set(socket, (libc::SOL_SOCKET, libc::SO_RCVBUFFORCE), bytes)
        .or_else(|_| option::set(socket, (libc::SOL_SOCKET, libc::SO_RCVBUF), bytes))
}

/// Returns the size of the receive buffer in bytes.
pub(crate) fn recv_buffer(socket: &impl AsRawFd) -> io::Result<usize> {
    // The cast is lossless because the Linux kernel's value of `SO_RCVBUF` is never negative.
    option::get(socket, (libc::SOL_SOCKET, libc::SO_RCVBUF)).map(|bytes| bytes as usize)
}

/// Returns true if the Linux kernel can split super-packets. A Linux kernel that cannot does not know `UDP_SEGMENT`, and
/// would send a super-packet as one datagram.
pub(crate) fn knows_gso(socket: &impl AsRawFd) -> bool {
    option::get(socket, (libc::SOL_UDP, libc::UDP_SEGMENT)).is_ok()
}

/// Binds a socket. Returns it with its address, which has the port that the Linux kernel chose if `local` has port 0.
pub(crate) fn bind(socket: OwnedFd, local: SocketAddr) -> Result<(UdpSocket, SocketAddr), Error> {
    let socket = option::bind(socket, local).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Error::AddressInUse { addr: local },
        io::ErrorKind::AddrNotAvailable => Error::NotLocal(local.ip()),
        _ => Error::io(format!("bind UDP {local}"))(error),
    })?;
    let local =
        socket.local_addr().map_err(Error::io(format!("read the address of the UDP socket on {local}")))?;
    Ok((socket, local))
}
