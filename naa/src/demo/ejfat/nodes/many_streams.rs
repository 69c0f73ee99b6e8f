//! Many streams at once from one address: what a worker sees of many senders behind a load balancer.

use std::{
    net::{SocketAddr, UdpSocket},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use ejfat::segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments, Ticks};
use ejfat_udp::Pace;

use super::SenderArgs;
use crate::demo::{
    ejfat::events::Events,
    nodes::{EventLine, Sums},
};

/// Events have at least this many bytes and less than twice as many. So each has several segments, and all can be
/// incomplete at the same time.
const BYTES: usize = 3000;
/// The MTU of Ethernet.
const MTU: u16 = 1500;
/// The rate of all of them in Gbit/s. At this rate each stream gets its next segment before its event times out: 60 ms
/// after the last one, and events time out after 500 ms.
pub(in crate::demo) const MANY_STREAMS_GIGABITS: f64 = 0.2;

/// Streams with consecutive data ids that no other sender has.
#[derive(Clone, Copy, Debug)]
pub(in crate::demo) struct ManyStreams {
    first: u16,
    streams: u16,
}

/// More streams than the events that one address may have open, and fewer than the streams that get limits of their own.
pub(in crate::demo) const MANY_STREAMS: ManyStreams = ManyStreams { first: 1000, streams: 1000 };

impl ManyStreams {
    /// The same, with this number of streams.
    pub(in crate::demo) fn of(self, streams: u16) -> Self {
        Self { streams, ..self }
    }

    /// The sender of all streams, which sends `rate` Gbit/s to `to`.
    pub(in crate::demo) fn sender(self, to: SocketAddr, rate: f64, seed: u64) -> SenderArgs {
        let (data_id, events, streams) = (self.first, self.streams.into(), Some(self.streams));
        SenderArgs { to, data_id, events, mtu: MTU, lb_version: 2, rate, seed, streams }
    }
}

/// Sends one event of each stream: first one segment of every stream, then the next of every stream. Calls `print` for
/// each event.
pub(super) fn send(
    to: SocketAddr,
    streams: std::ops::Range<u16>,
    (bits_per_second, seed): (f64, u64),
    mut print: impl FnMut(EventLine) -> anyhow::Result<()>,
) -> anyhow::Result<Sums> {
    let (ip, any) = match to {
        SocketAddr::V4(_) => (IpVersion::V4, "0.0.0.0:0"),
        SocketAddr::V6(_) => (IpVersion::V6, "[::]:0"),
    };
    let socket = UdpSocket::bind(any).context("cannot open a UDP socket")?;
    socket.connect(to).with_context(|| format!("cannot reach {to}"))?;
    let mut events = Events::new(seed, streams.start);
    let (size, mut ticks) = (SegmentSize::of_mtu(MTU, ip)?, Ticks::default());
    let (mut sums, mut all) = (Sums::default(), Vec::new());
    for data_id in streams {
        let bytes = events.of_bytes(BYTES..2 * BYTES).to_vec();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tick = ticks.next(now.as_micros() as u64);
        let name = EventFields { tick, event: 0, data_id, entropy: events.entropy() };
        let segments = Segments::new(LbVersion::V2, size, name, bytes.len() as u64)?;
        print(EventLine::new(data_id, 0, tick, &bytes))?;
        sums.events += 1;
        sums.bytes += bytes.len() as u64;
        all.push((segments, bytes));
    }
    let (mut pace, mut datagram) = (Pace::new(Some(bits_per_second)), Vec::new());
    loop {
        let mut sent = false;
        for (segments, bytes) in &mut all {
            let Some(segment) = segments.next() else { continue };
            datagram.clear();
            datagram.extend_from_slice(&segment.headers);
            datagram.extend_from_slice(&bytes[segment.payload]);
            pace.wait(datagram.len());
            socket.send(&datagram).with_context(|| format!("cannot send to {to}"))?;
            sums.segments += 1;
            sent = true;
        }
        if !sent {
            return Ok(sums);
        }
    }
}
