//! The verbs provider, which is a driver on rdma-core for NICs and for the Linux kernel's soft-RoCE.
//!
//! librdmacm and libibverbs are loaded when a device is opened, so that the same binary also runs on machines without
//! these libraries. [`devices`] and [`owner_of`] need neither library: `devices` reads only sysfs, and `owner_of`
//! searches only the result of `devices`.
//!
//! This crate starts no thread. The device itself executes one-sided operations, so no thread has to execute them. The
//! program polls for completions, or sleeps on a completion channel. This crate takes CM events from librdmacm whenever
//! the program polls for CM events or waits.
//!
//! ```rust
//! use verbs_ibv::{VerbsConfig, devices, open, owner_of};
//!
//! let local = "10.9.0.1".parse()?;
//! let devices = devices();
//! match owner_of(&devices, local) {
//!     Some(owner) => {
//!         let context = open(local, Some(&owner), &VerbsConfig::default())?;
//!         println!("{} has up to {} queue pairs", context.attr().name, context.attr().max_qp);
//!     }
//!     None => println!("none of the {} RDMA devices has {local}", devices.len()),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

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

/// The options with which a device is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsConfig {
    /// If true, memory that the program has deregistered stays registered with the device. A kept registration ends
    /// some time after the owner of the memory ([`verbs::Memory::owner`]) is dropped. All kept registrations end when a
    /// new registration fails for lack of memory. If the program registers a buffer again with the same rights while
    /// its registration is kept, the new registration costs almost no time. The RKey of a kept registration stays valid
    /// after the end of the session that used the RKey. Servers do not set this option, because a host could otherwise
    /// use the RKey of an earlier session.
    pub keep_registrations: bool,
}

/// Loads the libraries of rdma-core, and thereby checks that rdma-core is installed.
///
/// # Errors
/// Returns [`Error::NoDevice`] if the libraries cannot be loaded. The text of the error names the packages to install.
pub fn load() -> Result<(), Error> {
    sys::load().map(drop)
}

/// Opens the device that has the address `local`. `owner` is the RDMA port that [`owner_of`] found for this
/// address, if any.
///
/// # Errors
/// Returns [`Error::NoDevice`] if rdma-core, a device or the address is missing. Returns [`Error::Io`] if the device
/// cannot be used.
pub fn open(local: IpAddr, owner: Option<&Owner>, options: &VerbsConfig) -> Result<Context, Error> {
    let local = local.to_canonical();
    Ok(Context::new(Arc::new(driver::Ibv::open(local, owner.cloned(), options)?)))
}
