//! The bridge, which puts EJFAT's events into the memory of workers, so that workers need no sockets for segments.
//!
//! ```text
//! segments ─► Intake: ports, reassembler ─► ejfat::bridge::Dispatcher ─► Remote: WRITEs  ─► worker's ring
//!                                                                    └─► Shared: copies ─► memory that the worker mapped
//! ```
//!
//! A [`Bridge`] is a loop service of a [`naa_server::Server`]. Hosts subscribe by the function `subscribe` (80).
//! Programs on the bridge's machine may also subscribe by a UNIX socket. The bridge runs in the server loop, which is
//! one thread. Other threads read the bridge's state by a [`Handle`].
//!
//! [`ejfat::ring`] describes the protocol of rings. [`ejfat::bridge`] decides which worker gets an event.

mod bells;
mod bridge;
mod buffers;
mod config;
mod handle;
mod intake;
mod judge;
mod load;
mod local;
mod remote;
mod ring;
mod word;

pub use bridge::Bridge;
pub use config::{BridgeConfig, FillSink, Level, Route, Steering};
pub use handle::{Handle, Snapshot, WorkerReport};
pub use load::Load;

/// The reason why a bridge could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(transparent)]
    Udp(#[from] ejfat_udp::Error),
    #[error(transparent)]
    Bounds(#[from] ejfat::reassembly::ConfigError),
    #[error("{path} is a path of {len} bytes; paths of UNIX sockets have at most 107")]
    Path { path: String, len: usize },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
