//! The least a call can cost: a datagram there and one back.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    thread,
    time::Duration,
};

use anyhow::Context as _;
use roce_udp::free_loopback;

use super::{
    Running, Wait,
    call::{BYTES, time_calls},
};
use crate::side::{Effort, Measure, Work};

const TIME_LIMIT: Duration = Duration::from_secs(2);

fn socket(wait: Wait) -> anyhow::Result<UdpSocket> {
    let socket = UdpSocket::bind((free_loopback()?, 0))?;
    match wait {
        Wait::Spin => socket.set_nonblocking(true)?,
        Wait::Block | Wait::Adaptive => socket.set_read_timeout(Some(TIME_LIMIT))?,
    }
    Ok(socket)
}

fn is_nothing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

pub(super) fn serve(wait: Wait) -> anyhow::Result<(SocketAddr, Running)> {
    let socket = socket(wait)?;
    let address = socket.local_addr()?;
    thread::Builder::new().name("echo".into()).spawn(move || {
        // Ends when the other end has gone; that one tells why.
        let _ = echo(&socket);
    })?;
    Ok((address, Box::new(())))
}

fn echo(socket: &UdpSocket) -> io::Result<()> {
    let mut bytes = [0; BYTES];
    let mut connected = false;
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((_, from)) if !connected => {
                socket.connect(from)?;
                connected = true;
            }
            Ok(_) => {}
            Err(error) if is_nothing(&error) => {
                std::hint::spin_loop();
                continue;
            }
            Err(error) => return Err(error),
        }
        socket.send(&bytes)?;
    }
}

#[derive(Debug)]
pub(super) struct Caller {
    socket: UdpSocket,
    wait: Wait,
}

impl Caller {
    pub(super) fn connect(wait: Wait, far: SocketAddr) -> anyhow::Result<Self> {
        let socket = socket(wait)?;
        socket.connect(far)?;
        Ok(Self { socket, wait })
    }

    fn call(&self) -> io::Result<()> {
        let mut bytes = [7; BYTES];
        self.socket.send(&bytes)?;
        loop {
            match self.socket.recv(&mut bytes) {
                Err(error) if self.wait == Wait::Spin && is_nothing(&error) => std::hint::spin_loop(),
                other => return other.map(drop),
            }
        }
    }
}

impl Measure for Caller {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        time_calls(effort.calls, || self.call().context("no answer to a datagram"))
    }
}

/// Some ping-pongs in a row, which wait asleep.
#[derive(Debug)]
pub(super) struct Sequence {
    caller: Caller,
    count: u32,
}

impl Sequence {
    pub(super) fn connect(count: u32, far: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { caller: Caller::connect(Wait::Block, far)?, count })
    }
}

impl Measure for Sequence {
    /// The value is in milliseconds, as the time of connecting is.
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let Self { caller, count } = self;
        let sequence = || (0..*count).try_for_each(|_| caller.call().context("no answer to a datagram"));
        let Work { value, amount } = time_calls(effort.calls / *count, sequence)?;
        Ok(Work { value: value / 1e3, amount })
    }
}
