//! EJFAT over UDP sockets, in batches.
//!
//! ```text
//! Sender    event ─► ejfat::segment ─► one buffer of equal segments ─► GSO ─► socket          (a copy: headers go between)
//! Ports     socket ─► GRO, recvmmsg ─► buffers of the caller
//! Receiver  socket ─► GRO, recvmmsg ─► buffers ─► ejfat::reassembly ─► Place ─► Arena         (a copy: buffer to memory)
//! ```
//!
//! Protocol decisions are those of the pure crate `ejfat`; here are sockets, clocks and memory. Nothing allocates per
//! packet, and who waits sleeps, though a receiver looks for more for 20 µs after something came.
//!
//! A received byte is copied twice: by the kernel from its socket buffer to ours, and by [`Arena::place`] from there to
//! its event. The second is the one user-space copy: the reassembler decides by shared references and has no place for
//! payload, and an [`Event`] borrows the arena. [`Arena::copied`] counts it, and a test compares that with what came.

mod arena;
mod drops;
mod pace;
mod ports;
mod receiver;
mod sender;
mod socket;

pub use arena::Arena;
pub use pace::Pace;
pub use ports::{Ports, Received};
pub use receiver::{Event, Receiver, ReceiverConfig};
pub use sender::{Sender, SenderConfig, SyncSender};

/// What went wrong with a socket or memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(transparent)]
    Bounds(#[from] ejfat::reassembly::ConfigError),
    #[error(transparent)]
    Segment(#[from] ejfat::segment::SegmentError),
    #[error("{slots} events of up to {bytes} bytes exceed the address space; allow fewer or smaller ones")]
    AddressSpace { slots: u32, bytes: u32 },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
