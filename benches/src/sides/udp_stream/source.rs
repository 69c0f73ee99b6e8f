//! The end that sends.

use std::{
    io::{self, IoSlice},
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recv, sendmmsg, setsockopt, sockopt};
use roce_udp::free_loopback;

use super::{Ack, BATCH, CONTROL, Packets, Start, TIME_LIMIT, WAITS, Wait, is_nothing, socket};
use crate::{
    side::{Effort, Measure, Work},
    sides::{
        fill::{START, fill, goodput},
        write::MESSAGE,
    },
};

/// Bytes outstanding that are tried.
const WINDOWS: [u64; 4] = [256 << 10, 512 << 10, 1 << 20, 2 << 20];
/// A window is acknowledged in so many parts.
const ACKS_PER_WINDOW: u64 = 4;
/// The number of runs that may lose packets before the measurement fails.
const MOST_LOSSY: u32 = 8;

#[derive(Clone, Copy, Debug)]
struct SourceConfig {
    /// The window in bytes.
    window: u64,
    wait: Wait,
    /// Messages of a repeat.
    amount: u64,
}

#[derive(Debug)]
pub(in crate::sides) struct Source {
    packets: Packets,
    socket: UdpSocket,
    /// As many packets as make one message, rounded up to what is sent together.
    data: Vec<u8>,
    headers: MultiHeaders<SockaddrStorage>,
    config: SourceConfig,
    run: u64,
}

impl Source {
    pub(in crate::sides) fn connect(packets: Packets, far: SocketAddr) -> anyhow::Result<Self> {
        let socket = socket((free_loopback()?, 0).into())?;
        socket.connect(far)?;
        if packets.offload {
            // The option holds for every send: data that are longer than a datagram become a super-packet.
            setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(packets.datagram())?)
                .context("this kernel has no UDP GSO")?;
        }
        let together = packets.together() * packets.datagram();
        let data = vec![0x5a; MESSAGE.next_multiple_of(together)];
        let headers = MultiHeaders::preallocate(BATCH, None);
        let config = SourceConfig { window: WINDOWS[0], wait: Wait::Block, amount: START };
        Ok(Self { packets, socket, data, headers, config, run: 0 })
    }

    /// Sends about so many messages. `None` if something was lost.
    fn send(&mut self, messages: u64) -> anyhow::Result<Option<Duration>> {
        let SourceConfig { window, wait, .. } = self.config;
        let (datagram, together) = (self.packets.datagram(), self.packets.together() as u64);
        let window = (window / datagram as u64).max(2 * together);
        let packets = self.packets_of(messages);
        self.run += 1;
        self.announce(Start { run: self.run, packets, every: window / ACKS_PER_WINDOW, wait })?;
        let start = Instant::now();
        let (mut sent, mut acked, mut at) = (0, 0, 0);
        while acked < packets {
            while sent < packets && sent + together - acked <= window {
                let end = at + together as usize * datagram;
                number(&mut self.data[at..end], datagram, sent);
                self.send_together(at, end)?;
                sent += together;
                at = if end == self.data.len() { 0 } else { end };
            }
            match self.acknowledged()? {
                Some(ack) => acked = acked.max(ack),
                None => return Ok(None),
            }
        }
        Ok(Some(start.elapsed()))
    }

    /// A whole number of super-packets or batches.
    fn packets_of(&self, messages: u64) -> u64 {
        (messages * (MESSAGE / self.packets.mtu) as u64).next_multiple_of(self.packets.together() as u64)
    }

    /// Announces a run until the sink has acknowledged it. Packets of an earlier run that lost some may still be on
    /// their way and delay the announcement.
    fn announce(&self, start: Start) -> anyhow::Result<()> {
        let deadline = Instant::now() + 20 * TIME_LIMIT;
        self.socket.send(&start.encode())?;
        while Instant::now() < deadline {
            let mut bytes = [0; CONTROL];
            match recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::empty()) {
                Ok(_) if Ack::decode(&bytes).is_some_and(|ack| ack.run == start.run) => return Ok(()),
                Ok(_) => {}
                Err(error) if is_nothing(error) => {
                    self.socket.send(&start.encode())?;
                }
                Err(error) => return Err(error).context("the other end of raw UDP has gone"),
            }
        }
        bail!("the other end of raw UDP does not answer");
    }

    fn send_together(&mut self, at: usize, end: usize) -> anyhow::Result<()> {
        let mut bytes = &self.data[at..end];
        while !bytes.is_empty() {
            let sent = if self.packets.offload {
                self.socket.send(bytes)
            } else {
                send_batch(&self.socket, &mut self.headers, bytes, self.packets.datagram())
            };
            match sent {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot send by raw UDP"),
            }
        }
        Ok(())
    }

    /// The packets the sink has; `None` if it lost one.
    fn acknowledged(&self) -> anyhow::Result<Option<u64>> {
        let mut bytes = [0; CONTROL];
        loop {
            let wait = self.config.wait;
            match wait.until(|flags| recv(self.socket.as_raw_fd(), &mut bytes, flags)) {
                Ok(_) => match Ack::decode(&bytes) {
                    Some(Ack { run, lost: true, .. }) if run == self.run => return Ok(None),
                    Some(Ack { run, received, .. }) if run == self.run => return Ok(Some(received)),
                    _ => {}
                },
                Err(error) if is_nothing(error) => return Ok(None),
                Err(error) => return Err(error).context("the other end of raw UDP has gone"),
            }
        }
    }

    /// Sends all messages. The window is halved after each run that lost packets, until a run loses none.
    fn send_all(&mut self, messages: u64) -> anyhow::Result<Duration> {
        for _ in 0..MOST_LOSSY {
            if let Some(time) = self.send(messages)? {
                return Ok(time);
            }
            self.config.window /= 2;
            eprintln!("raw UDP lost packets; repeated with a window of {} KiB", self.config.window >> 10);
        }
        bail!("raw UDP loses packets however small the window is: this machine is too busy to measure");
    }
}

