//! A module on a bench: its clock, its reset, and the streams at its ports.

mod stream;

use std::path::Path;

use crate::{Model, Port};

pub use stream::{Packet, Rates, Sink, Source};

/// What is connected to a module's ports. Cycle for cycle it sets inputs, then sees which outputs follow from all of them, and then
/// the clock rises.
pub trait Device {
    /// Sets inputs. Outputs that follow from inputs at once are not yet known.
    fn drive(&mut self, model: &mut Model);
    /// Looks at the outputs that are there when the clock rises.
    fn sample(&mut self, model: &Model);
}

/// A module with one clock, `clk`, and a synchronous reset, `rst`.
#[derive(Debug)]
pub struct Bench {
    pub model: Model,
    clk: Port,
    rst: Port,
    cycles: u64,
}

impl Bench {
    /// Resets the module.
    pub fn new(model: Model) -> Self {
        let (clk, rst) = (model.port("clk"), model.port("rst"));
        let mut bench = Self { model, clk, rst, cycles: 0 };
        bench.reset();
        bench
    }

    /// Writes waveforms of all signals from now on, if the model was made for that.
    pub fn trace(&mut self, path: &Path) {
        self.model.trace(path);
    }

    /// Holds the reset for two cycles.
    pub fn reset(&mut self) {
        self.model.set(self.rst, 1);
        self.cycle(&mut []);
        self.cycle(&mut []);
        self.model.set(self.rst, 0);
    }

    /// Cycles since the module was made.
    pub fn cycles(&self) -> u64 {
        self.cycles
    }

    /// One cycle of the clock.
    pub fn cycle(&mut self, devices: &mut [&mut dyn Device]) {
        for device in &mut *devices {
            device.drive(&mut self.model);
        }
        self.model.set(self.clk, 0);
        self.model.eval();
        self.model.dump(2 * self.cycles);
        for device in devices {
            device.sample(&self.model);
        }
        self.model.set(self.clk, 1);
        self.model.eval();
        self.model.dump(2 * self.cycles + 1);
        self.cycles += 1;
    }
}
