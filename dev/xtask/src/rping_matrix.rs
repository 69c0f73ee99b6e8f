//! `rping-matrix`: `naa rping` and rdma-core's rping on kernel soft-RoCE against each other. The kernel is the
//! referee of what this project puts on the wire.

use crate::{
    check_icrc,
    packages::{self, User},
    repo, rxe_vm, table,
};
use anyhow::{Context, Result};
use std::{fs, path::Path, process::ExitCode};

const GUEST: &str = include_str!("../rping-matrix.sh");

/// MTU of the link, and the path MTU that the connection manager makes of it.
const MTUS: [(u32, u32); 2] = [(1500, 1024), (4200, 4096)];
/// Within a packet, exactly one of either path MTU, with a short last packet, the largest of rping (and a pad byte).
const SIZES: &str = "64 1024 4096 5000 65535";
const ROUNDS: u32 = 200;
const QUICK_SIZES: &str = "64 5000";
const QUICK_ROUNDS: u32 = 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Two sizes and 20 rounds instead of five and 200
    #[arg(long)]
    quick: bool,
    /// Let rdma-core's rping stand in for ours: tests the matrix itself
    #[arg(long)]
    stand_in: bool,
}

struct Row {
    name: String,
    result: String,
    seconds: String,
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    packages::ensure(User::RpingMatrix).map_err(anyhow::Error::msg)?;
    let naa = repo::release_program("naa");
    if !options.stand_in {
        repo::build_release()?;
    }
    let naa = if options.stand_in { Path::new("") } else { naa.as_path() };
    let mut rows = Vec::new();
    for (mtu, path_mtu) in MTUS {
        println!("== path MTU {path_mtu}");
        rows.extend(boot(options, naa, mtu, path_mtu)?);
    }
    println!();
    let heading = ["row", "result", "seconds"].map(str::to_owned);
    let body = rows.iter().map(|row| [row.name.clone(), row.result.clone(), row.seconds.clone()]);
    table::print(&[heading].into_iter().chain(body).collect::<Vec<_>>());
    let failed = rows.iter().filter(|row| row.result != "ok").count();
    println!("rping-matrix: {} rows, {failed} failed", rows.len());
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All rows of one MTU. A row for the capture comes last.
fn boot(options: &Args, naa: &Path, mtu: u32, path_mtu: u32) -> Result<Vec<Row>> {
    let folder = repo::target_dir().join("rping-matrix");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let script = folder.join("guest.sh");
    fs::write(&script, GUEST).with_context(|| format!("cannot write {}", script.display()))?;
    let (sizes, rounds) = if options.quick { (QUICK_SIZES, QUICK_ROUNDS) } else { (SIZES, ROUNDS) };
    let pcap = (!options.stand_in).then(|| folder.join(format!("path-mtu-{path_mtu}.pcap")));
    let words = ["bash", &script.to_string_lossy(), &naa.to_string_lossy(), sizes, &rounds.to_string()];
    let machine = rxe_vm::Args {
        limit: if options.quick { 300 } else { 1800 },
        pcap: pcap.clone(),
        mtu,
        command: words.into_iter().map(str::to_owned).chain([path_mtu.to_string()]).collect(),
        ..Default::default()
    };
    let (status, output) = rxe_vm::recorded(&machine, true)?;
    let mut rows: Vec<_> = String::from_utf8_lossy(&output).lines().filter_map(row).collect();
    let expected = 2 * 2 * (sizes.split(' ').count() + 2);
    if status != 0 || rows.len() != expected {
        let name = format!("all rows of path MTU {path_mtu}");
        let result = format!("{} of {expected} rows, exit status {status}", rows.len());
        rows.push(Row { name, result, seconds: String::new() });
    }
    if let Some(pcap) = pcap {
        rows.push(check(&pcap, path_mtu)?);
    }
    Ok(rows)
}

/// A line `ROW|NAME|RESULT|SECONDS` of the guest's script.
fn row(line: &str) -> Option<Row> {
    let mut cells = line.strip_prefix("ROW|")?.split('|').map(str::to_owned);
    Some(Row { name: cells.next()?, result: cells.next()?, seconds: cells.next()? })
}

fn check(pcap: &Path, path_mtu: u32) -> Result<Row> {
    let report = check_icrc::check_file(pcap)?;
    println!("{}: {report}", pcap.display());
    let result = if report.passed() { "ok".to_owned() } else { report.to_string() };
    Ok(Row {
        name: format!("ICRC of {} packets, path MTU {path_mtu}", report.checked),
        result,
        seconds: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let row = row("ROW|ours -> kernel, IPv4|client exit status 1|2.5").expect("a row");
        assert_eq!((row.result.as_str(), row.seconds.as_str()), ("client exit status 1", "2.5"));
        assert!(super::row("--- last lines").is_none());
    }
}
