//! The engine, which decides where packets go.

use ejfat_lb::SharedDataPlane;

/// The engine of a load balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// This program
    #[default]
    Software,
    /// The RTL of fpga/rtl in simulation, a few thousand packets per second, each of its decisions checked; needs Verilator and a
    /// checkout of naa
    Rtl,
}

impl Engine {
    /// The engine's name on command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Rtl => "rtl",
        }
    }

    /// Makes a data plane use the engine.
    pub(super) fn put_into(self, plane: SharedDataPlane) -> anyhow::Result<SharedDataPlane> {
        match self {
            Self::Software => Ok(plane),
            Self::Rtl => Ok(plane.with_engine(Box::new(naa_fpga::Simulated::start()?))?),
        }
    }

    /// Makes the files of the engine that take long to make, so that a program which is started later need not wait for them.
    pub(crate) fn prepare(self) -> anyhow::Result<()> {
        match self {
            Self::Software => Ok(()),
            Self::Rtl => Ok(naa_fpga::Simulated::prepare()?),
        }
    }
}
