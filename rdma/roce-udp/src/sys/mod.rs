//! The system calls of the socket layer, one file for each family of calls.
//!
//! All unsafe code of the crate is in this folder. Its functions are safe to call, except
//! [`Segment::gather`](transmit::Segment::gather).
#![allow(unsafe_code)]

pub(crate) mod address;
mod arena;
mod fold;
pub(crate) mod fork;
pub(crate) mod gather;
pub(crate) mod interface;
pub(crate) mod option;
pub(crate) mod receive;
pub(crate) mod transmit;
pub(crate) mod wait;

use std::io;

/// The result of a system call that returns -1 and sets `errno` when it fails.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An empty header for `recvmmsg` and `sendmmsg`.
fn empty_header() -> libc::mmsghdr {
    // SAFETY: null pointers and zero lengths are valid, and the padding some C libraries add is private.
    unsafe { std::mem::zeroed() }
}
