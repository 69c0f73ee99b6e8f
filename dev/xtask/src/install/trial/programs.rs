//! The projects in `tests/install`: built against the prefix, and run.

use super::{Ground, Row, output, pkg_config};
use crate::{
    packages::{self, User},
    repo, rxe_vm,
};
use anyhow::{Context, Result, ensure};
use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

fn project(name: &str) -> PathBuf {
    repo::root().join("tests/install").join(name)
}

fn build_folder(ground: &Ground, name: &str) -> Result<PathBuf> {
    let folder = ground.folder.join("build").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Programs link with what is in the prefix, and nothing else tells them where it is.
fn make(ground: &Ground, name: &str) -> Result<()> {
    let out = build_folder(ground, name)?;
    let mut make = Command::new("make");
    make.arg("-C").arg(project(name)).arg(format!("OUT={}", out.display()));
    make.envs(pkg_config(&ground.prefix).get_envs().filter_map(|(key, value)| Some((key, value?))));
    output(&mut make).map(drop)
}

fn cmake(ground: &Ground, name: &str, folder: &str, more: &[&str]) -> Result<()> {
    let out = build_folder(ground, folder)?;
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(project(name)).arg("-B").arg(&out).args(more);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", ground.prefix.display()));
    output(&mut configure)?;
    output(Command::new("cmake").arg("--build").arg(&out)).map(drop)
}

/// Whether programs are bound to the shared library, by the name that stays the same from version to version.
fn needs(ground: &Ground, folder: &str, programs: &[&str], shared: bool) -> Result<()> {
    for name in programs {
        let program = ground.folder.join("build").join(folder).join(name);
        let dynamic = output(Command::new("readelf").args(["-d", "-W"]).arg(&program))?;
        let needs = dynamic.contains("Shared library: [libnaa.so.0]");
        ensure!(needs == shared, "{folder}/{name}: needs libnaa.so.0: {needs}");
    }
    Ok(())
}

pub(super) fn build_low_level(ground: &Ground) -> Result<String> {
    make(ground, "low-level")?;
    needs(ground, "low-level", &["poll", "server"], true)?;
    needs(ground, "low-level", &["poll-static", "poll-names"], false)?;
    Ok("shared, static, NAAICE's names".to_owned())
}

pub(super) fn build_cmake(ground: &Ground) -> Result<String> {
    cmake(ground, "cmake", "shared", &[])?;
    cmake(ground, "cmake", "static", &["-Dnaaice_USE_STATIC_LIBS=ON"])?;
    needs(ground, "shared", &["middleware", "server"], true)?;
    needs(ground, "static", &["middleware", "server"], false)?;
    Ok("shared, static".to_owned())
}

pub(super) fn build_native(ground: &Ground) -> Result<String> {
    make(ground, "native")?;
    cmake(ground, "native", "native", &[])?;
    needs(ground, "native", &["offload", "offload-shared"], true)?;
    needs(ground, "native", &["offload-static", "libtriple.so"], false)?;
    Ok("pkg-config, CMake".to_owned())
}

fn script(ground: &Ground, provider: &str, address: &str) -> Vec<String> {
    let paths = [project("run.sh"), ground.prefix.join("bin/naa"), ground.folder.join("build")];
    let paths = paths.iter().map(|path| path.to_string_lossy().into_owned());
    let words = [provider, address].map(str::to_owned);
    ["bash".to_owned()].into_iter().chain(paths).chain(words).collect()
}

/// In a network of their own, so that nothing else has the ports; where that is not allowed, in this one.
pub(super) fn run_embedded(ground: &Ground) -> Result<Vec<Row>> {
    let alone =
        ["-rn", "--pid", "--fork", "--kill-child", "bash", "-c", "ip link set lo up && exec \"$@\"", "bash"];
    let unshare = |program: &[String]| {
        let mut command = Command::new("unshare");
        command.args(alone).args(program);
        command
    };
    let script = script(ground, "embedded", "127.0.0.1");
    let probe = unshare(&["true".to_owned()]).stderr(Stdio::null()).status();
    let mut command = if probe.is_ok_and(|status| status.success()) {
        unshare(&script)
    } else {
        let mut command = Command::new(&script[0]);
        command.args(&script[1..]);
        command
    };
    let ran = command.stderr(Stdio::inherit()).output().context("cannot run bash")?;
    ensure!(ran.status.success(), "the programs' script: {}", ran.status);
    Ok(rows(&String::from_utf8_lossy(&ran.stdout)))
}

pub(super) fn run_verbs(ground: &Ground) -> Result<Vec<Row>> {
    packages::ensure(User::RxeVm).map_err(anyhow::Error::msg)?;
    let command = script(ground, "verbs", "10.9.0.1");
    let machine = rxe_vm::Args { limit: 600, command, ..rxe_vm::Args::default() };
    let (status, said) = rxe_vm::recorded(&machine, true)?;
    ensure!(status == 0, "the programs' script on soft-RoCE: exit status {status}");
    Ok(rows(&String::from_utf8_lossy(&said)))
}

/// The rows of all lines of the form `ROW|NAME|RESULT`.
fn rows(said: &str) -> Vec<Row> {
    let row = |line: &str| {
        let (name, result) = line.strip_prefix("ROW|")?.split_once('|')?;
        let result = if result == "ok" { result.to_owned() } else { format!("FAILED: {result}") };
        Some([name.to_owned(), result, String::new()])
    };
    said.lines().filter_map(row).collect()
}
