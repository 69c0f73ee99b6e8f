//! The system calls of the sockets. The system calls for one task, for example for receiving, are in one file.
//!
//! All unsafe code of the crate is in this folder. The functions that modules outside of this folder may call are safe,
//! except [`DatagramBuilder::gather`](transmit::DatagramBuilder::gather).
#![allow(unsafe_code)]

mod address;
mod batch_bytes;
pub(crate) mod interface;
pub(crate) mod memory_info;
pub(crate) mod option;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod transmit;
pub(crate) mod wait;

use std::io;

/// Returns the result of a system call, or the error in `errno` if the result is negative.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// An empty header for `recvmmsg` and `sendmmsg`.
fn empty_header() -> libc::mmsghdr {
    // SAFETY: an `mmsghdr` consists of pointers, lengths, flags and padding, and zero is a valid value for all of them.
    unsafe { std::mem::zeroed() }
}
