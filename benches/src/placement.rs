//! Which end runs where.
//!
//! Left to itself the kernel puts two processes that wake each other now on one core, now on two, and figures of either
//! kind differ by factors. The ends of a network do not share cores, so here each gets half of them.

use std::{collections::BTreeMap, fs};

use anyhow::Context as _;
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};

/// CPUs of the two ends; none: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuPlacement {
    pub(crate) near: Vec<usize>,
    pub(crate) far: Vec<usize>,
}

const THIS_PROCESS: Pid = Pid::from_raw(0);

impl CpuPlacement {
    /// Half of the cores for each, as far as this process may use them. A single core is shared.
    pub(crate) fn halves() -> anyhow::Result<Self> {
        let allowed = sched_getaffinity(THIS_PROCESS).context("cannot read which CPUs may be used")?;
        let cpus = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu).unwrap_or(false));
        // Hardware threads of one core belong together.
        let mut cores: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for cpu in cpus {
            cores.entry(first_sibling(cpu)).or_default().push(cpu);
        }
        Ok(Self::divide(cores.into_values().collect()))
    }

    fn divide(mut cores: Vec<Vec<usize>>) -> Self {
        if cores.len() < 2 {
            return Self::default();
        }
        let far = cores.split_off(cores.len() / 2).concat();
        Self { near: cores.concat(), far }
    }
}

/// The first CPU of a CPU's core, itself where the kernel does not say.
fn first_sibling(cpu: usize) -> usize {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split(|c: char| !c.is_ascii_digit()).next().and_then(|first| first.parse().ok()).unwrap_or(cpu)
}

/// This process, and all its threads to come, stay on `cpus`.
pub(crate) fn stay_on(cpus: &[usize]) -> anyhow::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu)?;
    }
    sched_setaffinity(THIS_PROCESS, &set).with_context(|| format!("cannot stay on CPUs {cpus:?}"))
}

/// The machine in a line, for whoever compares figures.
pub(crate) fn describe(placement: &CpuPlacement) -> String {
    let [cpus, kernel] = machine();
    let CpuPlacement { near, far } = placement;
    let place = if near.is_empty() {
        "the kernel places the two ends".to_owned()
    } else {
        format!("one end on CPUs {near:?}, the other on {far:?}")
    };
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let busy = load.parse().is_ok_and(|load: f64| load > 0.5);
    let warning = if busy {
        format!("; BUSY with other things (load {load}): do not trust the figures")
    } else {
        String::new()
    };
    format!("{cpus}, {kernel}; {place}{warning}")
}

/// The CPUs, and the kernel.
pub(crate) fn machine() -> [String; 2] {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unnamed CPUs", |(_, name)| name.trim());
    let cpus = info.lines().filter(|line| line.starts_with("processor")).count();
    [format!("{cpus} x {model}"), format!("Linux {}", read("/proc/sys/kernel/osrelease").trim())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_divided_and_one_is_shared() {
        let placement = |near: &[usize], far: &[usize]| CpuPlacement { near: near.into(), far: far.into() };
        assert_eq!(CpuPlacement::divide(vec![vec![0], vec![1]]), placement(&[0], &[1]));
        assert_eq!(
            CpuPlacement::divide(vec![vec![0, 4], vec![1, 5], vec![2, 6]]),
            placement(&[0, 4], &[1, 5, 2, 6])
        );
        assert_eq!(CpuPlacement::divide(vec![vec![0, 1]]), CpuPlacement::default());
        CpuPlacement::halves().unwrap();
    }
}
