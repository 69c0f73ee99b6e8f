//! Safe wrappers for rdma-core. Each wrapper owns one object of the C libraries, keeps references to the wrappers on
//! which its object depends, and destroys its object when the wrapper is dropped. Only this folder of the crate has
//! `unsafe` code.
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

pub(crate) use cm::{ConnRequest, EventChannel, RawCmId, RawEvent, What};
pub(crate) use cq::RawCq;
pub(crate) use device::{DeviceLimits, IbvDevice};
pub(crate) use library::{Maker, load};
pub(crate) use memory::{RawMr, RawPd};
pub(crate) use poll::{Waker, any_of, sleep};
pub(crate) use qp::{Caps, RawQp, Retries};

use std::io;

/// Returns the error that a function of C stored in errno.
fn errno() -> io::Error {
    io::Error::last_os_error()
}

/// Converts the return value of a C function that returns 0, or returns -1 and sets errno.
fn check(returned: std::ffi::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(errno()) }
}

/// Converts the return value of a C function that returns 0 or an error number.
fn check_code(returned: std::ffi::c_int) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // Some of rdma-core's NIC drivers return -1 instead of an error number, and set errno.
        code if code < 0 => Err(errno()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
