//! Where results go: a table for people, a file for programs.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde::Serialize;

use crate::row::Row;

/// The file of `--json`, opened before anything is done.
#[derive(Debug)]
pub enum Json {
    Stdout,
    File(File, PathBuf),
}

impl Json {
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        // What it has stays until there is something to replace it.
        let opened = File::options().write(true).create(true).truncate(false).open(path);
        let file = opened.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self::File(file, path.into()))
    }

    /// # Errors
    /// If it cannot be written.
    pub fn write(self, report: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report)?;
        let (mut file, path) = match self {
            Self::Stdout => return Ok(writeln!(io::stdout(), "{text}")?),
            Self::File(file, path) => (file, path),
        };
        // Pipes and devices have no length.
        let emptied = if path.is_file() { file.set_len(0) } else { Ok(()) };
        let written = emptied.and_then(|()| writeln!(file, "{text}"));
        written.with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Prints rows as they come, in columns of fixed width.
#[derive(Debug)]
pub struct Table {
    /// Standard output may belong to the JSON.
    pub on_stderr: bool,
}

impl Table {
    pub fn line(&self, text: &str) -> anyhow::Result<()> {
        let text = text.trim_end();
        if self.on_stderr {
            writeln!(io::stderr(), "{text}")?
        } else {
            writeln!(io::stdout(), "{text}")?
        };
        Ok(())
    }

    pub fn header(&self) -> anyhow::Result<()> {
        let names = ["ours", "reference", "unit", "ratio", "target", "aim", "spread", "verdict"];
        self.cells("measure", &names.map(str::to_owned), "remarks")
    }

    pub fn row(&self, row: &Row) -> anyhow::Result<()> {
        let cells = [
            row.ours.map_or("-".into(), number),
            row.reference.map_or("-".into(), number),
            row.unit.to_owned(),
            row.ratio.map_or("-".into(), number),
            row.target.to_string(),
            row.aim.map_or("-".into(), |aim| aim.to_string()),
            row.spread.map_or("-".into(), |spread| format!("{:.0} %", spread * 100.0)),
            row.verdict().to_owned(),
        ];
        self.cells(&row.measure, &cells, &row.remark)
    }

    fn cells(&self, measure: &str, cells: &[String; 8], remark: &str) -> anyhow::Result<()> {
        let [ours, reference, unit, ratio, target, aim, spread, verdict] = cells;
        self.line(&format!(
            "{measure:66}  {ours:>8}  {reference:>9}  {unit:8}  {ratio:>6}  {target:7}  {aim:7}  {spread:>6}  \
             {verdict:10}  {remark}"
        ))
    }
}

/// Three digits.
pub(crate) fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        v if v >= 0.01 => 4,
        _ => 5,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 1234.5, 12.345, 1.2345, 0.12345, 0.012345].map(number);
        assert_eq!(texts, ["0", "1234", "12.3", "1.23", "0.123", "0.0123"]);
    }
}
