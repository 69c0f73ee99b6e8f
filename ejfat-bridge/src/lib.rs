//! The bridge, which puts EJFAT's events into the memory of workers, so that workers need no sockets for segments.
//!
//! ```text
//! segments ─► Intake: ports, reassembler ─► ejfat::bridge::Dispatcher ─► RdmaRing: WRITEs  ─► worker's ring
//!                                                                    └─► SharedRing: copies ─► memory of the worker
//! ```
//!
//! A [`Bridge`] is a loop service of a [`naa_server::Server`]. A worker subscribes for events by a call of the function
//! `subscribe` (80). A worker on the bridge's machine can also subscribe by a UNIX socket. The bridge runs in the
//! server loop, which is one thread. Other threads read the bridge's state by a [`BridgeHandle`].
//!
//! # Example
//! A server with a bridge receives segments at one UDP port:
//!
//! ```rust
//! use ejfat::listen::Listen;
//! use ejfat_bridge::{Bridge, BridgeConfig};
//! use naa_server::{Config, Server, functions};
//! use std::time::Duration;
//!
//! let mut config = BridgeConfig::new(vec![Listen::Port("127.0.29.1:0".parse()?)]);
//! config.reassembly.memory = 64 << 20;
//! let bridge = Bridge::new(config, 42)?; // A real program passes a random number.
//! println!("send segments to {:?}", bridge.addresses());
//! let handle = bridge.handle();
//! let registry = functions::registry([Bridge::function()])?;
//! let config = Config::new("127.0.29.1:0".parse()?);
//! let server = Server::start_with(config, registry, Some(Box::new(bridge)))?;
//! println!("workers subscribe at {}", server.address());
//! assert!(handle.snapshot().workers.is_empty());
//! server.shutdown(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`ejfat::ring`] describes the protocol of rings. [`ejfat::bridge`] decides which worker gets an event.
#![warn(missing_docs)]

mod bridge;
mod buffers;
mod check;
mod config;
mod handle;
mod intake;
mod load;
mod local;
mod remote;
mod ring;
mod wake_set;
mod word;

pub use bridge::Bridge;
pub use config::{BridgeConfig, MemberLookup, WorkerSelection};
pub use handle::{BridgeHandle, Snapshot, WorkerReport};
pub use load::Load;

/// The reason why a bridge could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation of the operating system failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation that failed, in the words that follow "cannot" in the error message.
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A UDP port cannot be bound or read.
    #[error(transparent)]
    Udp(#[from] ejfat_udp::Error),
    /// The limits of the reassembler are not valid.
    #[error(transparent)]
    Bounds(#[from] ejfat::reassembly::ConfigError),
    /// The path of the socket for local workers is longer than a UNIX socket's address allows.
    #[error("{path} is a path of {len} bytes; paths of UNIX sockets have at most 107")]
    Path {
        /// The path of the socket for local workers, as text.
        path: String,
        /// The length of the path in bytes.
        len: usize,
    },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
