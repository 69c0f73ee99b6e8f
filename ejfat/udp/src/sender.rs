//! Sends events.

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ejfat::{
    segment::{EventFields, IpVersion, LbVersion, SegmentSize, Segments, Ticks},
    wire::{LbHeader, ReHeader, SyncHeader},
};
use naa_udp::ConnectedSocket;

use crate::{
    Error, Pace,
    refusals::{is_refusal, wait_for_refusals},
};

/// The most one system call takes.
const MOST: usize = 65_000;
const UDP_HEADER: usize = 8;

/// How to send.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// A load balancer's data address, or a worker's.
    pub to: SocketAddr,
    /// The MTU of the path in bytes, IP header included.
    pub mtu: u16,
    /// The version of the LB header.
    pub version: LbVersion,
    /// The data id of the stream, which is in the RE header of each segment.
    pub data_id: u16,
    /// The number of sockets. Events go round them; they have different source ports, by which routers and NICs spread
    /// flows.
    pub sockets: usize,
    /// The send buffer of each socket in bytes; `None`: the system's default.
    pub buffer: Option<usize>,
    /// The rate in bits per second on the wire, IP header included; `None`: no limit.
    pub rate: Option<f64>,
    /// Each event gets its tick as event number, whatever number [`Sender::send`] is given.
    pub ticks_as_events: bool,
}

impl SenderConfig {
    /// Makes the default configuration of a sender to `to`: an MTU of 1500 bytes, LB header version 2, data id 0, four
    /// sockets and no limit of the rate.
    pub fn new(to: SocketAddr) -> Self {
        let (mtu, version) = (1500, LbVersion::V2);
        Self { to, mtu, version, data_id: 0, sockets: 4, buffer: None, rate: None, ticks_as_events: false }
    }
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounters {
    /// The number of events that were sent.
    pub events: u64,
    /// The number of segments into which the events were cut.
    pub segments: u64,
    /// Payload.
    pub bytes: u64,
}

/// Cuts events and sends them.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    size: SegmentSize,
    ip_header: usize,
    sockets: Vec<ConnectedSocket>,
    turn: usize,
    ticks: Ticks,
    pace: Pace,
    batch: Vec<u8>,
    sent: SentCounters,
    refusals: Cell<u64>,
}

