//! A ping-pong that makes the same system calls as a 64-byte call, but has no RoCE. The distance between the two is the time that
//! the code above the socket takes. The ping-pong leaves out two system calls that a device makes only now and then: setting
//! the takeover timer, and the yield of a spinning wait.

use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use naa_udp::{Port, PortConfig, RecvBatch, SendBatch, Waker, wait};
use roce::wire::{ICRC_LEN, MAX_HEADER};
use roce_udp::free_loopback;

use super::{
    Running, Wait,
    call::{BYTES, time_calls},
};
use crate::side::{Effort, Measure, Work};

/// The length in bytes of the packet of a call: a WRITE with immediate data and a carried acknowledgement.
const PACKET: usize = MAX_HEADER + BYTES + ICRC_LEN;
/// The time without an answer after which a call fails.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// One end of the ping-pong. It has an unconnected socket, batches and a waker, because a device has them too.
#[derive(Debug)]
struct End {
    port: Port,
    waker: Waker,
    wait: Wait,
    /// The time limit of a sleep.
    sleep: Duration,
    receive: RecvBatch,
    send: SendBatch,
}

impl End {
    fn bind(wait: Wait) -> anyhow::Result<Self> {
        let port = Port::bind((free_loopback()?, 0).into(), &PortConfig::default())?;
        let send = SendBatch::new(1, PACKET, port.gso());
        // A device that waits for an acknowledgement sleeps until it would send the request again.
        let sleep = roce::Config::default().min_probe;
        Ok(Self { port, waker: Waker::new()?, wait, sleep, receive: RecvBatch::new(16), send })
    }

    fn send(&mut self, to: SocketAddr) -> anyhow::Result<()> {
        let mut datagram = self.send.segment(to, PACKET).context("the batch has no room")?;
        datagram.copy(&[7; PACKET]);
        datagram.finish(&[]);
        let outcome = self.send.flush(&self.port).context("cannot send")?;
        ensure!(outcome.sent == 1, "a datagram was not sent: {:?}", outcome.error);
        Ok(())
    }

    /// Waits for a datagram and returns the address of its sender. Like a device, the function tries to receive before it
    /// sleeps.
    fn receive(&mut self, time_limit: Option<Duration>) -> anyhow::Result<SocketAddr> {
        let begin = Instant::now();
        loop {
            self.port.recv(&mut self.receive).context("cannot receive")?;
            if let Some(message) = self.receive.messages().next() {
                return Ok(message.from);
            }
            ensure!(time_limit.is_none_or(|limit| begin.elapsed() < limit), "no answer to a datagram");
            if self.wait != Wait::Spin {
                wait(&[&self.port], Some(&self.waker), false, Some(self.sleep)).context("cannot sleep")?;
            }
        }
    }
}

pub(super) fn serve(wait: Wait) -> anyhow::Result<(SocketAddr, Running)> {
    let mut end = End::bind(wait)?;
    let address = end.port.local_addr();
    thread::Builder::new().name("echo".into()).spawn(move || {
        // The loop ends when the socket fails. The caller then gets no answer and reports this.
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
