//! The driver interface between RDMA providers and the code that uses them: the verbs object model.
//!
//! Code that uses RDMA works with [`Context`], [`Pd`], [`Mr`], [`Cq`], [`Qp`] and connection ids; a provider implements
//! [`Driver`]. All terms have the same meanings as in libibverbs and librdmacm. A provider can therefore use rdma-core,
//! and a library with the ABI of libibverbs can use this interface.
//!
//! This crate opens no socket, reads no clock and starts no thread. Only the module `memory` has `unsafe` code.
//!
//! The example sends one message on a connected queue pair and waits for its completion. A provider, for example the
//! crate `roce-udp`, opens the device to which the objects belong.
//!
//! ```rust
//! use verbs::{Cq, Error, Mr, Payload, Qp, SendFlags, SendOp, SendWr, WaitMode, WcStatus};
//!
//! fn send(qp: &Qp, cq: &Cq, mr: &Mr, message: &[u8]) -> Result<WcStatus, Error> {
//!     mr.memory().write(0, message);
//!     let sges = [mr.sge(0, message.len() as u32)];
//!     let payload = Payload::Sges(&sges);
//!     let request = SendWr { wr_id: 1, op: SendOp::Send, payload, flags: SendFlags::SIGNALED };
//!     qp.post_send(&[request]).map_err(|(_, error)| error)?;
//!     loop {
//!         cq.wait(WaitMode::Adaptive, None)?;
//!         if let Some(completion) = cq.poll_one()? {
//!             return Ok(completion.status);
//!         }
//!     }
//! }
//! ```
#![warn(missing_docs)]

pub mod admission;
mod cm;
mod driver;
mod error;
pub mod log_limit;
pub mod memory;
mod objects;
pub mod source_network;
mod wr;

pub use cm::{CmEvent, CmId, ConnParam, Endpoints, EstablishedParam, RejectReason, Unreachable};
pub use driver::{
    Access, ChannelId, CqId, DeviceAttr, Driver, MrKeys, PdId, QpCap, QpInit, QpNum, WaitMode, WaitOn, Wake,
};
pub use error::{Error, error_text, remedy};
pub use memory::Memory;
pub use objects::{Channel, Context, Cq, Mr, Pd, Qp};
pub use wr::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
