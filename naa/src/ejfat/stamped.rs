//! Sends events whose numbers are their ticks, which are known at the moment of sending only.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::Context as _;
use ejfat::segment::{EventName, IpVersion, SegmentSize, Segments, Ticks};
use ejfat_udp::{Pace, SenderConfig};
use socket2::SockRef;

use super::send::Sent;

const UDP_HEADER: usize = 8;

/// A packet per system call: slower than [`ejfat_udp::Sender`], of which it has the pace and the configuration.
pub(super) struct StampedSender {
    config: SenderConfig,
    size: SegmentSize,
    ip_header: usize,
    sockets: Vec<UdpSocket>,
    turn: usize,
    ticks: Ticks,
    pace: Pace,
    packet: Vec<u8>,
    sent: Sent,
}

impl StampedSender {
    pub(super) fn new(config: SenderConfig) -> anyhow::Result<Self> {
        let ip = if config.to.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
        let size = SegmentSize::of_mtu(config.mtu, ip)?;
        Ok(Self {
            size,
            ip_header: ip.header().into(),
            sockets: (0..config.sockets.max(1)).map(|_| socket(&config)).collect::<Result<_, _>>()?,
            turn: 0,
            ticks: Ticks::default(),
            pace: Pace::new(config.rate),
            packet: Vec::new(),
            sent: Sent::default(),
            config,
        })
    }

    pub(super) fn send(&mut self, entropy: u16, bytes: &[u8]) -> anyhow::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let tick = self.ticks.next(now.as_micros() as u64);
        let name = EventName { tick, event: tick, data_id: self.config.data_id, entropy };
        self.turn = (self.turn + 1) % self.sockets.len();
        for segment in Segments::new(self.config.version, self.size, name, bytes.len() as u64)? {
            self.packet.clear();
            self.packet.extend_from_slice(&segment.headers);
            self.packet.extend_from_slice(&bytes[segment.payload]);
            self.pace.wait(self.packet.len() + UDP_HEADER + self.ip_header);
            match self.sockets[self.turn].send(&self.packet) {
                // ICMP told of an earlier packet that nobody listens.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                other => drop(other.with_context(|| format!("cannot send to {}", self.config.to))?),
            }
            self.sent.segments += 1;
        }
        self.sent.events += 1;
        self.sent.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn sent(&self) -> Sent {
        self.sent
    }
}

fn socket(config: &SenderConfig) -> anyhow::Result<UdpSocket> {
    let any: IpAddr = match config.to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).context("cannot open a UDP socket")?;
    if let Some(bytes) = config.buffer {
        SockRef::from(&socket).set_send_buffer_size(bytes).context("cannot size the send buffer")?;
    }
    socket.connect(config.to).with_context(|| format!("cannot reach {}", config.to))?;
    Ok(socket)
}
