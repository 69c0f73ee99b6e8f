//! Memory-region layouts: which regions the accelerator has for a session's parameters, and in which WRITEs they go.
//!
//! | layout | regions of the accelerator | inputs | outputs |
//! |---|---|---|---|
//! | [`Symmetric`](Layout::Symmetric) | one for each parameter | a WRITE each | a WRITE each |
//! | [`Asymmetric`](Layout::Asymmetric) | one | a WRITE each, to its offset | a WRITE each |
//! | [`Gathered`](Layout::Gathered) | one | one WRITE with a scatter-gather list | one WRITE, where the host's memory lies so |
//! | [`Packed`](Layout::Packed) | one | small ones copied together, large ones gathered with them: one WRITE | small ones in one WRITE and copied, large ones a WRITE each |
//!
//! One region has up to 2 GiB; what is beyond goes to another.
//!
//! # Extension
//! All but the symmetric layout are an extension of this project: the host's message carries a
//! [block] that says where in its regions the parameters lie. Only accelerators that said in
//! the [private data](crate::private_data) of their CM reply that they know it get one.
//!
//! # Source
//! The NAAICE project's "low-level API: introduction", which names the symmetric layout and the one with one region of the
//! accelerator, and leaves the comparison for later.

pub mod block;
mod choice;
mod place;

pub use block::Slot;
pub use choice::{Choice, Layout, ParseError, Rule};
pub use place::{Place, Placed, Unplaceable, place};

/// Parameters start at multiples of this in a region, so that functions find numbers aligned, and no two share a cache
/// line.
pub const ALIGNMENT: u32 = 64;
