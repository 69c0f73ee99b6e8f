//! Opening a UDP socket and setting its options.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use super::{address::RawAddress, check};

/// A socket option whose value is an integer: its level and its name.
pub(crate) type SocketOption = (libc::c_int, libc::c_int);

/// Opens a nonblocking UDP socket of the address family of `addr`. The socket is not bound, and is closed on exec.
pub(crate) fn open(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the call takes no pointers.
    let fd = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the file descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn bind(socket: OwnedFd, addr: SocketAddr) -> io::Result<UdpSocket> {
    let (raw, len) = RawAddress::new(addr);
    // SAFETY: `raw` holds `len` bytes of address.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), len) })?;
    Ok(socket.into())
}

pub(crate) fn set(socket: &impl AsRawFd, (level, name): SocketOption, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is `len` bytes long.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) })
        .map(drop)
}

pub(crate) fn get(socket: &impl AsRawFd, (level, name): SocketOption) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes.
    check(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len)
    })?;
    Ok(value)
}

/// Lets the Linux kernel report ICMP errors, for example refusals, to a socket that is not connected. A connected
/// socket gets refusals without this option.
///
/// # Errors
/// Fails if the operating system refuses the socket option.
pub fn report_icmp_errors(socket: &UdpSocket) -> io::Result<()> {
    let option = match socket.local_addr()?.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set(socket, option, 1)
}
