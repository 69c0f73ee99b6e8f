//! A ping-pong that makes the system calls of a call, without RoCE: what is left to save above the socket. It leaves out what a
//! device does seldom: it sets the takeover timer at most every 200 us, and a spinning wait yields every 64 turns.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use naa_udp::{Port, PortConfig, RecvBatch, SendBatch, Waker, wait};
use roce_udp::free_loopback;

use super::{Running, Wait, call::time_calls};
use crate::side::{Effort, Measure, Work};

/// A packet of a call, in bytes: BTH, acknowledgement, RETH, immediate data, 64 bytes of payload, and ICRC.
const PACKET: usize = 12 + 8 + 16 + 4 + 64 + 4;
/// The time limit of a sleep: the shortest time after which a device repeats a request.
const SLEEP: Duration = Duration::from_micros(250);
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// An end with what a device has: an unconnected socket, batches, and an eventfd beside the socket.
#[derive(Debug)]
struct End {
    port: Port,
    waker: Waker,
    wait: Wait,
    receive: RecvBatch,
    send: SendBatch,
}

impl End {
    fn bind(wait: Wait) -> anyhow::Result<Self> {
        let port = Port::bind((free_loopback()?, 0).into(), &PortConfig::default())?;
        let send = SendBatch::new(1, PACKET, port.gso());
        Ok(Self { port, waker: Waker::new()?, wait, receive: RecvBatch::new(16), send })
    }

    fn send(&mut self, to: SocketAddr) -> anyhow::Result<()> {
        let mut datagram = self.send.segment(to, PACKET).context("the batch has no room")?;
        datagram.copy(&[7; PACKET]);
        datagram.finish(&[]);
        let outcome = self.send.flush(&self.port).context("cannot send")?;
        ensure!(outcome.sent == 1, "a datagram was not sent: {:?}", outcome.error);
        Ok(())
    }

    /// Waits for a datagram as a device does: it looks at the socket before it sleeps. Returns who sent it.
    fn receive(&mut self, time_limit: Option<Duration>) -> anyhow::Result<SocketAddr> {
        let begin = Instant::now();
        loop {
            self.port.recv(&mut self.receive).context("cannot receive")?;
            if let Some(message) = self.receive.messages().next() {
                return Ok(message.from);
            }
            ensure!(time_limit.is_none_or(|limit| begin.elapsed() < limit), "no answer to a datagram");
            if self.wait != Wait::Spin {
                wait(&[&self.port], Some(&self.waker), false, Some(SLEEP)).context("cannot sleep")?;
            }
        }
    }
}

pub(super) fn serve(wait: Wait) -> anyhow::Result<(SocketAddr, Running)> {
    let mut end = End::bind(wait)?;
    let address = end.port.local_addr();
    thread::Builder::new().name("echo".into()).spawn(move || {
        // The loop ends when the socket fails; the other end says why it gets no answer.
        while end.receive(None).and_then(|from| end.send(from)).is_ok() {}
    })?;
    Ok((address, Box::new(())))
}

#[derive(Debug)]
pub(super) struct Caller {
    end: End,
    far: SocketAddr,
}

impl Caller {
    pub(super) fn bind(wait: Wait, far: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { end: End::bind(wait)?, far })
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let Self { end, far } = self;
        time_calls(effort.calls, || {
            end.send(*far)?;
            end.receive(Some(TIME_LIMIT)).map(drop)
        })
    }
}
