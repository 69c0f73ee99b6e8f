//! What processes cost.

use std::time::Duration;

use anyhow::Context as _;
use nix::time::{ClockId, clock_gettime};

/// CPU time of this process so far, user and system, all threads, in seconds.
pub(crate) fn time() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).context("cannot read the CPU time")?;
    Ok(Duration::from(time).as_secs_f64())
}

/// Resident memory of a process in KiB.
pub(crate) fn resident_kib(process: u32) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    number.with_context(|| format!("{path} has no VmRSS"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_both() {
        assert!(resident_kib(std::process::id()).unwrap() > 100.0);
        let before = time().unwrap();
        while time().unwrap() == before {}
    }
}
