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
mod gauge;
mod pace;
mod ports;
mod ready;
mod receiver;
mod refusals;
mod sender;
mod socket;

pub use arena::Arena;
pub use gauge::{Gauge, Reading};
pub use pace::Pace;
pub use ports::{PortCounters, Ports, Received};
pub use ready::ReadySet;
pub use receiver::{Event, Receiver, ReceiverConfig};
pub use refusals::{is_refusal, may_be_earlier, report_refusals, wait_for_refusals};
pub use sender::{Sender, SenderConfig, SyncSender};

use std::net::{IpAddr, SocketAddr};

/// What went wrong with a socket or memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error(transparent)]
    Bounds(#[from] ejfat::reassembly::ConfigError),
    #[error(transparent)]
    Segment(#[from] ejfat::segment::SegmentError),
    #[error("nobody takes what is sent to {to}: its host answers that the port is closed")]
    Refused { to: SocketAddr },
    /// The process that holds the port is looked for only when the error is displayed. That takes long, and busy ports of
    /// ranges are skipped without it.
    #[error("{at} is held by {}; or name another port", roce_udp::socket::holder_of(*at))]
    Busy { at: SocketAddr },
    #[error("{ip} is not an address of this machine; `ip addr` lists them{hint}")]
    NotLocal { ip: IpAddr, hint: String },
    #[error(
        "cannot bind UDP {at}: a port takes an open file, and this process may have no more; raise it with \
         `ulimit -n`, or listen to fewer ports"
    )]
    Files { at: SocketAddr, source: std::io::Error },
    #[error(
        "the system has no addresses for an event of {bytes} bytes ({source}); raise `ulimit -v`, or lower --max-event \
         or --memory"
    )]
    Addresses { bytes: usize, source: std::io::Error },
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
