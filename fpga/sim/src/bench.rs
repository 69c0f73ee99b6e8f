//! A module on a bench: its clock, its reset, and the streams at its ports.

mod stream;

use std::{process, thread};

use crate::{Model, Port, purpose::Purpose, rerun};

pub use stream::{Packet, Rates, Sink, Source};

/// Something that is connected to a module's ports. In each cycle all devices set inputs, then all of them look at the outputs, and then the
/// clock rises.
pub trait Device {
    /// Sets inputs. Outputs that depend on inputs of the same cycle are not yet known.
    fn drive(&mut self, model: &mut Model);
    /// Looks at the outputs of the cycle, just before the clock rises.
    fn sample(&mut self, model: &Model);
}

/// A module with one clock, `clk`, and a synchronous reset, `rst`, if it has one.
#[derive(Debug)]
pub struct Bench {
    pub model: Model,
    clk: Port,
    rst: Option<Port>,
    cycles: u64,
}

impl Bench {
    /// A bench with a module that was reset.
    pub fn new(model: Model) -> Self {
        let clk = model.port("clk");
        let rst = model.has_port("rst").then(|| model.port("rst"));
        let mut bench = Self { model, clk, rst, cycles: 0 };
        bench.reset();
        bench
    }

    /// Holds the reset for two cycles.
    pub fn reset(&mut self) {
        let Some(rst) = self.rst else { return };
        self.model.set(rst, 1);
        self.cycle(&mut []);
        self.cycle(&mut []);
        self.model.set(rst, 0);
    }

    /// The number of cycles since the module was made.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// Runs one cycle of the clock.
    pub fn cycle(&mut self, devices: &mut [&mut dyn Device]) {
        for device in &mut *devices {
            device.drive(&mut self.model);
        }
        self.model.set(self.clk, 0);
        self.model.eval();
        self.model.record(self.cycles, false);
        for device in devices {
            device.sample(&self.model);
        }
        self.model.set(self.clk, 1);
        self.model.eval();
        self.model.record(self.cycles, true);
        self.cycles += 1;
    }
}

impl Drop for Bench {
    /// When a test fails, says how to get a waveform of it. If the module has a fault, one test that fails is enough.
    fn drop(&mut self) {
        if thread::panicking() && matches!(Purpose::of_environment(), Purpose::Mutant(1..)) {
            process::exit(1);
        }
        if thread::panicking()
            && let Some(command) = rerun::waveform(self.cycles)
        {
            eprintln!("{command}");
        }
    }
}
