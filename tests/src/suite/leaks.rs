//! What a process holds, in itself and in the kernel; and how it is stopped for a while.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize};

/// What a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) files: usize,
    pub(super) threads: usize,
    pub(super) rss_kib: u64,
    /// Resources of the Linux kernel's RDMA devices on the whole machine, as `rdma resource show` counts them; empty if
    /// there is no such device.
    pub(super) kernel: BTreeMap<String, u64>,
}

impl Usage {
    pub(super) fn now() -> Self {
        let entries = |folder: &str| fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            files: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            rss_kib: rss_kib(),
            kernel: kernel(),
        }
    }
}

/// The kernel looks at each page for this file. `VmRSS` is a sum that each thread adds to late: it left out a mapped
/// completion queue of 4 MiB for minutes.
fn rss_kib() -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    let line = maps.lines().find_map(|line| line.strip_prefix("Rss:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Lines like `0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0`, summed over devices.
fn kernel() -> BTreeMap<String, u64> {
    let mut command = Command::new("rdma");
    command.args(["resource", "show"]).stdin(Stdio::null()).stderr(Stdio::null());
    let text = command.output().map_or_else(|_| Vec::new(), |output| output.stdout);
    let text = String::from_utf8_lossy(&text);
    let mut sums = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().skip(2).collect();
        for pair in words.chunks_exact(2) {
            if let Ok(count) = pair[1].parse::<u64>() {
                *sums.entry(pair[0].to_owned()).or_default() += count;
            }
        }
    }
    sums
}

/// Has this process stopped for `time`, shortly after this returns.
pub(super) fn pause(time: Duration) -> Result<(), String> {
    let line = format!(
        "sleep 0.2; kill -STOP {pid}; sleep {seconds}; kill -CONT {pid}",
        pid = std::process::id(),
        seconds = time.as_secs_f64(),
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::null());
    let child = shell.spawn().map_err(|e| format!("cannot run sh: {e}"))?;
    // Reaped when it ends.
    std::thread::spawn(move || {
        let mut child = child;
        child.wait()
    });
    Ok(())
}
