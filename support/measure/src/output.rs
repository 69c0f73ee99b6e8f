//! Where results go: a table for people, a file for programs.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use naa_files::{CannotWrite, Destination};
use serde::Serialize;

use crate::row::Row;

/// The file of `--json`, looked at before anything is done.
#[derive(Debug)]
pub enum Json {
    Stdout,
    File(Destination),
    /// A device or a pipe.
    Special(File, PathBuf),
}

impl Json {
    /// # Errors
    /// If the file cannot be written.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let destination = Destination::new(path)?;
        if !destination.is_file() {
            let file = destination.open_special().map_err(|why| CannotWrite::new(path, why))?;
            return Ok(Self::Special(file, path.into()));
        }
        // The former file stays until the new one is complete.
        drop(destination.begin().map_err(|why| CannotWrite::new(path, why))?);
        Ok(Self::File(destination))
    }

    /// # Errors
    /// If it cannot be written.
    pub fn write(self, report: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(report)?;
        match self {
            Self::Stdout => Ok(writeln!(io::stdout(), "{text}")?),
            Self::File(destination) => Ok(destination.replace(format!("{text}\n").as_bytes())?),
            Self::Special(mut file, path) => {
                writeln!(file, "{text}").with_context(|| format!("cannot write {}", path.display()))
            }
        }
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
pub fn number(value: f64) -> String {
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
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_report_replaces_a_file_as_a_whole_and_follows_no_link() {
        let folder = std::env::temp_dir().join(format!("naa-report-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (path, victim) = (folder.join("report.json"), folder.join("victim"));
        fs::write(&path, "old").unwrap();
        fs::write(&victim, "old").unwrap();
        drop(Json::open(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"old", "it stays until there is something to replace it");
        let json = Json::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(&victim, &path).unwrap();
        json.write(&[1]).unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&victim).unwrap()),
            (b"[\n  1\n]\n".to_vec(), b"old".to_vec())
        );
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn numbers_have_three_digits() {
        let texts = [0.0, 1234.5, 12.345, 1.2345, 0.12345, 0.012345].map(number);
        assert_eq!(texts, ["0", "1234", "12.3", "1.23", "0.123", "0.0123"]);
    }
}
