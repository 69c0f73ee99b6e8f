//! Measures which lines of the RTL the simulation tests reach, and which signals they change.

use super::{Rows, limits::COVERAGE};
use crate::repo;
use anyhow::{Context, Result, ensure};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The number of random packets of each test. It is small, because models that count are slow.
pub(super) const PACKETS: u64 = 20_000;

/// What the tests did in a file.
#[derive(Debug, Default)]
struct Reached {
    /// How often each line was reached.
    lines: BTreeMap<u64, u64>,
    /// How often each bit of each signal rose, and how often it fell. The key is the line of the signal, its name and the direction.
    toggles: BTreeMap<(u64, String), u64>,
}

/// Makes an empty folder for the files in which the models write what they counted.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = repo::target_dir().join("fpga/coverage");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Adds rows with the shares of lines and of toggles of each file, and prints the lines that were never reached.
pub(super) fn check(folder: &Path, rows: &mut Rows) -> Result<()> {
    let mut files = BTreeMap::<String, Reached>::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in text.lines().filter(|line| line.starts_with("C '")) {
            add(line, &mut files).with_context(|| format!("{}: {line}", path.display()))?;
        }
    }
    let limits: BTreeSet<_> = COVERAGE.iter().map(|floor| floor.file).collect();
    let unknown: Vec<_> = files.keys().filter(|file| !limits.contains(file.as_str())).collect();
    ensure!(unknown.is_empty(), "dev/xtask/src/fpga/limits.rs has no floor for the coverage of {unknown:?}");
    for floor in COVERAGE {
        let reached = files.get(floor.file).with_context(|| format!("no test runs {}", floor.file))?;
        for (what, share, least) in [
            ("lines, %", percent(reached.lines.values()), floor.lines),
            ("toggles, %", percent(reached.toggles.values()), floor.toggles),
        ] {
            let result = if share >= least { "ok" } else { "FAILED" };
            let (is, limit) = (format!("{share:.1}"), least.to_string());
            rows.push([floor.file, what, &is, &limit, result].map(str::to_owned));
        }
        let never: Vec<_> = reached.lines.iter().filter(|(_, times)| **times == 0).collect();
        for (line, _) in never {
            println!("never reached: fpga/rtl/{}.sv:{line}", floor.file);
        }
    }
    Ok(())
}

/// The share of counters that are not 0.
fn percent<'a>(counters: impl ExactSizeIterator<Item = &'a u64>) -> f64 {
    let all = counters.len().max(1);
    100.0 * counters.filter(|times| **times > 0).count() as f64 / all as f64
}

/// Adds a counter of Verilator: `C 'FIELDS' TIMES`. Each field is the byte 1, a key, the byte 2 and a value.
///
/// # Source
/// Verilator's manual, "Coverage Data Format".
fn add(line: &str, files: &mut BTreeMap<String, Reached>) -> Result<()> {
    let fields = line.strip_prefix("C '").and_then(|line| line.rsplit_once("' "));
    let (fields, times) = fields.context("this is no counter")?;
    let times: u64 = times.trim().parse()?;
    let fields: BTreeMap<_, _> =
        fields.split('\u{1}').filter_map(|field| field.split_once('\u{2}')).collect();
    let field = |key: &str| fields.get(key).copied().with_context(|| format!("it has no field {key}"));
    let file = Path::new(field("f")?).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let reached = files.entry(file).or_default();
    let at: u64 = field("l")?.parse()?;
    if field("page")?.starts_with("v_toggle") {
        *reached.toggles.entry((at, field("o")?.to_owned())).or_default() += times;
    } else if let Ok(lines) = field("S") {
        for range in lines.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            for line in first.parse()?..=last.parse()? {
                *reached.lines.entry(line).or_default() += times;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_several_models_are_added() {
        let mut files = BTreeMap::new();
        for line in [
            "C '\u{1}f\u{2}a/b.sv\u{1}l\u{2}7\u{1}page\u{2}v_line/b\u{1}o\u{2}block\u{1}S\u{2}7-8,10' 0",
            "C '\u{1}f\u{2}a/b.sv\u{1}l\u{2}8\u{1}page\u{2}v_branch/b\u{1}o\u{2}if\u{1}S\u{2}8' 3",
            "C '\u{1}f\u{2}a/b.sv\u{1}l\u{2}2\u{1}page\u{2}v_toggle/b\u{1}o\u{2}x[0]:0->1' 0",
            "C '\u{1}f\u{2}b.sv\u{1}l\u{2}2\u{1}page\u{2}v_toggle/b\u{1}o\u{2}x[0]:0->1' 5",
        ] {
            add(line, &mut files).unwrap();
        }
        assert_eq!(files["b"].lines, BTreeMap::from([(7, 0), (8, 3), (10, 0)]));
        assert_eq!(percent(files["b"].toggles.values()), 100.0);
        assert!(add("C 'x' 1", &mut files).is_err());
    }
}
