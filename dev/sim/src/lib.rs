//! Simulation of two endpoints over a faulty virtual network, each run determined by its seed.
//!
//! What there is in virtual time is of a [kind](Kind). In the first two, two nodes drive one `roce::Endpoint` each:
//!
//! - Traffic: a seed draws a [`Plan`] (connection, faults, scenario) and the work requests of both directions. Whatever
//!   completes is compared at once with what was asked for, and all memory is compared at the end.
//! - Calls: a session of MRSP between a host and an accelerator, with any layout (module `calls`).
//! - Events: senders of EJFAT and a worker's reassembler (module `events`).
//! - Bridge: senders of EJFAT, a bridge, and workers with rings (module `bridge`).
//! - Control: EJFAT's control plane with data planes, senders and workers (module `control`).

mod bridge;
mod calls;
mod check;
mod cm;
mod control;
mod environment;
mod events;
mod goodput;
mod hostile;
mod node;
mod plan;
mod report;
mod sender;
pub mod site;
mod traffic;

pub use goodput::{Goodput, goodput};
pub use plan::{Plan, Scenario};
pub use report::{Failure, Kind, Summary};

use std::{fs::File, io::BufWriter, path::PathBuf};

use simnet::pcap;

use environment::Environment;

/// What to do besides checking.
#[derive(Clone, Debug, Default)]
pub struct RunConfig {
    /// Print the plan and every completion to standard error.
    pub verbose: bool,
    /// Write all packets sent to this file.
    pub pcap: Option<PathBuf>,
}

/// Draws, as SVG, what workers get of a load balancer's slots while some are slow, new or dead, and when a clock is set back.
///
/// # Errors
/// What did not hold in the run.
pub fn shares() -> Result<String, String> {
    control::Environment::draw()
}

/// Runs one seed.
pub fn run(kind: Kind, seed: u64, options: &RunConfig) -> Result<Summary, Failure> {
    let failure = |why| Failure { kind, seed, why };
    let open = |path: &PathBuf| pcap::Writer::new(BufWriter::new(File::create(path)?));
    let capture =
        options.pcap.as_ref().map(open).transpose().map_err(|e| failure(format!("capture: {e}")))?;
    let outcome = match kind {
        Kind::Traffic => {
            let plan = Plan::draw(seed);
            if options.verbose {
                eprintln!("{plan:#?}");
            }
            Environment::new(plan, options.verbose, capture).run()
        }
        Kind::Calls => calls::Environment::new(seed, options.verbose, capture).run(),
        Kind::Events => events::Environment::new(seed, options.verbose).run(),
        Kind::Bridge => bridge::Environment::new(seed, options.verbose).run(),
        Kind::Control => control::Environment::new(seed, options.verbose).and_then(control::Environment::run),
    };
    outcome.map_err(failure)
}
