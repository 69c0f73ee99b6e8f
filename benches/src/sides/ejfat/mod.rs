//! EJFAT over loopback: events by UDP into a receiver, and what it is held against.
//!
//! ```text
//! near  Source ─ paced segments ─► far  sink: the receiver of `ejfat-udp`, or a buffer
//!                                  far  relay, or the load balancer's forwarder ─► near  sink: a buffer
//! near  Source ─ paced segments ─► far  bridge ─ by RDMA or shared memory ─► beside  worker, which counts
//!                                  far  receiver, PUSH of ZeroMQ ──────────► beside  PULL, the same
//!       Watch, Flood ────────────► far  sink: the receiver
//! ```
//!
//! The source is the same for all, so that only what receives or relays differs. It asks the far end over TCP what came.

mod bridge;
mod control;
mod forward;
mod hostile;
mod relay;
mod search;
mod sink;
mod source;
mod worker;
#[cfg(feature = "zeromq")]
mod zeromq;

use std::time::Duration;

use ejfat::{
    segment::{IpVersion, SegmentSize},
    wire::{LbHeader, ReHeader},
};
use serde::{Deserialize, Serialize};

pub(super) use bridge::{Latency, serve as serve_bridge};
pub(super) use forward::serve as serve_balancer;
pub(super) use hostile::{Flood, Watch};
pub(super) use relay::serve as serve_relay;
pub(super) use sink::serve as serve_sink;
pub(super) use source::Source;
pub(super) use worker::serve as serve_worker;
#[cfg(feature = "zeromq")]
pub(super) use zeromq::{serve_pull, serve_push};

/// The receive buffer of every socket that receives, in bytes.
const BUFFER: usize = 4 << 20;
/// Memory for events of a receiver that is flooded.
pub(crate) const FLOODED_MEMORY: u32 = 64 << 20;
/// IP and UDP headers.
const OUTER: usize = 28;
const HEADERS: usize = LbHeader::LEN + ReHeader::LEN;

/// What is sent: events of so many bytes in packets of an MTU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    pub(crate) event: usize,
    pub(crate) mtu: u16,
}

impl Load {
    /// Bytes of a full datagram.
    fn datagram(self) -> usize {
        usize::from(self.mtu) - OUTER
    }

    fn segments(self) -> usize {
        let size = SegmentSize::of_mtu(self.mtu, IpVersion::V4).map_or(1, SegmentSize::bytes);
        self.event.div_ceil(usize::from(size))
    }

    /// Bytes of an event's datagrams.
    fn datagrams(self) -> usize {
        self.event + self.segments() * HEADERS
    }

    /// The same behind a load balancer.
    fn without_lb_headers(self) -> usize {
        self.datagrams() - self.segments() * LbHeader::LEN
    }

    /// Bytes of an event's packets.
    fn packets(self) -> usize {
        self.datagrams() + self.segments() * OUTER
    }
}

/// What receives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Sink {
    /// Reassembles into memory.
    Receiver,
    /// The same with [`FLOODED_MEMORY`].
    Bounded,
    /// Takes what comes into one buffer.
    Buffer,
}

/// How a bridge's events get to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum BridgeDelivery {
    /// Memory that both map.
    Shared,
    /// By RDMA, when they are complete.
    Store,
    /// By RDMA, segment by segment.
    Cut,
}

/// Which time of events is measured, and at which rate they come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Timed {
    /// From the first segment to the delivery, at 1 GiB/s.
    SinceFirst,
    /// From the last segment to the delivery, at half of the highest rate without loss.
    SinceLast,
}

/// Which part of latencies is below the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    P50,
    P99,
}

/// The time between two epochs of [`By::Changing`].
pub(crate) const PERIOD: Duration = Duration::from_secs(1);

/// What passes segments on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum By {
    /// As they are, without a lookup.
    Relay,
    /// Ours.
    Balancer,
    /// Our forwarder, with new tables in each [`PERIOD`].
    Changing,
}

/// What the figure is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Figure {
    /// GiB of events per second.
    Bytes,
    /// Thousands of events per second.
    Events,
}
