//! One point of `naa bench layouts`: what was measured, and what came of it. The form in JSON is stable.

use serde::{Deserialize, Serialize};

/// What is measured: everything but the layout, in which the contenders of a point differ.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// `embedded` or `verbs`.
    pub provider: String,
    /// `spin` or `block`.
    pub wait: String,
    pub sizes: Sizes,
    /// Parameters, 1 to 255.
    pub params: u16,
    /// Bytes of a parameter on average.
    pub bytes: u64,
    pub direction: Direction,
}

/// How the bytes are spread over the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Sizes {
    /// All have the same.
    Equal,
    /// Sizes from a sixteenth of the average up, most of the bytes in few parameters.
    Mixed,
}

/// Which way parameters go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    /// All are inputs.
    In,
    /// All are outputs.
    Out,
    /// All are both.
    Both,
}

/// A layout at a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    #[serde(flatten)]
    pub workload: Workload,
    /// As asked for: `symmetric`, `asymmetric`, `gathered`, `packed:BYTES` or `auto`.
    pub layout: String,
    /// What the session used: differs for `auto`.
    pub used: String,
    /// Connecting, registering and agreeing on regions, in microseconds; medians, as all below.
    pub setup_us: f64,
    /// The first call of a session.
    pub first_us: f64,
    /// Calls after the first.
    pub p50_us: f64,
    pub p99_us: f64,
    /// Distance between the quartiles of the repeats' p50, divided by their median.
    pub spread: f64,
    /// Payload in both directions by `p50_us`, in GiB/s.
    pub goodput: f64,
    /// CPU time per call.
    pub host_cpu_us: f64,
    pub server_cpu_us: f64,
    /// Bytes that are registered with the device for the session's parameters, on each side.
    pub host_registered: u64,
    pub server_registered: u64,
    /// Energy of the machine's packages per call; `None` where the machine has no counters.
    pub joules: Option<f64>,
    pub repeats: u32,
    /// Measured calls of all repeats.
    pub calls: u32,
}

/// What `--json` writes, and what a run that was broken off is resumed from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    /// The machine in a line each: processor, cores, memory, kernel, version of naa.
    pub machine: Vec<String>,
    /// The command that made it.
    pub command: String,
    /// The rules of `auto`, by provider.
    pub rules: Vec<ProviderRule>,
    pub points: Vec<Point>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProviderRule {
    pub provider: String,
    /// The rule as [`mrsp::layout::LayoutRule`] prints it.
    pub rule: String,
}
