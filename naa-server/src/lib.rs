//! A network-attached accelerator in software.
//!
//! [`Server::start`] serves the functions of a [`function::Registry`] over rdma-core or the embedded provider. One
//! thread owns all sessions and runs short calls. Long calls run on the [`pool`]. A [`kernel`] runs in a process of its
//! own, and a thread of the pool waits for this process.
//!
//! This example serves the built-in functions and a function of its own, which has function code 64:
//!
//! ```rust
//! # use std::time::Duration;
//! # use mrsp::FunctionCode;
//! # use naa_server::{
//! #     Config, ProviderChoice, Server, call::{Call, CallFailure}, function::{Function, FunctionInfo}, functions,
//! # };
//! struct Invert(FunctionInfo);
//!
//! impl Function for Invert {
//!     fn info(&self) -> &FunctionInfo {
//!         &self.0
//!     }
//!
//!     fn run(&self, call: &mut Call<'_>) -> Result<(), CallFailure> {
//!         let missing = CallFailure::Arguments("there is no in-out region; map one".into());
//!         let bytes = call.parts().take_output(0).ok_or(missing)?;
//!         bytes.iter_mut().for_each(|byte| *byte = !*byte);
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (code, name) = (FunctionCode::constant(64), "invert".to_owned());
//! let info = FunctionInfo { code, name, description: String::new(), pooled: false, parameters: Vec::new() };
//! let functions = functions::registry([Invert(info)])?;
//! # let listen = (roce_udp::free_loopback()?, 0).into();
//! let config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
//! let server = Server::start(config, functions)?;
//! println!("hosts connect to {}", server.address());
//! server.shutdown(Duration::from_secs(1));
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub mod allow;
pub mod call;
mod config;
pub mod counters;
#[cfg(test)]
#[path = "../tests/common/device.rs"]
mod device;
pub mod function;
pub mod functions;
pub mod kernel;
mod ledger;
pub mod loop_service;
pub mod memory_budget;
mod peer_line;
pub mod pool;
mod priority;
mod regions;
mod server;
pub mod session;
pub mod tasks;

pub use config::{Config, DEFAULT_PORT, default_memory};
pub use naa_provider::ProviderChoice;
pub use server::{Server, StartError, sizes};
