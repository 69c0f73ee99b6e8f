//! What the Linux kernel dropped at a socket, and how full the socket is (SO_MEMINFO).

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::check;

/// The number of counters of SO_MEMINFO: SK_MEMINFO_VARS of `linux/sock_diag.h`. The following are the places of three
/// of them there: SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_RCVBUF and SK_MEMINFO_DROPS.
const COUNTERS: usize = 9;
const HELD: usize = 0;
const ROOM: usize = 1;
const DROPS: usize = 8;

/// The counters of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryInfo([u32; COUNTERS]);

impl MemoryInfo {
    pub(crate) fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut counters = [0u32; COUNTERS];
        let mut len = size_of_val(&counters) as libc::socklen_t;
        // SAFETY: the Linux kernel writes at most `len` bytes to `counters`.
        check(unsafe {
            let counters = counters.as_mut_ptr().cast();
            libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, counters, &raw mut len)
        })?;
        if (len as usize) < size_of_val(&counters) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel counts no drops; Linux 4.12 does",
            ));
        }
        Ok(Self(counters))
    }

    /// Datagrams that were dropped since the socket was made, modulo 2^32.
    pub(crate) fn drops(self) -> u32 {
        self.0[DROPS]
    }

    /// The part of the receive buffer that would be in use if `more` bytes were in it besides. It can be more than 1.
    pub(crate) fn fill(self, more: u64) -> f64 {
        (f64::from(self.0[HELD]) + more as f64) / f64::from(self.0[ROOM].max(1))
    }
}
