//! A network-attached accelerator in software.
//!
//! [`Server::start`] serves the functions of a [`function::Registry`], over rdma-core or the embedded provider. One
//! thread owns all sessions; small calls run on it, long ones on the [`pool`], and [`kernel`]s in processes of
//! their own, which the pool's threads wait for.

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
