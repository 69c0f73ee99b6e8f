//! `test`: every check and test in order, each with a limit, and a table at the end.

use crate::{
    bindings,
    packages::{self, User},
    repo, table,
};
use anyhow::{Context, Result};
use std::{
    env,
    ffi::OsString,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

/// What hangs ends then. On two idle cores, from a clean clone, a change is to be judged in 25 minutes; it takes 30.
const SHORT_LIMIT: Duration = Duration::from_secs(75 * 60);
const LONG_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// More seeds, the demonstration in full size, longer fuzzing, the whole matrix: about an hour
    #[arg(long)]
    long: bool,
}

#[derive(Debug, Clone, Copy)]
enum Program {
    Cargo,
    Xtask,
    Naa,
}

struct Step {
    name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
    /// Packages it cannot do without.
    user: Option<User>,
    /// `NAA_LONG=1`: tests have their full numbers.
    is_long: bool,
}

impl Step {
    const fn new(name: &'static str, program: Program, arguments: &'static [&'static str]) -> Self {
        Self { name, program, arguments, user: None, is_long: false }
    }

    const fn long(self) -> Self {
        Self { is_long: true, ..self }
    }

    const fn needs(self, user: User) -> Self {
        Self { user: Some(user), ..self }
    }
}

use Program::{Cargo, Naa, Xtask};

const CHECKS: &[Step] = &[
    Step::new("tidy", Xtask, &["tidy"]),
    Step::new("header", Xtask, &["header", "--check"]),
    Step::new("proto", Xtask, &["proto", "--check"]),
    // Release, as everything below, so that each crate is built once.
    Step::new(
        "clippy",
        Cargo,
        &["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"],
    ),
    Step::new("test", Cargo, &["test", "--workspace", "--release"]).needs(User::Capi),
    Step::new("build", Cargo, &["build", "--workspace", "--release"]),
    Step::new("loom", Xtask, &["loom"]),
    Step::new("deny", Cargo, &["deny", "check"]),
];

const SHORT: &[Step] = &[
    Step::new("sim", Xtask, &["sim", "--seeds", "1000"]),
    Step::new("hostile", Xtask, &["hostile", "--quick"]),
    Step::new("compat", Xtask, &["compat"]),
    Step::new("demo", Naa, &["demo"]),
    Step::new("demo ejfat", Naa, &["demo", "ejfat"]),
    Step::new("demo bridge", Naa, &["demo", "bridge"]),
    Step::new("install-test", Xtask, &["install-test"]).needs(User::Install),
    Step::new("capi", Xtask, &["capi"]).needs(User::Capi),
    Step::new("fortran", Xtask, &["bindings", "fortran"]).needs(User::Fortran),
    Step::new("python", Xtask, &["bindings", "python"]).needs(User::Python),
    Step::new("fuzz", Xtask, &["fuzz", "--seconds", "5"]).needs(User::Fuzz),
    Step::new("rping-matrix", Xtask, &["rping-matrix", "--quick"]).needs(User::RpingMatrix),
    Step::new("interop", Xtask, &["interop", "--quick"]).needs(User::Interop),
];

const LONG: &[Step] = &[
    // The fuzz step runs the seeds too; this does without libFuzzer.
    Step::new("fuzz-seeds", Cargo, &["test", "--release", "--manifest-path", "dev/fuzz/Cargo.toml"])
        .needs(User::Fuzz),
    Step::new("sim", Xtask, &["sim", "--seeds", "10000"]),
    Step::new("hostile", Xtask, &["hostile"]),
    Step::new("compat", Xtask, &["compat"]),
    Step::new("demo", Naa, &["demo", "--full"]),
    Step::new("demo ejfat", Naa, &["demo", "ejfat", "--events", "1000000"]),
    Step::new("demo bridge", Naa, &["demo", "bridge", "--events", "65000"]),
    Step::new("demo bridge, segment by segment", Naa, &["demo", "bridge", "--placing", "cut"]),
    Step::new("bridge", Cargo, &["test", "--release", "-p", "naa-tests", "--test", "bridge"]).long(),
    Step::new("install-test", Xtask, &["install-test", "--verbs"]).needs(User::Install),
    Step::new("capi", Xtask, &["capi", "--long", "--verbs"]).needs(User::Capi),
    Step::new("fortran", Xtask, &["bindings", "fortran"]).needs(User::Fortran),
    Step::new("python", Xtask, &["bindings", "python"]).needs(User::Python),
    Step::new("fuzz", Xtask, &["fuzz", "--seconds", "60"]).needs(User::Fuzz),
    Step::new("rping-matrix", Xtask, &["rping-matrix"]).needs(User::RpingMatrix),
    Step::new("interop", Xtask, &["interop"]).needs(User::Interop),
];

#[derive(Debug)]
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    // Read before a build replaces this program.
    let xtask = env::current_exe().context("cannot tell this program's path")?;
    let (rest, limit) = if options.long { (LONG, LONG_LIMIT) } else { (SHORT, SHORT_LIMIT) };
    let start = Instant::now();
    let mut rows = vec![["step", "seconds", "result"].map(str::to_owned)];
    let mut failed = 0;
    for step in CHECKS.iter().chain(rest) {
        println!("\n== {}", step.name);
        let begin = Instant::now();
        let outcome = perform(step, xtask.as_os_str().to_owned(), limit.saturating_sub(start.elapsed()))?;
        let time = table::seconds(begin.elapsed());
        let result = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
            Outcome::Failed(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        println!("-- {}: {time} s, {result}", step.name);
        rows.push([step.name.to_owned(), time, result]);
    }
    println!();
    rows.push(["all".to_owned(), table::seconds(start.elapsed()), format!("{failed} failed")]);
    table::print(&rows);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn perform(step: &Step, xtask: OsString, left: Duration) -> Result<Outcome> {
    if let Some(why) = missing(step) {
        return Ok(Outcome::Skipped(why));
    }
    if left < Duration::from_secs(1) {
        return Ok(Outcome::Failed("no time left".to_owned()));
    }
    let program = match step.program {
        Cargo => repo::cargo().get_program().to_owned(),
        Xtask => xtask,
        Naa => repo::release_program("naa").into_os_string(),
    };
    let status = Command::new("timeout")
        .args(["-k", "10", &left.as_secs().to_string()])
        .arg(program)
        .args(step.arguments)
        .current_dir(repo::root())
        .env("CARGO_TARGET_DIR", repo::target_dir())
        // Of use to the next build only, and half as large again as all the rest.
        .env("CARGO_INCREMENTAL", "0")
        .env("NAA_LONG", if step.is_long { "1" } else { "0" })
        .status()
        .context("cannot run timeout (Debian package coreutils)")?;
    Ok(match status.code() {
        Some(0) => Outcome::Passed,
        Some(code) if code == i32::from(bindings::SKIPPED) => Outcome::Skipped("see above".to_owned()),
        Some(124 | 137) => Outcome::Failed("time is up".to_owned()),
        _ => Outcome::Failed(status.to_string()),
    })
}

/// Why the step cannot run here.
fn missing(step: &Step) -> Option<String> {
    if step.name == "deny" && !has_cargo_deny() {
        return Some("cargo-deny is not installed (cargo install --locked cargo-deny)".to_owned());
    }
    packages::ensure(step.user?).err()
}

fn has_cargo_deny() -> bool {
    repo::cargo().args(["deny", "--version"]).output().is_ok_and(|output| output.status.success())
}
