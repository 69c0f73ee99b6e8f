//! The verbs provider: a driver for NICs and the kernel's soft-RoCE, on rdma-core.
//!
//! librdmacm and libibverbs are loaded when a device is opened, so that the same binary also runs on machines without
//! them. [`devices`] and [`owner_of`] read only sysfs and need neither library.
//!
//! The device itself executes one-sided operations, so there is no thread here. Completions are polled, or waited for
//! on a completion channel; connection events are taken whenever the program polls or waits.

mod connection;
mod counters;
mod devices;
mod driver;
mod memlock;
mod queue;
mod registrations;
mod sys;
mod waiting;

pub use devices::{Gid, Owner, RdmaDevice, RdmaPort, devices, devices_under, owner_of};

use std::{net::IpAddr, sync::Arc};

use verbs::{Context, Error};

/// How to open a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Memory stays registered after the end of its registration, as long as its owner lives, so that registering the
    /// same buffer again costs nothing. The key also stays valid, although the session that knew it has no queue pair
    /// any more. Servers do not set this option, so that their hosts have no old keys to guess.
    pub keep_registrations: bool,
}

/// Whether rdma-core is installed.
///
/// # Errors
/// [`Error::NoDevice`] with the packages to install.
pub fn load() -> Result<(), Error> {
    sys::load().map(drop)
}

/// Opens the device that has the address `local`; `owner` is the device's entry in sysfs ([`owner_of`]).
///
/// # Errors
/// [`Error::NoDevice`] if rdma-core, a device or the address is missing; [`Error::Io`] if the device cannot be used.
pub fn open(local: IpAddr, owner: Option<&Owner>, options: &Options) -> Result<Context, Error> {
    let local = local.to_canonical();
    Ok(Context::new(Arc::new(driver::Ibv::open(local, owner.cloned(), options)?)))
}
