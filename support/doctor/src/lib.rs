//! Finds out what a machine has for RDMA, what each provider can do there, and which commands help if something is missing.
//!
//! [`examine`] reads files of the Linux kernel and lists the rules of the packet filter; it changes nothing on the machine.
//! [`Report::run_self_tests`] starts a server on the address of each provider and compares the results of calls.
//! [`Traced`] is a server that tells which packets its device refuses, and why.
//!
//! ```rust
//! let report = naa_doctor::examine();
//! for provider in &report.providers {
//!     println!("{}: {}", provider.name, provider.why);
//!     println!("what helps: {}", provider.remedy.as_deref().unwrap_or("nothing is missing"));
//! }
//! assert_eq!(report.providers.len(), 2);
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod host;
mod machine;
mod memlock;
#[cfg(test)]
mod model;
mod network;
mod providers;
mod rdma;
mod rules;
mod self_test;
mod trace;

use naa_host::ProviderChoice;
use serde::Serialize;

pub use check::{Check, CheckGroup, CheckLevel};
pub use providers::{CannotListen, ProviderReport, ReadyAddress};
pub use self_test::{SelfTest, Size};
pub use trace::{RefusedPackets, Traced};

use machine::Machine;

/// The findings about a machine. Their form in JSON is stable: keys may be added, but none is removed.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The checks, in the order in which they are to be read.
    pub checks: Vec<Check>,
    /// The embedded provider, then the verbs provider.
    pub providers: Vec<ProviderReport>,
}

/// Examines the machine on which this program runs.
pub fn examine() -> Report {
    Report::of(&Machine::here())
}

impl Report {
    fn of(machine: &Machine) -> Self {
        let mut checks = rdma::checks(machine);
        checks.extend(network::checks(machine));
        checks.extend(host::checks(machine));
        let verbs = providers::verbs(machine, &checks);
        let embedded = providers::embedded(machine, verbs.ready);
        Self { checks, providers: vec![embedded, verbs] }
    }

    /// Whether any provider is ready.
    pub fn is_ready(&self) -> bool {
        self.providers.iter().any(|provider| provider.ready)
    }

    /// Tests each provider that is ready. A provider whose self-test fails is not ready, whatever the checks found.
    pub fn run_self_tests(&mut self) {
        self.providers.iter_mut().for_each(test);
    }
}

fn test(provider: &mut ProviderReport) {
    let Some(address) = providers::address_to_test(provider).filter(|_| provider.ready) else { return };
    let choice = if provider.name == "verbs" { ProviderChoice::Verbs } else { ProviderChoice::Embedded };
    let tested = self_test::run(address, choice);
    if !tested.ok {
        provider.ready = false;
        provider.why = "not ready: its self-test fails".into();
    }
    provider.self_test = Some(tested);
}
