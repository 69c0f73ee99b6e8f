//! TCP on loopback: 64 KiB writes of a buffer as large as our messages, read into the buffer that suits best.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use roce_udp::free_loopback;

use super::{
    Running,
    fill::{START, fill, goodput},
    spawn,
    write::MESSAGE,
};
use crate::side::{Effort, Measure, Work};

const WRITE: usize = 64 << 10;
const READ_BUFFERS: [u64; 3] = [64 << 10, 256 << 10, 1 << 20];
const TIME_LIMIT: Option<Duration> = Some(Duration::from_secs(20));

/// What precedes a stream: its bytes, and those of the buffer to read them into.
fn encode(bytes: u64, buffer: u64) -> [u8; 16] {
    (u128::from(bytes) << 64 | u128::from(buffer)).to_be_bytes()
}

pub(super) fn serve() -> anyhow::Result<(SocketAddr, Running)> {
    let listener = TcpListener::bind((free_loopback()?, 0))?;
    let address = listener.local_addr()?;
    spawn("sink", "the end that is sent to by TCP", move || {
        let served = listener.accept().and_then(|(stream, _)| receive(stream));
        served.or_else(|error| if error.kind() == ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) })
    })?;
    Ok((address, Box::new(())))
}

fn receive(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; MESSAGE];
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let header = u128::from_be_bytes(header);
        let (mut left, most) = ((header >> 64) as u64, header as u64);
        while left > 0 {
            let len = left.min(most).min(MESSAGE as u64) as usize;
            match stream.read(&mut buffer[..len])? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                read => left -= read as u64,
            }
        }
        stream.write_all(&[1])?;
    }
}

#[derive(Debug)]
pub(super) struct Source {
    stream: TcpStream,
    data: Vec<u8>,
    /// Buffers of a repeat.
    amount: u64,
    read_buffer: u64,
}

impl Source {
    pub(super) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(far)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(TIME_LIMIT)?;
        stream.set_write_timeout(TIME_LIMIT)?;
        Ok(Self { stream, data: vec![0x5a; MESSAGE], amount: START, read_buffer: READ_BUFFERS[0] })
    }

    /// Sends so many times the whole buffer, until the other end has it all.
    fn send(&mut self, buffers: u64) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.stream.write_all(&encode(buffers * MESSAGE as u64, self.read_buffer))?;
        for _ in 0..buffers {
            for part in self.data.chunks(WRITE) {
                self.stream.write_all(part)?;
            }
        }
        self.stream.read_exact(&mut [0])?;
        Ok(start.elapsed())
    }
}

impl Measure for Source {
    fn warm_up(&mut self, effort: &Effort) -> anyhow::Result<String> {
        let mut best = (0.0, READ_BUFFERS[0], self.amount);
        for buffer in READ_BUFFERS {
            self.read_buffer = buffer;
            let (amount, rate) = fill(effort, |buffers| self.send(buffers))?;
            if rate > best.0 {
                best = (rate, buffer, amount);
            }
        }
        (_, self.read_buffer, self.amount) = best;
        Ok(format!("TCP reads {} KiB, socket buffers as the system has them", self.read_buffer >> 10))
    }

    fn run(&mut self, _: &Effort) -> anyhow::Result<Work> {
        let time = self.send(self.amount)?;
        Ok(goodput(self.amount * MESSAGE as u64, time))
    }
}
