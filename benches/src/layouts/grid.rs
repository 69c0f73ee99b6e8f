//! Which workloads are measured.

use std::{collections::BTreeSet, net::IpAddr};

use super::point::{Direction, Sizes, Workload};
use crate::sides::Wait;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of a session's parameters at most, and with `--quick`.
const MOST: u64 = 64 * MIB;
const QUICK_MOST: u64 = 32 * MIB;

/// What a sweep consists of: every combination.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sweep {
    pub(crate) waits: Vec<Wait>,
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) params: Vec<u16>,
    pub(crate) bytes: Vec<u64>,
    pub(crate) directions: Vec<Direction>,
}

/// What takes the place of each sweep's own; empty: nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Instead {
    pub(crate) waits: Vec<Wait>,
    pub(crate) sizes: Vec<Sizes>,
    pub(crate) params: Vec<u16>,
    pub(crate) bytes: Vec<u64>,
    pub(crate) directions: Vec<Direction>,
}

/// The two ends' device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DevicePair {
    /// `embedded` or `verbs`.
    pub(crate) name: &'static str,
    /// An address of the RDMA device; `None` for the embedded provider, which uses loopback addresses.
    pub(crate) address: Option<IpAddr>,
}

/// A workload, and what its two ends are started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) workload: Workload,
    pub(crate) wait: Wait,
    pub(crate) address: Option<IpAddr>,
}

const SPIN: [Wait; 1] = [Wait::Spin];
const BOTH_SIZES: [Sizes; 2] = [Sizes::Equal, Sizes::Mixed];
const ONE_WAY: [Direction; 2] = [Direction::In, Direction::Out];
const BOTH_WAYS: [Direction; 1] = [Direction::Both];

fn sweep(waits: &[Wait], sizes: &[Sizes], params: &[u16], bytes: &[u64], directions: &[Direction]) -> Sweep {
    Sweep {
        waits: waits.to_vec(),
        sizes: sizes.to_vec(),
        params: params.to_vec(),
        bytes: bytes.to_vec(),
        directions: directions.to_vec(),
    }
}

/// As many bytes in one parameter as 31 of 64 B have, for comparison.
pub(crate) const TOGETHER: u64 = 31 * 64;

fn usual() -> Vec<Sweep> {
    let waits = [Wait::Spin, Wait::Block];
    let params = [1, 2, 4, 8, 16, 31, 255];
    let few = [1, 8, 31, 255];
    let bytes = [64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB];
    vec![
        sweep(&waits, &BOTH_SIZES[..1], &[1], &[TOGETHER], &BOTH_WAYS),
        sweep(&SPIN, &BOTH_SIZES, &params, &bytes, &BOTH_WAYS),
        sweep(&SPIN, &BOTH_SIZES, &few, &[64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB], &ONE_WAY),
        sweep(&[Wait::Block], &BOTH_SIZES, &few, &[64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB], &BOTH_WAYS),
    ]
}

fn quick() -> Vec<Sweep> {
    let waits = [Wait::Spin, Wait::Block];
    vec![
        sweep(&waits, &BOTH_SIZES[..1], &[1], &[TOGETHER], &BOTH_WAYS),
        sweep(&SPIN, &BOTH_SIZES, &[1, 4, 31, 255], &[64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB], &BOTH_WAYS),
        sweep(&SPIN, &BOTH_SIZES[..1], &[4, 31], &[64, 4 * KIB, 64 * KIB], &ONE_WAY),
        sweep(&[Wait::Block], &BOTH_SIZES[..1], &[1, 4, 31], &[64, 4 * KIB, 64 * KIB], &BOTH_WAYS),
    ]
}

/// Workloads in the order in which they are measured, each once; those of one wait and provider one after the other.
pub(crate) fn plan(providers: &[DevicePair], is_quick: bool, instead: &Instead) -> Vec<Planned> {
    let sweeps: Vec<_> =
        if is_quick { quick() } else { usual() }.into_iter().map(|sweep| sweep.but(instead)).collect();
    // What was asked for is measured whatever its size.
    let most = match (instead.bytes.is_empty(), is_quick) {
        (false, _) => u64::MAX,
        (true, true) => QUICK_MOST,
        (true, false) => MOST,
    };
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for provider in providers {
        for wait in [Wait::Spin, Wait::Block] {
            let here = sweeps.iter().filter(|sweep| sweep.waits.contains(&wait));
            let workloads = here.flat_map(|sweep| sweep.workloads(provider.name, wait));
            let workloads = workloads.filter(|workload| workload.total() <= most);
            for workload in workloads.filter(|workload| seen.insert(workload.clone())) {
                all.push(Planned { workload, wait, address: provider.address });
            }
        }
    }
    all
}

