//! Code that the compiler cannot check: packets from registered memory, the ICRC of such memory, and forks.
//!
//! All unsafe code of the crate is in this folder. The functions that modules outside of this folder may call are safe.
#![allow(unsafe_code)]

mod fold;
pub(crate) mod fork;
pub(crate) mod gather;
