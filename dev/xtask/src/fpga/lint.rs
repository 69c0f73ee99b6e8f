//! Checks the RTL for warnings of Verilator, and its format with verible.

use super::{
    limits::{DESIGNS, Design},
    proofs::PROOFS,
};
use crate::{repo, venv::Venv};
use anyhow::{Context, Result, ensure};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Options of verible's formatter: as little alignment as it can do.
const FORMAT: &[&str] = &[
    "--column_limit=130",
    "--assignment_statement_alignment=flush-left",
    "--case_items_alignment=flush-left",
    "--enum_assignment_statement_alignment=flush-left",
    "--formal_parameters_alignment=flush-left",
    "--module_net_variable_alignment=flush-left",
    "--named_parameter_alignment=flush-left",
    "--named_port_alignment=flush-left",
    "--port_declarations_alignment=flush-left",
    "--struct_union_members_alignment=flush-left",
];

/// Warnings of Verilator that are switched off for harnesses: a register with an initial value tells them which cycle is the first, and they
/// look at only a part of each output and of each package.
const OF_HARNESSES: &[&str] = &["-Wno-PROCASSINIT", "-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM"];

pub(super) fn run(tools: &Venv) -> Result<()> {
    let [rtl, formal] = ["fpga/rtl", "fpga/formal"].map(|folder| repo::root().join(folder));
    for file in files(&rtl)?.into_iter().chain(files(&formal)?) {
        let mut format = Command::new(tools.program("verible-verilog-format"));
        format.args(FORMAT).arg("--verify").arg(&file);
        let remedy = format!("{} is not formatted; format it with: {}", file.display(), remedy(&file));
        ensure!(succeeds(&mut format)?, remedy);
    }
    for Design { top, .. } in DESIGNS {
        verilate(tools, &[&rtl], top, &[])?;
    }
    let harnesses: BTreeSet<_> = PROOFS.iter().map(|proof| proof.harness).collect();
    harnesses.iter().try_for_each(|name| verilate(tools, &[&rtl, &formal], name, OF_HARNESSES))
}

/// Fails if Verilator warns of a module.
fn verilate(tools: &Venv, folders: &[&Path], name: &str, options: &[&str]) -> Result<()> {
    let mut verilator = tools.script("verilator-cli");
    verilator.args(["--lint-only", "-Wall", "-Wpedantic", "--quiet", "--top-module", name]).args(options);
    verilator.args(naa_fpga::sources(folders, name)?);
    ensure!(succeeds(&mut verilator)?, "Verilator warns of {name}, see above");
    Ok(())
}

fn remedy(file: &Path) -> String {
    let program = "target/fpga/tools/bin/verible-verilog-format";
    format!("{program} {} --inplace {}", FORMAT.join(" "), file.display())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Whether a tool ends well. If not, its output is printed.
fn succeeds(command: &mut Command) -> Result<bool> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}
