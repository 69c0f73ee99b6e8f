//! The module `lb_top` on a bench: its streams of frames and its registers.

use crate::{Bench, Device, Model, Packet, Port, Rates, Registers, Sink, Source};

/// The signals of AXI-Lite, as a driver's side sees them.
#[derive(Clone, Copy, Debug)]
struct Signals {
    awvalid: Port,
    awready: Port,
    awaddr: Port,
    wvalid: Port,
    wready: Port,
    wdata: Port,
    bvalid: Port,
    bready: Port,
    bresp: Port,
    arvalid: Port,
    arready: Port,
    araddr: Port,
    rvalid: Port,
    rready: Port,
    rdata: Port,
    rresp: Port,
}

impl Signals {
    fn new(model: &Model) -> Self {
        let port = |name: &str| model.port(&format!("s_axil_{name}"));
        Self {
            awvalid: port("awvalid"),
            awready: port("awready"),
            awaddr: port("awaddr"),
            wvalid: port("wvalid"),
            wready: port("wready"),
            wdata: port("wdata"),
            bvalid: port("bvalid"),
            bready: port("bready"),
            bresp: port("bresp"),
            arvalid: port("arvalid"),
            arready: port("arready"),
            araddr: port("araddr"),
            rvalid: port("rvalid"),
            rready: port("rready"),
            rdata: port("rdata"),
            rresp: port("rresp"),
        }
    }
}

/// A step of an access: a valid signal that is high until the device is ready.
struct Offer {
    valid: Port,
    ready: Port,
    /// The times at which the step begins.
    rates: Rates,
    is_offering: bool,
    is_over: bool,
}

impl Offer {
    fn new(valid: Port, ready: Port, rates: Rates) -> Self {
        Self { valid, ready, rates, is_offering: false, is_over: false }
    }
}

impl Device for Offer {
    fn drive(&mut self, model: &mut Model) {
        self.is_offering = !self.is_over && (self.is_offering || !self.rates.is_idle());
        model.set(self.valid, self.is_offering.into());
    }

    fn sample(&mut self, model: &Model) {
        self.is_over |= self.is_offering && model.get(self.ready) == 1;
    }
}

/// A step of an access: a ready signal that is high at times until the device has answered.
struct Answer {
    valid: Port,
    ready: Port,
    value: Port,
    rates: Rates,
    /// The answer that waits until it is taken.
    offered: Option<u64>,
    got: Option<u64>,
}

impl Answer {
    fn new(valid: Port, ready: Port, value: Port, rates: Rates) -> Self {
        Self { valid, ready, value, rates, offered: None, got: None }
    }
}

impl Device for Answer {
    fn drive(&mut self, model: &mut Model) {
        let takes = self.got.is_none() && !self.rates.is_idle();
        model.set(self.ready, takes.into());
    }

    fn sample(&mut self, model: &Model) {
        let answer = (model.get(self.valid) == 1).then(|| model.get(self.value));
        assert!(self.offered.is_none() || self.offered == answer, "an answer changed before it was taken");
        assert!(self.got.is_none() || answer.is_none(), "an access is answered twice");
        self.offered = answer;
        if model.get(self.ready) == 1 && answer.is_some() {
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
    signals: Signals,
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
        let signals = Signals::new(&bench.model);
        Self { bench, source, sink, accesses: Rates::full(), signals, last: (0, 0, 0) }
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
}

impl LbTop {
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
        let Signals { araddr, arvalid, arready, rvalid, rready, rdata, rresp, .. } = self.signals;
        self.bench.model.set(araddr, at.into());
        let mut address = Offer::new(arvalid, arready, self.of_step());
        let mut data = Answer::new(rvalid, rready, rdata, self.of_step());
        for _ in 0..Self::MOST_CYCLES {
            self.bench.cycle(&mut [&mut self.source, &mut self.sink, &mut address, &mut data]);
            assert!(data.got.is_none() || address.is_over, "a read is answered before it is taken");
            if let Some(value) = data.got {
                assert_eq!(self.bench.model.get(rresp), 0, "a read is refused");
                self.bench.model.set(arvalid, 0);
                self.bench.model.set(rready, 0);
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
        let Signals { awaddr, awvalid, awready, wdata, wvalid, wready, bvalid, bready, bresp, .. } =
            self.signals;
        self.bench.model.set(awaddr, at.into());
        self.bench.model.set(wdata, value.into());
        let mut address = Offer::new(awvalid, awready, self.of_step());
        let mut data = Offer::new(wvalid, wready, self.of_step());
        let mut answer = Answer::new(bvalid, bready, bresp, self.of_step());
        for _ in 0..Self::MOST_CYCLES {
            let (source, sink) = (&mut self.source, &mut self.sink);
            self.bench.cycle(&mut [source, sink, &mut address, &mut data, &mut answer]);
            let is_taken = address.is_over && data.is_over;
            assert!(answer.got.is_none() || is_taken, "a write is answered before it is taken");
            if let Some(got) = answer.got {
                self.bench.model.set(awvalid, 0);
                self.bench.model.set(wvalid, 0);
                self.bench.model.set(bready, 0);
                return got == 0;
            }
        }
        panic!("a write of register {at:#x} is not answered");
    }
}
