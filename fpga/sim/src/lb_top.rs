//! The module `lb_top` on a bench: its streams of frames and its registers.

use crate::{Bench, Device, Model, Packet, Port, Rates, Registers, Sink, Source};

/// The signals of a channel of AXI-Lite, as a driver's side sees them.
#[derive(Clone, Copy, Debug)]
struct Channel {
    valid: Port,
    ready: Port,
    /// The address, the data, or the response to a write.
    value: Port,
}

impl Channel {
    fn new(model: &Model, name: &str, value: &str) -> Self {
        let port = |signal: &str| model.port(&format!("s_axil_{name}{signal}"));
        Self { valid: port("valid"), ready: port("ready"), value: port(value) }
    }
}

/// A step of an access: a valid signal that is high until the device is ready.
struct Offer {
    channel: Channel,
    /// The times at which the step begins.
    rates: Rates,
    is_offering: bool,
    is_over: bool,
}

impl Offer {
    fn new(channel: Channel, rates: Rates) -> Self {
        Self { channel, rates, is_offering: false, is_over: false }
    }
}

impl Device for Offer {
    fn drive(&mut self, model: &mut Model) {
        self.is_offering = !self.is_over && (self.is_offering || !self.rates.is_idle());
        model.set(self.channel.valid, self.is_offering.into());
    }

    fn sample(&mut self, model: &Model) {
        self.is_over |= self.is_offering && model.get(self.channel.ready) == 1;
    }
}

/// A step of an access: a ready signal that is high at times until the device has answered.
struct Answer {
    channel: Channel,
    rates: Rates,
    /// The answer that waits until it is taken.
    offered: Option<u64>,
    got: Option<u64>,
}

impl Answer {
    fn new(channel: Channel, rates: Rates) -> Self {
        Self { channel, rates, offered: None, got: None }
    }
}

impl Device for Answer {
    fn drive(&mut self, model: &mut Model) {
        let takes = self.got.is_none() && !self.rates.is_idle();
        model.set(self.channel.ready, takes.into());
    }

    fn sample(&mut self, model: &Model) {
        let Channel { valid, ready, value } = self.channel;
        let answer = (model.get(valid) == 1).then(|| model.get(value));
        assert!(self.offered.is_none() || self.offered == answer, "an answer changed before it was taken");
        assert!(self.got.is_none() || answer.is_none(), "an access is answered twice");
        self.offered = answer;
        if model.get(ready) == 1 && answer.is_some() {
            (self.offered, self.got) = (None, answer);
        }
    }
}

/// The load balancer in simulation. Time passes for the streams of frames while registers are accessed, too.
#[derive(Debug)]
pub struct LbTop {
    pub bench: Bench,
    pub source: Source,
    pub sink: Sink,
    /// How often the steps of an access to a register wait.
    pub accesses: Rates,
    /// AW, W, B, AR and R.
    channels: [Channel; 5],
    rresp: Port,
    /// The register that was read last, its value, and how often it was read and had it.
    last: (u16, u32, u64),
}

impl LbTop {
    /// A load balancer that was reset. `rates`: those of the source and of the sink.
    pub fn new(model: Model, rates: [Rates; 2]) -> Self {
        Self::on(Bench::new(model), rates)
    }

    /// Connects the streams and the registers to a module that is on a bench already.
    pub fn on(bench: Bench, [source, sink]: [Rates; 2]) -> Self {
        let source = Source::new(&bench.model, "s", source);
        let sink = Sink::new(&bench.model, "m", sink);
        let channels = [("aw", "addr"), ("w", "data"), ("b", "resp"), ("ar", "addr"), ("r", "data")]
            .map(|(name, value)| Channel::new(&bench.model, name, value));
        let rresp = bench.model.port("s_axil_rresp");
        Self { bench, source, sink, accesses: Rates::full(), channels, rresp, last: (0, 0, 0) }
    }

