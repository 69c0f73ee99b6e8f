//! Simulation of two endpoints over a faulty virtual network, each run determined by its seed.
//!
//! A seed draws a [`Plan`] (connection, faults, scenario) and the traffic of both directions. Two nodes drive one
//! `roce::Endpoint` each in virtual time. Whatever completes is compared at once with what was asked for, and all
//! memory is compared at the end.

mod check;
mod cm;
mod goodput;
mod hostile;
mod node;
mod plan;
mod report;
mod traffic;
mod world;

pub use goodput::{Goodput, goodput};
pub use plan::{Plan, Scenario};
pub use report::{Failure, Summary};

use std::{fs::File, io::BufWriter, path::PathBuf};

use simnet::pcap;

use world::World;

/// What to do besides checking.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Print the plan and every completion to standard error.
    pub verbose: bool,
    /// Write all packets sent to this file.
    pub pcap: Option<PathBuf>,
}

/// Runs one seed.
pub fn run(seed: u64, options: &Options) -> Result<Summary, Failure> {
    run_plan(Plan::draw(seed), options)
}

fn run_plan(plan: Plan, options: &Options) -> Result<Summary, Failure> {
    let seed = plan.seed;
    let failure = |why| Failure { seed, why };
    if options.verbose {
        eprintln!("{plan:#?}");
    }
    let open = |path: &PathBuf| pcap::Writer::new(BufWriter::new(File::create(path)?));
    let capture =
        options.pcap.as_ref().map(open).transpose().map_err(|e| failure(format!("capture: {e}")))?;
    World::new(plan, options.verbose, capture).run().map_err(failure)
}
