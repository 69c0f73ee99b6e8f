//! Memory-region layouts: which regions the accelerator has for a session's parameters, and by which WRITEs they are sent.
//!
//! | layout | regions of the accelerator | inputs | outputs |
//! |---|---|---|---|
//! | [`Symmetric`](Layout::Symmetric) | one for each parameter | a WRITE each | a WRITE each |
//! | [`Asymmetric`](Layout::Asymmetric) | one | a WRITE each, to its offset | a WRITE each |
//! | [`Gathered`](Layout::Gathered) | one | one WRITE with a scatter-gather list | one WRITE, where the host's memory lies so |
//! | [`Packed`](Layout::Packed) | one | small ones copied together, large ones gathered with them: one WRITE | small ones in one WRITE and copied, large ones a WRITE each |
//!
//! A region has up to 2 GiB; parameters that do not fit into it go to another region.
//!
//! # Extension
//! All layouts except the symmetric one are an extension of this project: the host's message carries a [block] that says where in its
//! regions the parameters lie. A host sends it only to accelerators that declare support for it in the [private data](crate::private_data)
//! of their CM reply.
//!
//! # Source
//! The NAAICE project's "low-level API: introduction" describes the symmetric layout and the layout with one region on the accelerator; it
//! does not compare them.

pub mod block;
mod choice;
mod place;

pub use block::Slot;
pub use choice::{Choice, Layout, ParseError, Rule};
pub use place::{Place, Placed, Unplaceable, place};

/// The alignment in bytes of parameters in a region, so that functions find aligned numbers, and no two parameters share a cache line.
pub const ALIGNMENT: u32 = 64;