    /// Runs one cycle of the clock.
    pub fn cycle(&mut self) {
        self.bench.cycle(&mut [&mut self.source, &mut self.sink]);
    }

    /// Passes frames through, behind those that the source has already. Returns those that leave.
    ///
    /// # Panics
    /// If the module takes no more frames.
    pub fn pass(&mut self, frames: impl IntoIterator<Item = Packet>) -> Vec<Packet> {
        frames.into_iter().for_each(|frame| self.source.push(frame));
        let mut left = Vec::new();
        let (mut waiting, mut begin) = (self.source.len(), self.bench.cycles());
        while !self.source.is_empty() {
            self.cycle();
            left.extend(self.sink.pop());
            if self.source.len() < waiting {
                (waiting, begin) = (self.source.len(), self.bench.cycles());
            }
            let waited = self.bench.cycles() - begin;
            assert!(waited < Self::MOST_CYCLES, "the load balancer takes no more frames");
        }
        (0..Self::MOST_CYCLES / 8).for_each(|_| self.cycle());
        left.extend(std::iter::from_fn(|| self.sink.pop()));
        left
    }

    /// The most cycles for which a frame waits or passes, however slow its source and its sink are.
    const MOST_CYCLES: u64 = 10_000;

    /// Sets how often the source and the sink are idle.
    pub fn set_rates(&mut self, [source, sink]: [Rates; 2]) {
        self.source.set_rates(source);
        self.sink.set_rates(sink);
    }

    /// The most times that a driver reads a register without any change. A driver that reads more often waits for ever.
    const MOST_READS: u64 = 50_000;

    /// The rates of one step of an access. Each step has other times.
    fn of_step(&mut self) -> Rates {
        let _ = self.accesses.is_idle();
        self.accesses
    }
}

impl Registers for LbTop {
    fn read(&mut self, at: u16) -> u32 {
        let [.., ar, r] = self.channels;
        self.bench.model.set(ar.value, at.into());
        let mut address = Offer::new(ar, self.of_step());
        let mut data = Answer::new(r, self.of_step());
        for _ in 0..Self::MOST_CYCLES {
            self.bench.cycle(&mut [&mut self.source, &mut self.sink, &mut address, &mut data]);
            assert!(data.got.is_none() || address.is_over, "a read is answered before it is taken");
            if let Some(value) = data.got {
                assert_eq!(self.bench.model.get(self.rresp), 0, "a read is refused");
                self.bench.model.set(ar.valid, 0);
                self.bench.model.set(r.ready, 0);
                let value = value as u32;
                let times = if (at, value) == (self.last.0, self.last.1) { self.last.2 + 1 } else { 1 };
                self.last = (at, value, times);
                assert!(times < Self::MOST_READS, "register {at:#x} stays {value:#x}");
                return value;
            }
        }
        panic!("a read of register {at:#x} is not answered");
    }

    fn write(&mut self, at: u16, value: u32) -> bool {
        let [aw, w, b, ..] = self.channels;
        self.bench.model.set(aw.value, at.into());
        self.bench.model.set(w.value, value.into());
        let mut address = Offer::new(aw, self.of_step());
        let mut data = Offer::new(w, self.of_step());
        let mut answer = Answer::new(b, self.of_step());
        for _ in 0..Self::MOST_CYCLES {
            let (source, sink) = (&mut self.source, &mut self.sink);
            self.bench.cycle(&mut [source, sink, &mut address, &mut data, &mut answer]);
            let is_taken = address.is_over && data.is_over;
            assert!(answer.got.is_none() || is_taken, "a write is answered before it is taken");
            if let Some(got) = answer.got {
                self.bench.model.set(aw.valid, 0);
                self.bench.model.set(w.valid, 0);
                self.bench.model.set(b.ready, 0);
                return got == 0;
            }
        }
        panic!("a write of register {at:#x} is not answered");
    }
}