/// Gives packets their sequence numbers.
fn number(data: &mut [u8], datagram: usize, first: u64) {
    for (sequence, packet) in (first..).zip(data.chunks_exact_mut(datagram)) {
        packet[..8].copy_from_slice(&sequence.to_be_bytes());
    }
}

/// Bytes sent, of one system call.
fn send_batch(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrStorage>,
    bytes: &[u8],
    datagram: usize,
) -> io::Result<usize> {
    const NOWHERE_ELSE: [Option<SockaddrStorage>; BATCH] = [None; BATCH];
    let slices: Vec<_> = bytes.chunks_exact(datagram).map(|packet| [IoSlice::new(packet)]).collect();
    let flags = MsgFlags::empty();
    let sent = sendmmsg(socket.as_raw_fd(), headers, &slices, NOWHERE_ELSE, [], flags)?;
    Ok(sent.count() * datagram)
}

impl Measure for Source {
    /// Tries all settings, and keeps the fastest.
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        let mut best: Option<(f64, SourceConfig)> = None;
        for wait in WAITS {
            for window in WINDOWS {
                self.config = SourceConfig { window, wait, amount: START };
                let (amount, rate) = fill(effort, |messages| self.send_all(messages))?;
                // A window that lost packets has become another one.
                if self.config.window == window && best.as_ref().is_none_or(|(most, _)| rate > *most) {
                    best = Some((rate, SourceConfig { window, wait, amount }));
                }
            }
        }
        let (_, config) = best.context("raw UDP lost packets with every window")?;
        self.config = config;
        let how = match config.wait {
            Wait::Block => "sleeps at once",
            Wait::Adaptive => "waits adaptively",
            Wait::Spin => "spins",
        };
        Ok(format!("UDP {how}, window {} KiB", config.window >> 10))
    }

    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let config = self.config;
        let time = self.send_all(config.amount)?;
        // A run that lost packets must not slow down the following ones.
        self.config = config;
        let bytes = self.packets_of(config.amount) * self.packets.mtu as u64;
        ensure!(bytes > 0, "nothing was sent");
        Ok(goodput(bytes, time))
    }
}
