//! The layouts of memory regions. A layout decides which regions the accelerator has for a session's parameters, and by
//! which WRITEs the parameters are sent.
//!
//! | layout | regions of the accelerator | inputs | outputs |
//! |---|---|---|---|
//! | [`Symmetric`](Layout::Symmetric) | one for each parameter | a WRITE each | a WRITE each |
//! | [`Asymmetric`](Layout::Asymmetric) | one | a WRITE each, to its offset | a WRITE each |
//! | [`Gathered`](Layout::Gathered) | one | one WRITE with a scatter-gather list | one WRITE, if the outputs have the same distances on the host |
//! | [`Packed`](Layout::Packed) | one | one WRITE, in which small inputs are copied together and large inputs are gathered | one WRITE for the small outputs, which the host copies; a WRITE for each large output |
//!
//! A region has at most 2 GiB. Parameters that share regions are placed one after another. If the next parameter no
//! longer fits into a region, a new region begins with this parameter.
//!
//! # Extension
//! All layouts except the symmetric layout are this project's extension of MRSP. If the layout is not symmetric, the
//! host's AAR has a [layout block](block) that says where the parameters lie in the regions. A host sends a layout
//! block only to an accelerator that declares support for layout blocks in the [private data](crate::private_data) of
//! its CM reply.
//!
//! # Source
//! The document "low-level API: introduction" of the NAAICE project describes the symmetric layout. It also describes
//! the idea of a layout with one region on the accelerator. The wire format of the [layout block](block) is this
//! project's own.

pub mod block;
mod choice;
mod location;

pub use block::LayoutEntry;
pub use choice::{Layout, LayoutChoice, LayoutRule, ParseError};
pub use location::{ParamLocation, Placed, Unplaceable, place};

/// The alignment of parameters in a region, in bytes. The alignment guarantees that functions find aligned numbers, and
/// that no two parameters share a cache line.
pub const ALIGNMENT: u32 = 64;
