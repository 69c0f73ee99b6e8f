//! The driver interface between session code and RDMA providers: the verbs object model.
//!
//! Session code uses [`Context`], [`Pd`], [`Mr`], [`Cq`], [`Qp`] and connection ids; a provider implements [`Driver`].
//! All terms have the same meanings as in libibverbs and librdmacm, so that a provider can use rdma-core, and a library
//! with the ABI of libibverbs can use this interface.
//!
//! This crate opens no socket, reads no clock and starts no thread. Only the module `memory` has `unsafe` code.

mod cm;
mod driver;
mod error;
pub mod lines;
pub mod memory;
mod objects;
pub mod peer;
pub mod seats;
mod wr;

pub use cm::{CmEvent, CmId, ConnParam, Endpoints, EstablishedParam, RejectReason, Unreachable};
pub use driver::{
    Access, ChannelId, CqId, DeviceAttr, Driver, MrKeys, PdId, QpCap, QpInit, QpNum, WaitMode, WaitOn, Wake,
};
pub use error::{Error, remedy};
pub use memory::Memory;
pub use objects::{Channel, Context, Cq, Mr, Pd, Qp};
pub use wr::{Payload, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, Wc, WcOpcode, WcStatus};
