//! Raw UDP: datagrams as large as our packets, as fast as sockets can move them without losing any.
//!
//! The source sends from one buffer and has at most a window outstanding; the sink counts, looks at every sequence
//! number and acknowledges. With offload these are super-packets of one `send` each, merged again for the receiver;
//! without, batches of `sendmmsg` and `recvmmsg`. What suits the machine best (window, sleeping or spinning) is found
//! while warming up. The source's clock runs until the sink has told that it has everything.

mod sink;
mod source;

use std::{
    net::{SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, setsockopt, sockopt},
};
use serde::{Deserialize, Serialize};

use super::Wait;
pub(super) use sink::serve;
pub(super) use source::Source;

/// A BTH and an ICRC: the headers of nearly every packet of ours.
const HEADERS: usize = 12 + 4;
/// The most bytes a UDP datagram can have over IPv4, and so a super-packet.
const MOST_DATAGRAM: usize = 65_507;
/// Older kernels segment into no more (UDP_MAX_SEGMENTS).
const MOST_SEGMENTS: usize = 64;
/// Datagrams per system call where there are no super-packets.
const BATCH: usize = 64;
/// Nothing on loopback takes so long: whoever waits longer has lost something.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Packets {
    pub(crate) mtu: usize,
    /// GSO and GRO.
    pub(crate) offload: bool,
}

impl Packets {
    /// Bytes of a datagram, RoCEv2's headers included.
    fn datagram(self) -> usize {
        self.mtu + HEADERS
    }

    /// Datagrams sent together.
    fn together(self) -> usize {
        if self.offload { (MOST_DATAGRAM / self.datagram()).min(MOST_SEGMENTS) } else { BATCH }
    }
}

/// What the source tells the sink before it sends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Start {
    /// Stale ones are not answered twice.
    run: u64,
    packets: u64,
    /// Packets after which an acknowledgement is due.
    every: u64,
    wait: Wait,
}

/// What the sink tells the source.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ack {
    run: u64,
    received: u64,
    lost: bool,
}

/// All ways to wait, tried one after the other.
const WAITS: [Wait; 3] = [Wait::Block, Wait::Adaptive, Wait::Spin];

impl Wait {
    /// So long an end looks again and again before it sleeps.
    fn spin(self) -> Duration {
        match self {
            Self::Block => Duration::ZERO,
            // As our devices.
            Self::Adaptive => Duration::from_micros(50),
            Self::Spin => TIME_LIMIT,
        }
    }

    /// Receives by `receive`, which is told whether to sleep until there is something.
    fn until<T>(self, mut receive: impl FnMut(MsgFlags) -> nix::Result<T>) -> nix::Result<T> {
        let mut start = None;
        loop {
            let spins = start.is_none_or(|start: Instant| start.elapsed() < self.spin());
            if self == Self::Block || !spins {
                return receive(MsgFlags::empty());
            }
            match receive(MsgFlags::MSG_DONTWAIT) {
                Err(Errno::EAGAIN) => {
                    start.get_or_insert_with(Instant::now);
                    std::hint::spin_loop();
                }
                other => return other,
            }
        }
    }
}

/// Nothing came, which is no fault of the socket's.
fn is_nothing(error: Errno) -> bool {
    matches!(error, Errno::EAGAIN | Errno::EINTR)
}

/// Control messages are shorter than any packet.
const CONTROL: usize = 32;

impl Start {
    fn encode(self) -> [u8; CONTROL] {
        words([self.run, self.packets, self.every, self.wait.spin().as_nanos() as u64])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [run, packets, every, spin] = from_words(bytes)?;
        let wait = WAITS.into_iter().find(|wait| wait.spin() == Duration::from_nanos(spin))?;
        Some(Self { run, packets, every, wait })
    }
}

impl Ack {
    fn encode(self) -> [u8; CONTROL] {
        words([self.run, self.received, u64::from(self.lost), 0])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let [run, received, lost, _] = from_words(bytes)?;
        Some(Self { run, received, lost: lost != 0 })
    }
}

fn words(words: [u64; 4]) -> [u8; CONTROL] {
    let mut bytes = [0; CONTROL];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

fn from_words(bytes: &[u8]) -> Option<[u64; 4]> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    words.iter().map(|word| u64::from_be_bytes(*word)).collect::<Vec<_>>().try_into().ok()
}

/// Opens a socket with a receive buffer as large as that of our devices.
fn socket(local: SocketAddr) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    let bytes = naa_udp::PortConfig::default().receive_buffer;
    setsockopt(&socket, sockopt::RcvBufForce, &bytes)
        .or_else(|_| setsockopt(&socket, sockopt::RcvBuf, &bytes))?;
    socket.set_read_timeout(Some(TIME_LIMIT))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_understood_and_no_packets() {
        let start = Start { run: 3, packets: 1 << 40, every: 7, wait: Wait::Adaptive };
        assert_eq!(Start::decode(&start.encode()), Some(start));
        let ack = Ack { run: 3, received: 9, lost: true };
        assert_eq!(Ack::decode(&ack.encode()), Some(ack));
        assert_eq!(Start::decode(&[0; 1040]), None);
    }

    #[test]
    fn super_packets_fit_a_datagram() {
        for mtu in [256, 1024, 4096] {
            let packets = Packets { mtu, offload: true };
            assert!(packets.together() * packets.datagram() <= MOST_DATAGRAM);
        }
        assert_eq!(Packets { mtu: 4096, offload: true }.together(), 15);
    }

    /// Both ends in one process, for a moment.
    #[test]
    fn everything_arrives_in_all_ways() {
        use crate::side::{Effort, Measure};
        for (mtu, offload) in [(4096, true), (1024, true), (4096, false)] {
            let packets = Packets { mtu, offload };
            let (address, _running) = serve(packets).unwrap();
            let mut source = Source::connect(packets, address).unwrap();
            let effort = Effort { seconds: 0.01, ..Effort::QUICK };
            let settings = source.warm_up(&effort).unwrap();
            assert!(settings.contains("window"), "{settings}");
            assert!(source.run(&effort).unwrap().value > 0.0);
        }
    }
}
