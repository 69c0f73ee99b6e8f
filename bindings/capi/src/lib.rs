//! The C side of naa: `naa.h` and `naa_events.h` for new programs, and NAAICE's headers for programs there are.
//!
//! Every function here is called from C. None panics across the boundary, none ends the process, none takes a
//! signal; what went wrong is text for the calling thread ([`last_error`]).
#![allow(unsafe_code)]
// Comments of functions are those of the C headers, where brackets are no links.
#![allow(rustdoc::broken_intra_doc_links)]

mod boundary;
pub mod events;
mod handles;
pub mod last_error;
mod log;
pub mod naaice;
pub mod native;
mod spec;
mod swnaa;
pub mod ulog;
