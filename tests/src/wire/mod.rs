//! Speed through the driver interface and of sessions, for `cargo xtask rxe-bench`: the ends that the kernel's own
//! tools are measured against, and the table of what both come to.

mod register;
mod table;
mod write;

pub use register::{Registered, Setup, register};
pub use table::{Samples, read, rows};
pub use write::{Written, sink, write};