impl Sweep {
    fn but(self, instead: &Instead) -> Self {
        fn either<T: Clone>(own: Vec<T>, instead: &[T]) -> Vec<T> {
            if instead.is_empty() { own } else { instead.to_vec() }
        }
        Self {
            waits: either(self.waits, &instead.waits),
            sizes: either(self.sizes, &instead.sizes),
            params: either(self.params, &instead.params),
            bytes: either(self.bytes, &instead.bytes),
            directions: either(self.directions, &instead.directions),
        }
    }

    fn workloads(&self, provider: &str, wait: Wait) -> Vec<Workload> {
        let mut all = Vec::new();
        for &sizes in &self.sizes {
            for &params in &self.params {
                // One parameter has nothing to be mixed with.
                if sizes == Sizes::Mixed && params == 1 {
                    continue;
                }
                for &bytes in &self.bytes {
                    all.extend(self.directions.iter().map(|&direction| {
                        let (provider, wait) = (provider.into(), name(wait).into());
                        Workload { provider, wait, sizes, params, bytes, direction }
                    }));
                }
            }
        }
        all
    }
}

pub(crate) fn name(wait: Wait) -> &'static str {
    match wait {
        Wait::Spin => "spin",
        Wait::Block => "block",
        Wait::Adaptive => "adaptive",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMBEDDED: DevicePair = DevicePair { name: "embedded", address: None };

    fn of(is_quick: bool, instead: &Instead) -> Vec<Planned> {
        plan(&[EMBEDDED], is_quick, instead)
    }

    #[test]
    fn every_workload_is_there_once_and_fits() {
        for (is_quick, most) in [(false, MOST), (true, QUICK_MOST)] {
            let all = of(is_quick, &Instead::default());
            let different: BTreeSet<_> = all.iter().map(|planned| planned.workload.clone()).collect();
            assert_eq!(different.len(), all.len());
            assert!(different.iter().all(|workload| workload.total() <= most));
            let has = |params, bytes, wait: &str| {
                let here = |w: &&Workload| (w.params, w.bytes, w.wait.as_str()) == (params, bytes, wait);
                different.iter().any(|w| here(&w))
            };
            for wait in ["spin", "block"] {
                assert!(has(1, TOGETHER, wait) && has(31, 64, wait), "{wait}");
            }
            assert!(has(255, 64, "spin") && different.iter().any(|w| w.direction == Direction::Out));
            assert!(!different.iter().any(|w| w.params == 1 && w.sizes == Sizes::Mixed));
        }
        let largest = of(false, &Instead::default()).into_iter().map(|p| p.workload.bytes).max();
        assert_eq!(largest, Some(64 * MIB));
    }

    #[test]
    fn ends_are_started_once_for_each_provider_and_wait() {
        let verbs = DevicePair { name: "verbs", address: Some("10.9.0.1".parse().unwrap()) };
        let all = plan(&[EMBEDDED, verbs], false, &Instead::default());
        let mut ends: Vec<_> = all.iter().map(|planned| (planned.address, planned.wait)).collect();
        ends.dedup();
        assert_eq!(ends.len(), 4);
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let instead = Instead {
            waits: vec![Wait::Block],
            sizes: vec![Sizes::Mixed],
            params: vec![3],
            bytes: vec![512 * MIB],
            directions: vec![Direction::Out],
        };
        let all = of(true, &instead);
        let names: Vec<_> = all.iter().map(|planned| planned.workload.to_string()).collect();
        assert_eq!(names, ["embedded, block: 3 x 512 MiB mixed out"]);
        let fewer = of(false, &Instead { params: vec![31], ..Instead::default() });
        assert!(fewer.len() > 20 && fewer.iter().all(|planned| planned.workload.params == 31));
    }
}
