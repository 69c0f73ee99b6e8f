//! Safe wrappers for rdma-core. Each wrapper owns one object of the C libraries, keeps alive what the object depends
//! on, and destroys the object when dropped. Only this folder of the crate has `unsafe` code.
#![allow(unsafe_code)]

#[allow(
    dead_code,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    unnameable_types,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_qualifications,
    clippy::all
)]
#[rustfmt::skip]
mod bindings;
mod address;
mod cm;
mod cq;
mod device;
mod library;
mod memory;
mod poll;
mod qp;

pub(crate) use cm::{CmId, ConnRequest, EventChannel, RawEvent, What};
pub(crate) use cq::Cq;
pub(crate) use device::{Device, Limits};
pub(crate) use library::{Maker, load};
pub(crate) use memory::{Mr, Pd};
pub(crate) use poll::{Waker, any_of, sleep};
pub(crate) use qp::{Caps, Qp, Retries};

use std::io;

/// The error that the C library left in errno.
fn errno() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a call that returns 0 or -1 with errno.
fn check(returned: std::ffi::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(errno()) }
}

/// The result of a call that returns 0 or an error number.
fn check_code(returned: std::ffi::c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // Some providers set errno and return -1.
        code if code < 0 => Err(errno()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
