//! `interop`: the session suite between every pair of providers, over good networks and bad ones, in machines with a
//! kernel soft-RoCE device.

mod plan;
pub(crate) mod rows;

use crate::{
    check_icrc,
    packages::{self, User},
    repo, rxe_vm,
};
use anyhow::{Context, Result, ensure};
use plan::Boot;
use rows::Row;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

const GUEST: &str = include_str!("../interop/guest.sh");
/// More than both ends of a call of 256 MiB and their copies need.
const MEMORY: u32 = 3072;
const BUFFERS: u64 = 8 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Each pairing once, in one machine
    #[arg(long)]
    quick: bool,
    /// Steps whose label contains TEXT
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Run the K-th of N parts only, which take about as long as each other
    #[arg(long, value_name = "K/N", value_parser = part)]
    part: Option<Part>,
    /// Write all rows as JSON, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Say what would run
    #[arg(long)]
    list: bool,
}

/// The `number`-th of `of` parts, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    number: u32,
    of: u32,
}

fn part(text: &str) -> Result<Part, String> {
    let (number, of) = text.split_once('/').unwrap_or_default();
    match (number.parse(), of.parse()) {
        (Ok(number), Ok(of)) if (1..=of).contains(&number) => Ok(Part { number, of }),
        _ => Err("write K/N, such as 2/4".to_owned()),
    }
}

pub(crate) fn run(options: &Args) -> Result<ExitCode> {
    let boots = wanted(options)?;
    if options.list {
        boots.iter().flat_map(|boot| &boot.steps).for_each(|step| println!("{}", step.label()));
        return Ok(ExitCode::SUCCESS);
    }
    packages::ensure(User::Interop).map_err(anyhow::Error::msg)?;
    repo::build_release()?;
    let mut rows = Vec::new();
    for boot in &boots {
        println!("== {}", boot.name);
        rows.extend(perform(boot)?);
    }
    rows::report("interop", "step", &rows, options.json.as_deref())
}

fn wanted(options: &Args) -> Result<Vec<Boot>> {
    let mut boots = if options.quick { plan::quick() } else { plan::whole() };
    if let Some(only) = &options.only {
        for boot in &mut boots {
            boot.steps.retain(|step| step.label().contains(only.as_str()));
        }
        boots.retain(|boot| !boot.steps.is_empty());
    }
    if let Some(part) = options.part {
        keep_part(&mut boots, part);
    }
    ensure!(!boots.is_empty(), "no step has that in its label; --list shows all");
    Ok(boots)
}

fn keep_part(boots: &mut Vec<Boot>, part: Part) {
    let all: u32 = boots.iter().flat_map(|boot| &boot.steps).map(plan::Step::seconds).sum();
    let mut before = 0;
    for boot in boots.iter_mut() {
        boot.steps.retain(|step| {
            // A step belongs to the part in which its middle lies.
            let middle = u64::from(before + step.seconds() / 2);
            before += step.seconds();
            middle * u64::from(part.of) / u64::from(all.max(1)) == u64::from(part.number - 1)
        });
    }
    boots.retain(|boot| !boot.steps.is_empty());
}

fn folder() -> PathBuf {
    repo::target_dir().join("interop")
}

fn write(name: &str, text: &str) -> Result<String> {
    let path = folder().join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_string_lossy().into_owned())
}

fn perform(boot: &Boot) -> Result<Vec<Row>> {
    fs::create_dir_all(folder()).with_context(|| format!("cannot make {}", folder().display()))?;
    let file = boot.name.replace(' ', "-");
    let pcap = boot.capture.then(|| folder().join(format!("{file}.pcap")));
    let machine = machine(boot, &file, pcap.clone())?;
    let (status, output) = rxe_vm::recorded(&machine, true)?;
    let mut rows = rows::of(boot, &String::from_utf8_lossy(&output));
    if status != 0 {
        rows.push(Row::ours(boot.name, "the machine", format!("exit status {status}")));
    }
    if let Some(pcap) = pcap.filter(|_| status == 0) {
        rows.extend(check(boot, &pcap)?);
    }
    Ok(rows)
}

fn machine(boot: &Boot, file: &str, pcap: Option<PathBuf>) -> Result<rxe_vm::Args> {
    let script = write("guest.sh", GUEST)?;
    let steps: String = boot.steps.iter().map(|step| step.line() + "\n").collect();
    let plan = write(&format!("{file}.plan"), &steps)?;
    let program = |name| repo::release_program(name).to_string_lossy().into_owned();
    let command = [
        "bash".to_owned(),
        script,
        program("suite"),
        program("naa"),
        program("bridge"),
        boot.path_mtu.to_string(),
        plan,
    ];
    let names = ["rmem_max", "rmem_default", "wmem_max", "wmem_default"];
    let settings = names.iter().map(|name| format!("net.core.{name}={BUFFERS}"));
    let serve = format!(
        "taskset -c 0 {0} serve --bind 10.9.0.3 --provider verbs & \
         taskset -c 0 {0} serve --bind fd00:9::3 --provider verbs",
        program("suite")
    );
    Ok(rxe_vm::Args {
        memory: MEMORY,
        limit: 120 + boot.steps.iter().map(|step| u64::from(step.limit())).sum::<u64>(),
        pcap,
        mtu: boot.mtu,
        two: boot.two,
        peer: boot.two.then_some(serve),
        sysctl: if boot.buffers { settings.collect() } else { Vec::new() },
        command: command.to_vec(),
        ..rxe_vm::Args::default()
    })
}

fn check(boot: &Boot, pcap: &Path) -> Result<Vec<Row>> {
    let report = check_icrc::check_file(pcap)?;
    println!("{}: {report}", pcap.display());
    let result = if report.passed() { "ok".to_owned() } else { report.to_string() };
    Ok(vec![Row::ours(&format!("capture, {}", boot.name), "packets", result)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::INTEROP_PART;

    #[test]
    fn parts_have_every_step_once_and_take_about_as_long() {
        let labels = |boots: &[Boot]| -> Vec<_> {
            boots.iter().flat_map(|boot| &boot.steps).map(|step| (step.label(), step.seconds())).collect()
        };
        let whole = labels(&plan::whole());
        let all: u32 = whole.iter().map(|(_, seconds)| seconds).sum();
        let mut found = Vec::new();
        for number in 1..=12 {
            let mut boots = plan::whole();
            keep_part(&mut boots, Part { number, of: 12 });
            let part = labels(&boots);
            let seconds: u32 = part.iter().map(|(_, seconds)| seconds).sum();
            assert!(seconds > 0 && seconds + 60 < INTEROP_PART, "part {number}: {seconds} of {all} s");
            let bridges = part.iter().filter(|(label, _)| label.contains("bridge")).count();
            assert!(
                bridges <= 1,
                "part {number} has {bridges} bridges, which exceed its time on a slow machine"
            );
            found.extend(part);
        }
        assert_eq!(found, whole);
    }

    #[test]
    fn parts_are_written_with_a_slash() {
        assert_eq!(part("2/4"), Ok(Part { number: 2, of: 4 }));
        for bad in ["", "2", "0/4", "5/4", "a/b"] {
            assert!(part(bad).is_err(), "{bad}");
        }
    }
}
