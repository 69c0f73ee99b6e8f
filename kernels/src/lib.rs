//! Kernels in C: shared objects with the interface of `naa_kernel.h`, which run in processes of their own.
//!
//! The server uses [`Kernels`], which has the kernels of all libraries, and one [`SessionProcess`] for each session,
//! which executes the calls of the session. The module [`child`] is the code of the process that the server starts for
//! a session. The process loads libraries and maps the files of the session's regions. The socket between server and
//! process transports one small message for each call and direction, and never the data of regions.
//!
//! **The server does not trust the process.** The server checks the form and the bounds of all messages, and each wait
//! for the process has a deadline. While the process may write the memory that it maps ([`ChildAccess`]), the server
//! makes no Rust references to this memory.
//!
//! ```no_run
//! use std::time::{Duration, Instant};
//! use naa_kernels::{Kernels, Launch};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The program calls `naa_kernels::child::run` if its first argument is `kernels`.
//! let launch = Launch { program: "/proc/self/exe".into(), arguments: vec!["kernels".into()], memory: 1 << 30 };
//! let kernels = Kernels::load(launch, &["libmine.so".into()])?;
//! for kernel in kernels.kernels() {
//!     println!("{} has code {}", kernel.function().name, kernel.function().code);
//! }
//! // This kernel has no parameters, so its session has no regions.
//! let kernel = &kernels.kernels()[0];
//! let deadline = Instant::now() + Duration::from_secs(10);
//! let outcome = kernel.session().call(kernel, 0, deadline, |_access| Some(Vec::new()))?;
//! assert_eq!(outcome.code, 0);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub mod child;
mod message;
mod parent;

pub use parent::{
    CallError, ChildAccess, Kernel, KernelResult, Kernels, Launch, LoadError, RegionFile, SessionProcess,
};
