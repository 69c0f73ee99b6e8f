//! Devices for AXI4-Stream ports: one that gives packets, and one that takes them.

use std::collections::VecDeque;

use super::Device;
use crate::{Model, Port};

/// A packet of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packet {
    pub bytes: Vec<u8>,
    /// `tuser` of the first beat. If the packet has only one beat, `last` is added to it.
    pub first: u64,
    /// `tuser` of the last beat.
    pub last: u64,
    /// The cycle in which a [`Sink`] took the first beat, counted from 1 since the sink was made.
    pub begun: u64,
}

/// How often a device does nothing for a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub idle: u8,
    /// The state of the random numbers. It is never 0.
    state: u64,
}

impl Rates {
    /// The device is never idle.
    pub fn full() -> Self {
        Self::idle(0, 1)
    }

    /// The device is idle in about `idle` of 256 cycles, at random.
    pub fn idle(idle: u8, seed: u64) -> Self {
        Self { idle, state: seed | 1 }
    }

    /// Whether the device is idle in the next cycle.
    ///
    /// # Source
    /// Marsaglia, Xorshift RNGs, 2003.
    pub fn is_idle(&mut self) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 32) as u8 <= self.idle && self.idle > 0
    }
}

/// The signals of a stream.
#[derive(Clone, Copy, Debug)]
struct Signals {
    data: Port,
    keep: Port,
    last: Port,
    user: Port,
    valid: Port,
    ready: Port,
    /// The number of bytes of a beat.
    width: usize,
}

impl Signals {
    fn new(model: &Model, prefix: &str) -> Self {
        let port = |name: &str| model.port(&format!("{prefix}_{name}"));
        let data = port("tdata");
        Self {
            data,
            keep: port("tkeep"),
            last: port("tlast"),
            user: port("tuser"),
            valid: port("tvalid"),
            ready: port("tready"),
            width: model.len(data),
        }
    }

    fn is_handed_over(&self, model: &Model) -> bool {
        model.get(self.valid) == 1 && model.get(self.ready) == 1
    }
}

/// Gives packets to a module.
#[derive(Debug)]
pub struct Source {
    signals: Signals,
    rates: Rates,
    packets: VecDeque<Packet>,
    /// The number of bytes of the first packet that the module has taken.
    at: usize,
    is_offering: bool,
}

impl Source {
    /// A source for the stream whose signals begin with `prefix`.
    pub fn new(model: &Model, prefix: &str, rates: Rates) -> Self {
        let signals = Signals::new(model, prefix);
        Self { signals, rates, packets: VecDeque::new(), at: 0, is_offering: false }
    }

    pub fn push(&mut self, packet: Packet) {
        self.packets.push_back(packet);
    }

    /// The number of packets that the module has not taken, the one that it is taking included.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether the module has taken all packets.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }
}

impl Device for Source {
    fn drive(&mut self, model: &mut Model) {
        if self.is_offering {
            return;
        }
        let signals = self.signals;
        let packet = self.packets.front().filter(|_| !self.rates.is_idle());
        model.set(signals.valid, packet.is_some().into());
        let Some(packet) = packet else { return };
        self.is_offering = true;
        let rest = &packet.bytes[self.at..];
        let beat = &rest[..rest.len().min(signals.width)];
        let mut data = [0; 64];
        data[..beat.len()].copy_from_slice(beat);
        model.write(signals.data, &data[..signals.width]);
        model.set(signals.keep, u64::MAX >> (64 - beat.len()));
        let (is_first, is_last) = (self.at == 0, rest.len() <= signals.width);
        model.set(signals.last, is_last.into());
        model.set(signals.user, (packet.first * u64::from(is_first)) | (packet.last * u64::from(is_last)));
    }

    fn sample(&mut self, model: &Model) {
        if !self.is_offering || !self.signals.is_handed_over(model) {
            return;
        }
        self.is_offering = false;
        self.at += self.signals.width;
        if self.packets.front().is_some_and(|packet| self.at >= packet.bytes.len()) {
            self.packets.pop_front();
            self.at = 0;
        }
    }
}

/// Takes packets from a module, and panics if the module breaks a rule of AXI4-Stream.
#[derive(Debug)]
pub struct Sink {
    signals: Signals,
    rates: Rates,
    packets: VecDeque<Packet>,
    current: Packet,
    /// The beat that the module offered in the cycle before and that was not taken.
    offered: Option<Beat>,
    cycles: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beat {
    data: [u8; 64],
    keep: u64,
    last: u64,
    user: u64,
}

impl Sink {
    pub fn new(model: &Model, prefix: &str, rates: Rates) -> Self {
        let signals = Signals::new(model, prefix);
        Self {
            signals,
            rates,
            packets: VecDeque::new(),
            current: Packet::default(),
            offered: None,
            cycles: 0,
        }
    }

    /// The next whole packet that came.
    pub fn pop(&mut self) -> Option<Packet> {
        self.packets.pop_front()
    }

    pub fn set_rates(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// Whether the last beat that came was the end of a packet.
    pub fn is_between_packets(&self) -> bool {
        self.current.bytes.is_empty()
    }
}

impl Device for Sink {
    fn drive(&mut self, model: &mut Model) {
        let ready = !self.rates.is_idle();
        model.set(self.signals.ready, ready.into());
    }

    fn sample(&mut self, model: &Model) {
        self.cycles += 1;
        let signals = self.signals;
        if model.get(signals.valid) == 0 {
            assert!(self.offered.is_none(), "tvalid fell before the beat was taken");
            return;
        }
        let mut beat = Beat {
            data: [0; 64],
            keep: model.get(signals.keep),
            last: model.get(signals.last),
            user: model.get(signals.user),
        };
        model.read(signals.data, &mut beat.data[..signals.width]);
        if let Some(offered) = self.offered {
            assert_eq!(offered, beat, "a beat changed before it was taken");
        }
        if model.get(signals.ready) == 0 {
            self.offered = Some(beat);
            return;
        }
        self.offered = None;
        let bytes = beat.keep.trailing_ones() as usize;
        let is_contiguous = bytes > 0 && beat.keep == u64::MAX >> (64 - bytes);
        let is_full = bytes == signals.width;
        assert!(is_contiguous && (is_full || beat.last == 1), "tkeep {:#x}, tlast {}", beat.keep, beat.last);
        if self.current.bytes.is_empty() {
            (self.current.begun, self.current.first) = (self.cycles, beat.user);
        }
        self.current.bytes.extend_from_slice(&beat.data[..bytes]);
        if beat.last == 1 {
            self.current.last = beat.user;
            self.packets.push_back(std::mem::take(&mut self.current));
        }
    }
}