impl Sender {
    /// Opens the sockets of a sender.
    ///
    /// # Errors
    /// Fails with [`Error::Segment`] if a packet of the MTU has no room for a segment, and with [`Error::Io`] if the
    /// operating system refuses a socket.
    pub fn new(config: SenderConfig) -> Result<Self, Error> {
        let ip = if config.to.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
        let size = SegmentSize::of_mtu(config.mtu, ip)?;
        let open = |_| ConnectedSocket::connect(config.to, config.buffer);
        let sockets = (0..config.sockets.max(1)).map(open).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            size,
            ip_header: ip.header().into(),
            sockets,
            turn: 0,
            ticks: Ticks::default(),
            pace: Pace::new(config.rate),
            batch: Vec::with_capacity(MOST + usize::from(u16::MAX)),
            sent: SentCounters::default(),
            refusals: Cell::new(0),
            config,
        })
    }

    /// Sends an event with the event number `event`, and returns its tick. `entropy` chooses the worker's UDP port and
    /// should be random. The call blocks until the rate limit and the socket's buffer permit to send all segments.
    ///
    /// # Errors
    /// Fails with [`Error::Segment`] if the event is too long to be cut into segments, and with [`Error::Io`] if the
    /// operating system refuses to send.
    pub fn send(&mut self, event: u64, entropy: u16, bytes: &[u8]) -> Result<u64, Error> {
        let tick = self.ticks.next(unix().as_micros() as u64);
        let event = if self.config.ticks_as_events { tick } else { event };
        let name = EventFields { tick, event, data_id: self.config.data_id, entropy };
        let segments = Segments::new(self.config.version, self.size, name, bytes.len() as u64)?;
        let packet = LbHeader::LEN + ReHeader::LEN + usize::from(self.size.bytes());
        let on_wire = packet + UDP_HEADER + self.ip_header;
        let turn = self.turn;
        self.turn = (turn + 1) % self.sockets.len();
        let at_once = self.sockets[turn].max_segments().min(MOST / packet).min(self.pace.at_once(on_wire));
        let (mut in_batch, count) = (0, segments.len());
        for (at, segment) in segments.enumerate() {
            self.batch.extend_from_slice(&segment.headers);
            self.batch.extend_from_slice(&bytes[segment.payload]);
            in_batch += 1;
            if in_batch == at_once.max(1) || at + 1 == count {
                self.pace.wait(self.batch.len() + in_batch * (UDP_HEADER + self.ip_header));
                self.flush(turn, packet)?;
                in_batch = 0;
            }
        }
        self.sent.events += 1;
        self.sent.segments += count as u64;
        self.sent.bytes += bytes.len() as u64;
        Ok(tick)
    }

    fn flush(&mut self, turn: usize, packet: usize) -> Result<(), Error> {
        let mut sent = self.transmit(turn, &self.batch, packet);
        if self.batch.len() > packet && sent.is_err() && self.sockets[turn].max_segments() == 1 {
            // An interface that cannot split super-packets; from now on the socket is asked for no more of them.
            sent = self.batch.chunks(packet).try_for_each(|one| self.transmit(turn, one, packet));
        }
        self.batch.clear();
        let (to, mtu) = (self.config.to, self.config.mtu);
        sent.map_err(Error::io(format!("send packets of {mtu} bytes to {to}")))
    }

    fn transmit(&self, turn: usize, contents: &[u8], packet: usize) -> io::Result<()> {
        // The cast is lossless because a packet fits the MTU, which is a `u16`.
        let segment_len = packet as u16;
        let mut refused = 0;
        loop {
            match self.sockets[turn].send(contents, segment_len) {
                // The refusal is about an earlier packet, and this one was not sent.
                Err(error) if is_refusal(&error) => {
                    self.refusals.set(self.refusals.get() + 1);
                    refused += 1;
                    if refused > 2 {
                        return Ok(());
                    }
                }
                other => return other,
            }
        }
    }

    /// Returns the numbers of events, segments and payload bytes that were sent.
    pub fn sent(&self) -> SentCounters {
        self.sent
    }

    /// The number of refusals so far. The number of lost packets is at least as high.
    pub fn refusals(&self) -> u64 {
        self.refusals.get()
    }

    /// Returns the number of refusals as [`Sender::refusals`] does. If there is no refusal yet, the call waits for at
    /// most `most` for refusals of the last packets.
    ///
    /// # Errors
    /// Fails if the operating system cannot wait for the sockets.
    pub fn wait_for_refusals(&self, most: Duration) -> Result<u64, Error> {
        if self.refusals.get() == 0 && self.sent.segments > 0 {
            let sockets = self.sockets.iter().map(ConnectedSocket::socket);
            let late = wait_for_refusals(sockets, most).map_err(Error::io("wait for refusals"))?;
            self.refusals.set(late);
        }
        Ok(self.refusals.get())
    }
}

/// Tells a control plane which tick it is. About once a second is right.
#[derive(Debug)]
pub struct SyncSender {
    socket: ConnectedSocket,
    source: u32,
    to: SocketAddr,
}

impl SyncSender {
    /// Opens a socket for sync datagrams to `to`. The control plane tells senders apart by the number `source`.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system refuses the socket.
    pub fn new(to: SocketAddr, source: u32) -> Result<Self, Error> {
        Ok(Self { socket: ConnectedSocket::connect(to, None)?, source, to })
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Fails with [`Error::Refused`] if the peer's machine refused an earlier message. After [`Error::Refused`], the
    /// new message was sent, unless a second refusal arrived in the meantime. Fails with [`Error::Io`] if the operating
    /// system refuses to send.
    pub fn send(&self) -> Result<(), Error> {
        let now = unix();
        let sync = SyncHeader {
            source: self.source,
            tick: now.as_micros() as u64,
            ticks_per_second: 1_000_000,
            unix_nanos: now.as_nanos() as u64,
        };
        let bytes = sync.encode();
        let send = || self.socket.send(&bytes, bytes.len() as u16);
        let (sent, refused) = match send() {
            Err(error) if is_refusal(&error) => (send(), true),
            sent => (sent, false),
        };
        match sent {
            Err(error) if !is_refusal(&error) => Err(Error::io(format!("send to {}", self.to))(error)),
            _ if refused => Err(Error::Refused { to: self.to }),
            _ => Ok(()),
        }
    }
}

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
