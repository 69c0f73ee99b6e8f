//! A worker that takes events from a bridge. The bridge puts each event into the worker's ring, by RDMA or, on one
//! machine, in memory that both map.
//!
//! ```no_run
//! use naa_events::{Config, Worker};
//!
//! # fn main() -> Result<(), naa_events::Error> {
//! let mut worker = Worker::open(&"192.0.2.7".parse()?, &Config::default())?;
//! let mut bytes = Vec::new();
//! loop {
//!     let event = worker.next()?;
//!     event.copy_to(&mut bytes);
//!     println!("{:?} begins with {:?}", event.descriptor().name, bytes.first());
//! }
//! # }
//! ```
//!
//! An [`Event`] is released when it is dropped, in any order and on any thread; its slots are not used again before
//! that. A program that keeps all events gets no more. If the bridge ends, the worker looks for it again for the time
//! in [`Config::reconnect`]; events of the old bridge stay readable.
//!
//! A worker that ends may have events that it did not release. If it asked for [`Config::again`], or a worker that asked is subscribed
//! when it ends, the bridge keeps these events and delivers each of them again, at most twice and within the time of its `--hold`, to
//! another worker that asked. So set [`Config::again`] in every worker, also in those that may end; then delivery is at least once,
//! and [`Event::delivered_again`] says which events may have been used before. Events whose bytes the bridge does not have any more (cut-through), or cannot place in time, are counted as held by a
//! worker that ended. A worker that does not ask gets each event at most once.
//!
//! The bridge can write the ring at any time, so an [`Event`] is read by copies, whole or in pieces. A program that
//! promises that the bridge keeps to the protocol can read it in place with [`Event::bytes_trusting_the_bridge`], which
//! is `unsafe`.
//!
//! | module | what |
//! |---|---|
//! | `worker`, `reconnect` | what a program calls; connecting again to a bridge that ended |
//! | `ring`, `credits` | what was given and what is given back |
//! | `rdma`, `shared` | the two transports, over `naa_host::StreamingCall` and over a UNIX socket |
//! | `memory` | bytes that the bridge writes |
//! | `notifier` | a file descriptor that outlives connections |
#![warn(missing_docs)]

#[cfg(feature = "tokio")]
pub mod asynchronous;
mod config;
mod connection;
mod credits;
mod error;
mod event;
mod memory;
mod notifier;
mod rdma;
mod reconnect;
mod ring;
mod shared;
mod worker;

pub use config::{BridgeAddress, BridgeAddressError, Config, DEFAULT_PORT};
pub use error::Error;
pub use event::Event;
pub use worker::{Worker, WorkerCounters};

pub use ejfat::{
    reassembly::EventKey,
    ring::{
        DeliveryMode, Descriptor, Filter, Geometry, GeometryError, ReaderError, SubscribeRefusal,
        SubscribeResponse, WorkerName,
    },
};
pub use naa_host::{ProviderChoice, SessionConfig, WaitMode};
