//! A library to make calls to network-attached accelerators.
//!
//! ```no_run
//! use naa_host::{Device, FunctionCode, Param, Session, SessionConfig};
//!
//! # fn main() -> Result<(), naa_host::Error> {
//! let peer = "192.0.2.7:12345".parse().unwrap();
//! let device = Device::towards(peer)?;
//! let params = [Param::data(b"numbers"), Param::output(7)];
//! let mut session = Session::connect(&device, peer, &params, &SessionConfig::default())?;
//! session.call(FunctionCode::constant(1))?;
//! println!("{:?}", session.bytes(1, ..)?);
//! session.finalize()
//! # }
//! ```
//!
//! | for | use |
//! |---|---|
//! | one local address, shared by sessions | [`Device`] |
//! | a connection with its regions; calls on it | [`Session`], [`Param`], [`SessionConfig`] |
//! | memory of regions that outlives sessions, or is the program's | [`Buffer`] |
//! | the first of several calls to end | [`wait_any`] |
//! | a call after which the accelerator goes on sending | [`StreamingCall`], [`Writer`] |
//! | setting a session up without waiting | [`SessionSetup`] |
//! | calls that are awaited on tokio (feature `tokio`) | `asynchronous` |
//! | functions 16 to 63 with their argument and status blocks | [`builtin`] |
//! | what an accelerator offers | [`functions`] |
//! | how many calls ended without the function's result | [`calls_cut`] |
//! | accelerators a job was given (`NAA_SPEC`) | [`Spec`] |
//!
//! A region belongs to the program between calls. During a call, the region belongs to the device and the accelerator.
//! With the embedded provider, device and accelerator get access to the region when the call is posted. They lose their
//! access before the outcome of the call is returned. Between calls, the program can use a region as an ordinary slice,
//! because the region then belongs to the program. When the next call starts, the borrow checker ensures that the
//! program has no slice of a region any more. Over a NIC, the accelerator keeps its access to outputs, so the program
//! gets copies of outputs instead of slices. The table at [`Session`] says which methods of a session copy the bytes of
//! regions.
#![warn(missing_docs)]

mod alarm;
mod any;
mod arrange;
#[cfg(feature = "tokio")]
pub mod asynchronous;
mod buffer;
pub mod builtin;
mod catalogue;
mod clock;
mod config;
mod connection;
mod cut;
mod device;
mod environment;
mod error;
mod log;
mod names;
mod overdue;
mod param;
#[cfg(feature = "tokio")]
mod pool;
mod post;
#[cfg(test)]
mod reach;
mod regions;
mod session;
mod setup;
mod spec;
mod streaming_call;
mod typed;
mod writer;

pub use any::{Any, wait_any};
pub use arrange::{
    LAYOUT_RULE_VARIABLE, default_rule as default_layout_rule, rule_from_env as layout_rule_from_env,
};
pub use buffer::Buffer;
pub use catalogue::{functions, functions_with};
pub use config::{CallTimeout, SessionConfig, TIMEOUT_VARIABLE, timeout_from_env};
pub use cut::calls_cut;
pub use device::{Device, LOCAL_IP_VARIABLE};
pub use environment::variable;
pub use error::{Error, Gone, Party};
pub use log::{LOG_VARIABLE, log_filter};
pub use names::{addresses_of, find, try_each};
pub use param::Param;
#[cfg(feature = "tokio")]
pub use pool::{Accelerators, PooledSession};
pub use session::{CallOutcome, Session};
pub use setup::{SessionSetup, SetupStage};
pub use spec::{Claim, DEFAULT_PORT, SPEC_VARIABLE, Spec, SpecEntry, SpecError};
pub use streaming_call::{StreamingCall, StreamingLimits};
pub use writer::Writer;

pub use mrsp::{
    FunctionCode, ReturnCode, U24,
    catalogue::{Catalogue, FunctionInfo},
    immediate::{CallResponse, Dialect},
    layout::{Layout, LayoutChoice, LayoutRule},
    plan::Part,
    region::NaaAddress,
};
pub use naa_provider::{ProviderChoice, VARIABLE as PROVIDER_VARIABLE};
pub use verbs::WaitMode;

/// Makes rustdoc compile the Rust program in the README at the root.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
