//! Kernels in C: shared objects that `naa_kernel.h` describes, run by processes of their own.
//!
//! The server's side is [`Kernels`], which knows what libraries offer, and a [`SessionProcess`] per session, which makes
//! its calls. The other side is [`child`], the whole life of a process that the server starts: it loads libraries and
//! maps the files of one session's regions. Over a socket goes a small message per call and direction, never data.
//!
//! **A child is not trusted.** What it says is checked for form and bounds, it is never waited for without end, and
//! memory that it maps is no Rust reference in the server while it lives ([`Lease`]).

pub mod child;
mod host;
mod message;

pub use host::{CallError, Kernel, Kernels, Launch, Lease, LoadError, Outcome, RegionFile, SessionProcess};
