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
        }
    }
}

/// A step of an access: a valid signal that is high until the device is ready.
struct Offer {
    valid: Port,
    ready: Port,
    is_over: bool,
}

impl Offer {
    fn new(valid: Port, ready: Port) -> Self {
        Self { valid, ready, is_over: false }
    }
}

impl Device for Offer {
    fn drive(&mut self, model: &mut Model) {
        model.set(self.valid, (!self.is_over).into());
    }

    fn sample(&mut self, model: &Model) {
        self.is_over |= model.get(self.valid) == 1 && model.get(self.ready) == 1;
    }
}

/// A step of an access: a ready signal that is high until the device has answered.
struct Answer {
    valid: Port,
    ready: Port,
    value: Port,
    got: Option<u64>,
}

impl Device for Answer {
    fn drive(&mut self, model: &mut Model) {
        model.set(self.ready, self.got.is_none().into());
    }

    fn sample(&mut self, model: &Model) {
        if self.got.is_none() && model.get(self.valid) == 1 {
            self.got = Some(model.get(self.value));
        }
    }
}

/// The load balancer in simulation. Time passes for the streams of frames while registers are accessed, too.
#[derive(Debug)]
pub struct LbTop {
    pub bench: Bench,
    pub source: Source,
    pub sink: Sink,
    signals: Signals,
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
        Self { bench, source, sink, signals }
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

impl Registers for LbTop {
    fn read(&mut self, at: u16) -> u32 {
        let Signals { araddr, arvalid, arready, rvalid, rready, rdata, .. } = self.signals;
        self.bench.model.set(araddr, at.into());
        let mut address = Offer::new(arvalid, arready);
        let mut data = Answer { valid: rvalid, ready: rready, value: rdata, got: None };
        loop {
            self.bench.cycle(&mut [&mut self.source, &mut self.sink, &mut address, &mut data]);
            if let Some(value) = data.got {
                self.bench.model.set(arvalid, 0);
                self.bench.model.set(rready, 0);
                return value as u32;
            }
        }
    }

    fn write(&mut self, at: u16, value: u32) -> bool {
        let Signals { awaddr, awvalid, awready, wdata, wvalid, wready, bvalid, bready, bresp, .. } =
            self.signals;
        self.bench.model.set(awaddr, at.into());
        self.bench.model.set(wdata, value.into());
        let mut address = Offer::new(awvalid, awready);
        let mut data = Offer::new(wvalid, wready);
        let mut answer = Answer { valid: bvalid, ready: bready, value: bresp, got: None };
        loop {
            let (source, sink) = (&mut self.source, &mut self.sink);
            self.bench.cycle(&mut [source, sink, &mut address, &mut data, &mut answer]);
            if let Some(got) = answer.got {
                self.bench.model.set(awvalid, 0);
                self.bench.model.set(wvalid, 0);
                self.bench.model.set(bready, 0);
                return got == 0;
            }
        }
    }
}
