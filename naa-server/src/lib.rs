//! A network-attached accelerator in software.
//!
//! [`Server::start`] serves the functions of a [`function::Registry`], over rdma-core or the embedded provider. One
//! thread owns all sessions; small calls run on it, long ones on the [`pool`].

pub mod allow;
pub mod arena;
pub mod call;
mod config;
pub mod function;
pub mod functions;
pub mod pool;
mod server;
mod session;
pub mod stats;

pub use config::{Config, DEFAULT_PORT, default_memory};
pub use naa_provider::Choice;
pub use server::{Server, StartError};
