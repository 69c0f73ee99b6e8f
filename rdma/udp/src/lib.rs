//! UDP sockets that receive and send in batches, and waiting for them.
//!
//! ```text
//! caller's pieces ─► SendBatch: super-packets ─► sendmmsg, GSO ─► Port ─► recvmmsg, GRO ─► RecvBatch: datagrams
//! ```
//!
//! The crate knows no protocol above UDP. [`Port`] is an unconnected socket on one concrete local address, which both
//! receives and sends. [`ReceiveSocket`] receives into buffers of its user, and [`ConnectedSocket`] sends to one
//! destination and blocks while it cannot. [`wait`] sleeps until ports are ready or a [`Waker`] is used. [`addresses`] and [`local_mtu`] read the interfaces of this
//! machine, and [`holder_of`] finds the process that has a socket.
//!
//! ```rust
//! use naa_udp::{Port, PortConfig, RecvBatch, SendBatch, wait};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = PortConfig::default();
//! let (from, to) = (Port::bind("127.0.0.1:0".parse()?, &config)?, Port::bind("127.0.0.1:0".parse()?, &config)?);
//! let mut send = SendBatch::new(16, 1 << 16, from.gso());
//! for text in [b"one", b"two"] {
//!     let mut datagram = send.segment(to.local_addr(), text.len()).expect("the batch has room for 16 datagrams");
//!     datagram.copy(text);
//!     datagram.finish(&[]);
//! }
//! send.flush(&from)?;
//! let (mut receive, mut received) = (RecvBatch::new(4), Vec::new());
//! while received.len() < 2 {
//!     wait(&[&to], None, false, None)?;
//!     to.recv(&mut receive)?;
//!     let datagrams = receive.messages().flat_map(|message| message.segments());
//!     received.extend(datagrams.map(|(_, bytes)| bytes.to_vec()));
//! }
//! assert_eq!(received, [b"one", b"two"]);
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

mod bind;
mod connected_socket;
mod error;
mod holder;
mod port;
mod receive_socket;
mod sys;

pub use connected_socket::ConnectedSocket;
pub use error::Error;
pub use holder::{Held, Holder, holder_of, holders};
pub use port::{Port, PortConfig, Ready, local_mtu, wait, wait_beside};
pub use receive_socket::ReceiveSocket;
pub use sys::{
    interface::{InterfaceAddress, addresses},
    option::report_icmp_errors,
    receive::{MAX_MESSAGES, MergedDatagrams, ReceivedMessage, RecvBatch, RecvHeaders},
    transmit::{DatagramBuilder, MAX_PIECES, Rest, SendBatch, SendOutcome},
    wait::Waker,
};
