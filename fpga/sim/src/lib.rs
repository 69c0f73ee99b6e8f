//! The RTL of `fpga/rtl` as libraries that Verilator makes, driven cycle by cycle.
//!
//! ```text
//! fpga/rtl/*.sv ─► Verilator ─► C++ ─► a shared library ─► Model: ports, one edge of the clock at a time
//!                                                            └ Bench: streams with gaps and back-pressure
//! ```
//!
//! Verilator, which needs a C++ compiler and Perl, is used only when a model is built. The rest of the project does without.

mod bench;
mod bits;
mod driver;
mod engine;
pub mod frames;
mod lb_top;
mod model;
mod purpose;
mod rerun;
mod rtl;
mod shim;
mod tools;
mod verilate;

pub use bench::{Bench, Device, Packet, Rates, Sink, Source};
pub use bits::{Reader, Writer};
pub use driver::{Driver, Lengths, Macs, Registers, VersionError};
pub use engine::{Simulated, SimulatedError};
pub use lb_top::LbTop;
pub use model::{Model, OpenError, Port};
pub use rtl::sources;
pub use tools::Tools;
pub use verilate::{BuildError, Module};
