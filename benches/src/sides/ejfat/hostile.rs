//! A receiver that gets nothing, and one that gets nonsense.

use std::{
    net::{SocketAddr, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use ejfat::wire::{LbHeader, ReHeader};
use naa_hot_paths::numbers::Numbers;

use super::{
    FLOODED_MEMORY,
    control::{Ask, Control},
};
use crate::side::{Effort, Measure, Work};

/// Per cent of a core that the far end takes while nothing is sent.
#[derive(Debug)]
pub(in crate::sides) struct Watch(Control);

impl Watch {
    pub(in crate::sides) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self(Control::connect(far)?))
    }
}

impl Measure for Watch {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let begin = Instant::now();
        let before = self.0.ask(Ask::Look)?.cpu;
        thread::sleep(Duration::from_secs_f64(effort.idle_seconds));
        let used = self.0.ask(Ask::Look)?.cpu - before;
        let amount = begin.elapsed().as_secs_f64();
        Ok(Work { value: used / amount * 100.0, amount })
    }
}

/// MiB that the far end has more in memory since it began to be flooded.
#[derive(Debug)]
pub(in crate::sides) struct Flood {
    control: Control,
    socket: UdpSocket,
    before: f64,
    numbers: Numbers,
    event: u64,
    datagram: Vec<u8>,
}

impl Flood {
    pub(in crate::sides) fn connect(far: SocketAddr) -> anyhow::Result<Self> {
        let mut control = Control::connect(far)?;
        let before = control.ask(Ask::Look)?.resident_kib;
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(far)?;
        let datagram = vec![0x5a; ReHeader::LEN + 9000];
        Ok(Self { control, socket, before, numbers: Numbers(7), event: 0, datagram })
    }

    /// Events of 4 GiB, events without number, a few with parts everywhere, and nonsense. Gives the length.
    fn next(&mut self) -> usize {
        self.event += 1;
        let most = FLOODED_MEMORY;
        let kind = self.numbers.below(8);
        let anywhere = self.numbers.below(most as usize - 9000) as u32;
        let (event, offset, length) = match kind {
            0 => (self.event, 0, u32::MAX),
            1 => (self.event, u32::MAX - 9000, u32::MAX),
            2..=4 => (self.event % 64, anywhere / 8192 * 8192, most),
            _ => (self.event, anywhere, most),
        };
        let header = ReHeader { data_id: 0, offset, length, event };
        self.datagram[..ReHeader::LEN].copy_from_slice(&header.encode());
        if kind == 7 {
            let garbage = self.numbers.below(1 << 30) as u64;
            self.datagram[..8].copy_from_slice(&garbage.to_le_bytes());
            return self.numbers.below(LbHeader::LEN + 40);
        }
        ReHeader::LEN + [8, 1000, 8192][self.numbers.below(3)]
    }
}

impl Measure for Flood {
    fn run(&mut self, effort: &Effort) -> anyhow::Result<Work> {
        let (begin, time) = (Instant::now(), Duration::from_secs_f64(effort.idle_seconds));
        let mut sent = 0.0;
        while begin.elapsed() < time {
            for _ in 0..100 {
                let len = self.next();
                self.socket.send(&self.datagram[..len])?;
                sent += 1.0;
            }
        }
        let report = self.control.ask(Ask::Look)?;
        Ok(Work { value: (report.resident_kib - self.before) / 1024.0, amount: sent })
    }
}
