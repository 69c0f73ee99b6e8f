//! Compiles the programs: each as C11 and as C++17, all warnings errors, with AddressSanitizer and
//! UndefinedBehaviorSanitizer. Those named `stress_*` measure memory, and are built plain.

use crate::{parallel, repo};
use anyhow::{Context, Result, bail, ensure};
use std::{
    fs,
    io::ErrorKind,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

const WARNINGS: &[&str] =
    &["-O1", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread", "-D_GNU_SOURCE"];
const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
/// Programs without rows, which other parts of the suite use.
const TOOLS: &[&str] = &["wire_host", "wire_server", "kill"];

pub(super) fn folder() -> PathBuf {
    repo::target_dir().join("capi")
}

struct Job {
    source: PathBuf,
    program: String,
    is_cpp: bool,
}

impl Job {
    fn new(source: &Path, program: String, is_cpp: bool) -> Self {
        Self { source: source.to_owned(), program, is_cpp }
    }

    fn run(&self) -> Result<()> {
        let mut command = Command::new(if self.is_cpp { "c++" } else { "cc" });
        command.arg(if self.is_cpp { "-std=c++17" } else { "-std=c11" }).args(WARNINGS);
        if !self.program.starts_with("stress_") {
            command.args(SANITIZERS);
        }
        command.arg("-I").arg(repo::root().join("bindings/capi/include"));
        // A source in C may be compiled as C++.
        command.args(if self.is_cpp { &["-x", "c++"][..] } else { &[] }).arg(&self.source);
        command.args(["-x", "none", "-o"]).arg(folder().join(&self.program));
        command.arg("-L").arg(folder()).args(["-lnaa", "-lm"]);
        command.arg(format!("-Wl,-rpath,{}", folder().display()));
        let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} does not build:\n{said}", self.source.display());
        Ok(())
    }
}

/// What is to be built of one source.
fn jobs(source: &Path) -> Result<Vec<Job>> {
    let name = source.file_stem().and_then(|name| name.to_str()).context("a source without a name")?;
    Ok(match source.extension().and_then(|extension| extension.to_str()) {
        Some("c") if TOOLS.contains(&name) => vec![Job::new(source, name.to_owned(), false)],
        Some("c") => {
            vec![Job::new(source, format!("{name}-c"), false), Job::new(source, format!("{name}-cpp"), true)]
        }
        Some("cpp") => vec![Job::new(source, format!("{name}-cpp"), true)],
        _ => Vec::new(),
    })
}

/// The library under the names that linkers and programs look for.
fn link_library() -> Result<()> {
    let (folder, library) = (folder(), repo::release_program("libnaa_c.so"));
    ensure!(library.exists(), "there is no {}", library.display());
    // Programs of sources that are gone would be run.
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            bail!("cannot empty {}: {error}", folder.display())
        }
        _ => {}
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for name in ["libnaa.so", "libnaa.so.0"] {
        symlink(&library, folder.join(name)).with_context(|| format!("cannot link {name}"))?;
    }
    Ok(())
}

pub(super) fn build() -> Result<()> {
    link_library()?;
    let sources = repo::root().join("tests/capi");
    let entries = fs::read_dir(&sources).with_context(|| format!("cannot read {}", sources.display()))?;
    let mut all = Vec::new();
    for entry in entries {
        all.extend(jobs(&entry.context("cannot read a folder")?.path())?);
    }
    ensure!(!all.is_empty(), "no programs in {}", sources.display());
    parallel::side_by_side(&all, Job::run).map(drop)
}
