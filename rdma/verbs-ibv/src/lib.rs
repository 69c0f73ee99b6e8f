//! RDMA by rdma-core: the provider for NICs and kernel soft-RoCE behind the seam.
//!
//! librdmacm and libibverbs are loaded when a device is opened, so that one binary also runs where they are
//! missing. [`devices`] and [`owner_of`] read sysfs and need neither.
//!
//! One-sided operations are the device's business, so there is no thread here: completions are polled, or slept
//! for on a completion channel, and connection events are taken whenever the program polls or waits.

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
    /// Memory stays registered after its registration ended, as long as its owner lives: the same buffer again then
    /// costs nothing. The key stays valid too, though no queue pair of the session that knew it is left; a server,
    /// whose hosts should have nothing to guess, does without.
    pub keep_registrations: bool,
}

/// Whether rdma-core is installed.
///
/// # Errors
/// [`Error::NoDevice`] with the packages to install.
pub fn load() -> Result<(), Error> {
    sys::load().map(drop)
}

/// Opens the device that has the address `local`; `owner` is what sysfs tells of it ([`owner_of`]).
///
/// # Errors
/// [`Error::NoDevice`] if rdma-core, a device or the address is missing; [`Error::Io`] if the device cannot be used.
pub fn open(local: IpAddr, owner: Option<&Owner>, options: &Options) -> Result<Context, Error> {
    let local = local.to_canonical();
    Ok(Context::new(Arc::new(driver::Ibv::open(local, owner.cloned(), options)?)))
}
