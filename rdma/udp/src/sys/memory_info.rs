//! What the kernel dropped at a socket, and how full the socket is.
#![allow(unsafe_code, reason = "a socket option without a safe wrapper")]

use std::{ffi::c_int, io, net::UdpSocket, os::fd::AsRawFd};

/// The number of counters of SO_MEMINFO: SK_MEMINFO_VARS of `linux/sock_diag.h`. The following are the places of three of them there:
/// SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF and SK_MEMINFO_DROPS.
const COUNTERS: usize = 9;
const HELD: usize = 0;
const ROOM: usize = 1;
const DROPS: usize = 8;

/// Datagrams that found no place in the receive buffer or had a wrong checksum, since the socket was made; what GRO
/// merged counts as one. Modulo 2^32.
pub(crate) fn of(socket: &UdpSocket) -> io::Result<u32> {
    Ok(counters(socket)?[DROPS])
}

/// The part of a socket's receive buffer that would be in use if `more` bytes were in it besides. It can be more than 1.
pub(crate) fn fill(socket: &UdpSocket, more: u64) -> io::Result<f64> {
    let counters = counters(socket)?;
    Ok((f64::from(counters[HELD]) + more as f64) / f64::from(counters[ROOM].max(1)))
}

fn counters(socket: &UdpSocket) -> io::Result<[u32; COUNTERS]> {
    let mut counters = [0u32; COUNTERS];
    let mut len = size_of_val(&counters) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `counters`, and the socket is open while it is borrowed.
    let failed = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            counters.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if failed != 0 as c_int {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) < size_of_val(&counters) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel counts no drops; Linux 4.12 does",
        ));
    }
    Ok(counters)
}
