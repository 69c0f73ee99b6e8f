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
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sweep<'a> {
    pub(crate) waits: &'a [Wait],
    pub(crate) sizes: &'a [Sizes],
    pub(crate) params: &'a [u16],
    pub(crate) bytes: &'a [u64],
    pub(crate) directions: &'a [Direction],
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

const SPIN: &[Wait] = &[Wait::Spin];
const BLOCK: &[Wait] = &[Wait::Block];
const BOTH_WAITS: &[Wait] = &[Wait::Spin, Wait::Block];
const EQUAL: &[Sizes] = &[Sizes::Equal];
const BOTH_SIZES: &[Sizes] = &[Sizes::Equal, Sizes::Mixed];
const ONE_WAY: &[Direction] = &[Direction::In, Direction::Out];
const BOTH_WAYS: &[Direction] = &[Direction::Both];
/// A few numbers of parameters, and some of their sizes.
const FEW: &[u16] = &[1, 8, 31, 255];
const SOME: &[u64] = &[64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB];

const fn sweep<'a>(
    waits: &'a [Wait],
    sizes: &'a [Sizes],
    params: &'a [u16],
    bytes: &'a [u64],
    directions: &'a [Direction],
) -> Sweep<'a> {
    Sweep { waits, sizes, params, bytes, directions }
}

/// As many bytes in one parameter as 31 of 64 B have, for comparison.
pub(crate) const TOGETHER: u64 = 31 * 64;

const USUAL: [Sweep<'static>; 4] = [
    sweep(BOTH_WAITS, EQUAL, &[1], &[TOGETHER], BOTH_WAYS),
    sweep(
        SPIN,
        BOTH_SIZES,
        &[1, 2, 4, 8, 16, 31, 255],
        &[64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 16 * MIB, 64 * MIB],
        BOTH_WAYS,
    ),
    sweep(SPIN, BOTH_SIZES, FEW, SOME, ONE_WAY),
    sweep(BLOCK, BOTH_SIZES, FEW, SOME, BOTH_WAYS),
];

const QUICK: [Sweep<'static>; 4] = [
    sweep(BOTH_WAITS, EQUAL, &[1], &[TOGETHER], BOTH_WAYS),
    sweep(SPIN, BOTH_SIZES, &[1, 4, 31, 255], SOME, BOTH_WAYS),
    sweep(SPIN, EQUAL, &[4, 31], &[64, 4 * KIB, 64 * KIB], ONE_WAY),
    sweep(BLOCK, EQUAL, &[1, 4, 31], &[64, 4 * KIB, 64 * KIB], BOTH_WAYS),
];

/// Workloads in the order in which they are measured, each once; those of one wait and provider one after the other. What there is in `instead`
/// takes the place of each sweep's own.
pub(crate) fn plan(providers: &[DevicePair], is_quick: bool, instead: Sweep<'_>) -> Vec<Planned> {
    let sweeps = if is_quick { QUICK } else { USUAL }.map(|sweep| sweep.but(instead));
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

impl Sweep<'_> {
    fn but(self, instead: Self) -> Self {
        fn either<'a, T>(own: &'a [T], instead: &'a [T]) -> &'a [T] {
            if instead.is_empty() { own } else { instead }
        }
        Self {
            waits: either(self.waits, instead.waits),
            sizes: either(self.sizes, instead.sizes),
            params: either(self.params, instead.params),
            bytes: either(self.bytes, instead.bytes),
            directions: either(self.directions, instead.directions),
        }
    }

    fn workloads(&self, provider: &str, wait: Wait) -> Vec<Workload> {
        let mut all = Vec::new();
        for &sizes in self.sizes {
            for &params in self.params {
                // One parameter has nothing to be mixed with.
                if sizes == Sizes::Mixed && params == 1 {
                    continue;
                }
                for &bytes in self.bytes {
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

    fn of(is_quick: bool, instead: Sweep<'_>) -> Vec<Planned> {
        plan(&[EMBEDDED], is_quick, instead)
    }

    #[test]
    fn every_workload_is_there_once_and_fits() {
        for (is_quick, most) in [(false, MOST), (true, QUICK_MOST)] {
            let all = of(is_quick, Sweep::default());
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
        let largest = of(false, Sweep::default()).into_iter().map(|p| p.workload.bytes).max();
        assert_eq!(largest, Some(64 * MIB));
    }

    #[test]
    fn ends_are_started_once_for_each_provider_and_wait() {
        let verbs = DevicePair { name: "verbs", address: Some("10.9.0.1".parse().unwrap()) };
        let all = plan(&[EMBEDDED, verbs], false, Sweep::default());
        let mut ends: Vec<_> = all.iter().map(|planned| (planned.address, planned.wait)).collect();
        ends.dedup();
        assert_eq!(ends.len(), 4);
    }

    #[test]
    fn what_is_asked_for_is_measured() {
        let all = of(true, sweep(BLOCK, &[Sizes::Mixed], &[3], &[512 * MIB], &[Direction::Out]));
        let names: Vec<_> = all.iter().map(|planned| planned.workload.to_string()).collect();
        assert_eq!(names, ["embedded, block: 3 x 512 MiB mixed out"]);
        let fewer = of(false, Sweep { params: &[31], ..Sweep::default() });
        assert!(fewer.len() > 20 && fewer.iter().all(|planned| planned.workload.params == 31));
    }
}
