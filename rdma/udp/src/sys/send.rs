//! Sends on connected sockets by `sendmsg`.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use super::{empty_header, transmit::SegmentSize};

/// Sends `bytes` to the address to which `socket` is connected. If there are more than `segment_len` bytes, they are a
/// super-packet: the Linux kernel splits them into datagrams of `segment_len` bytes, of which the last may be shorter.
pub(crate) fn send(socket: BorrowedFd<'_>, bytes: &[u8], segment_len: u16) -> io::Result<()> {
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut size = SegmentSize::EMPTY;
    let mut header = empty_header().msg_hdr;
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    if bytes.len() > usize::from(segment_len) {
        size.set(&mut header, segment_len);
    }
    // SAFETY: `header` points to one live `iovec` entry, whose bytes are readable, and to a live control block or null.
    // The Linux kernel writes to none of them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
