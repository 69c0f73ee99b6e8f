//! EJFAT over UDP sockets, in batches.
//!
//! ```text
//! Sender    event ─► ejfat::segment ─► one buffer of equal segments ─► GSO ─► socket      (a copy: headers go between)
//! Ports     socket ─► GRO, recvmmsg ─► buffers of the caller
//! Receiver  socket ─► GRO, recvmmsg ─► buffers ─► ejfat::reassembly ─► CopyCommand ─► EventMemory (a copy)
//! ```
//!
//! The crate `ejfat` makes the decisions of the protocol. This crate has the sockets, the clocks and the memory. No
//! code path allocates memory for each packet. A thread that waits for packets sleeps, except that a receiver polls for
//! 20 µs after a packet came.
//!
//! A received byte is copied twice: the Linux kernel copies it from the socket buffer to a buffer of this crate, and
//! [`EventMemory::place`] copies it from there to its event. The second copy cannot be avoided, because the reassembler
//! has no memory for payload, and a [`ReceivedEvent`] borrows the event memory. [`EventMemory::copied`] counts the
//! bytes of the second copy.
//!
//! ```rust
//! use std::time::Duration;
//! use ejfat::{listen::Listen, reassembly::Config};
//! use ejfat_udp::{Receiver, ReceiverConfig, Sender, SenderConfig};
//!
//! # fn main() -> Result<(), ejfat_udp::Error> {
//! let listen = vec![Listen::Port("127.0.0.1:0".parse().unwrap())];
//! let mut receiver = Receiver::new(ReceiverConfig { listen, buffer: None, reassembly: Config::default() })?;
//! let mut sender = Sender::new(SenderConfig { data_id: 3, ..SenderConfig::new(receiver.addresses()[0]) })?;
//! sender.send(41, 0, b"hits of a detector")?;
//! let mut events = Vec::new();
//! while events.is_empty() {
//!     let deliver = |event: ejfat_udp::ReceivedEvent<'_>| events.push((event.name.event, event.bytes.to_vec()));
//!     receiver.poll(Duration::from_secs(1), deliver, |lost| panic!("{lost:?}"))?;
//! }
//! assert_eq!(events, [(41, b"hits of a detector".to_vec())]);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod event_memory;
mod gauge;
mod pace;
mod ports;
mod ready;
mod receiver;
mod refusals;
mod sender;

pub use event_memory::EventMemory;
pub use gauge::{Gauge, Reading};
pub use pace::Pace;
pub use ports::{PortCounters, Ports, ReceivedSegments};
pub use ready::ReadySet;
pub use receiver::{ReceivedEvent, Receiver, ReceiverConfig};
pub use refusals::{is_refusal, may_be_earlier, report_refusals, wait_for_refusals};
pub use sender::{Sender, SenderConfig, SyncSender};

use std::net::{IpAddr, SocketAddr};

/// What went wrong with a socket or memory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused an operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation, as text that follows the word "cannot".
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The bounds of the reassembly exclude each other.
    #[error(transparent)]
    Bounds(#[from] ejfat::reassembly::ConfigError),
    /// An event cannot be cut into segments.
    #[error(transparent)]
    Segment(#[from] ejfat::segment::SegmentError),
    /// The peer's machine answered that no program receives at the address.
    #[error("nobody takes what is sent to {to}: its host answers that the port is closed")]
    Refused {
        /// The address to which the datagrams were sent.
        to: SocketAddr,
    },
    /// Another socket holds the port. The process that has the socket is searched only when the error is displayed, because
    /// the search takes long.
    #[error("{}; or name another port", naa_udp::Error::AddressInUse { addr: *at })]
    Busy {
        /// The local address that cannot be bound.
        at: SocketAddr,
    },
    /// The address is not an address of this machine.
    #[error("{ip} is not an address of this machine; `ip addr` lists them{hint}")]
    NotLocal {
        /// The address.
        ip: IpAddr,
        /// A text about a port that may be written wrongly, which is mostly empty.
        hint: String,
    },
    /// This process may have no more open files, and each port needs one.
    #[error(
        "cannot bind UDP {at}: a port takes an open file, and this process may have no more; raise it with \
         `ulimit -n`, or listen to fewer ports"
    )]
    Files {
        /// The local address that cannot be bound.
        at: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The address space of this process has no room for an event.
    #[error(
        "the system has no addresses for an event of {bytes} bytes ({source}); raise `ulimit -v`, or lower --max-event \
         or --memory"
    )]
    Addresses {
        /// The number of bytes that the event needs.
        bytes: usize,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl From<naa_udp::Error> for Error {
    fn from(error: naa_udp::Error) -> Self {
        match error {
            naa_udp::Error::AddressInUse { addr } => Self::Busy { at: addr },
            naa_udp::Error::NotLocal(ip) => Self::NotLocal { ip, hint: misread_port(ip) },
            naa_udp::Error::NoFiles { addr, source } => Self::Files { at: addr, source },
            naa_udp::Error::Io { what, source } => Self::Io { what, source },
            error @ naa_udp::Error::NotConcrete(_) => {
                Self::Io { what: "open a UDP socket".into(), source: std::io::Error::other(error) }
            }
        }
    }
}

/// A hint if the end of an IPv6 address may be meant as a port, as in `fd00::1:9100`; otherwise empty.
fn misread_port(ip: IpAddr) -> String {
    let text = ip.to_string();
    let split = text.rsplit_once(':').filter(|(ip, _)| ip.parse::<std::net::Ipv6Addr>().is_ok());
    match split.and_then(|(ip, port)| Some((ip, port.parse::<u16>().ok()?))) {
        Some((ip, port)) => format!("; if {port} is meant for the port, write [{ip}]:{port}"),
        None => String::new(),
    }
}

impl Error {
    fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
