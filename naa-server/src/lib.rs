//! A network-attached accelerator in software.
//!
//! [`Server::start`] serves the functions of a [`function::Registry`] over rdma-core or the embedded provider. One
//! thread owns all sessions and runs short calls. Long calls run on the [`pool`]. A [`kernel`] runs in a process of its
//! own, and a thread of the pool waits for this process.

pub mod allow;
pub mod arena;
pub mod call;
mod config;
pub mod function;
pub mod functions;
pub mod kernel;
mod ledger;
mod peer_line;
pub mod pool;
mod priority;
mod regions;
pub mod resident;
mod server;
pub mod session;
pub mod stats;

pub use config::{Config, DEFAULT_PORT, default_memory};
pub use naa_provider::Choice;
pub use server::{Server, StartError, sizes};
