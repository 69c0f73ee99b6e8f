//! Atomics and parking: the standard library's, or those of the model checker loom.

#[cfg(not(all(test, loom)))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32},
    thread::{Thread, current, park, park_timeout},
};

#[cfg(all(test, loom))]
pub(crate) use loom::{
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32},
    thread::{Thread, current, park},
};

/// The model has no time: nothing may depend on a timeout.
#[cfg(all(test, loom))]
pub(crate) fn park_timeout(_: std::time::Duration) {
    park();
}
