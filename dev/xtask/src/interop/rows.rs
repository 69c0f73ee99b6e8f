//! What machines say: rows of cases, and what the kernel's device counted.

use super::plan::{Boot, Step};
use crate::table;
use anyhow::{Context, Result};
use serde::Serialize;
use std::{fs, path::Path, process::ExitCode};

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) label: String,
    pub(crate) case: String,
    /// "ok", or why not.
    pub(crate) result: String,
    pub(crate) seconds: f64,
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn passed(&self) -> bool {
        self.result == "ok"
    }

    /// One that the machine did not write.
    pub(crate) fn ours(label: &str, case: &str, result: String) -> Self {
        Self { label: label.to_owned(), case: case.to_owned(), result, seconds: 0.0, note: String::new() }
    }

    /// A line `ROW|LABEL|CASE|RESULT|SECONDS|NOTE`.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let mut cells = line.strip_prefix("ROW|")?.split('|').map(str::to_owned);
        let (label, case, result) = (cells.next()?, cells.next()?, cells.next()?);
        let seconds = cells.next()?.parse().ok()?;
        Some(Self { label, case, result, seconds, note: cells.next().unwrap_or_default() })
    }
}

/// Rows of all steps of a boot, one for a step without any, and one for counters that should have stayed 0.
pub(super) fn of(boot: &Boot, output: &str) -> Vec<Row> {
    let said: Vec<_> = output.lines().filter_map(Row::read).collect();
    let mut rows = Vec::new();
    for step in &boot.steps {
        let label = step.label();
        let own: Vec<_> = said.iter().filter(|row| row.label == label).cloned().collect();
        if own.is_empty() {
            rows.push(Row::ours(&label, "all", "did not run".to_owned()));
        }
        rows.extend(own);
        rows.extend(counted(boot, step, &label, output));
    }
    rows
}

/// A line `HW|LABEL|COUNTER+N ...`.
fn counted(boot: &Boot, step: &Step, label: &str, output: &str) -> Option<Row> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("HW|")?.split_once('|'));
    let counters = lines.filter(|(of, _)| *of == label).map(|(_, counters)| counters.trim()).next()?;
    let mut row = Row::ours(label, "the kernel's counters of errors and retries", "ok".to_owned());
    let faults: Vec<_> = counters.split(' ').filter(|counter| is_fault(counter)).collect();
    if step.counts_nothing() && boot.buffers && !faults.is_empty() {
        row.result = format!("counted {}", faults.join(" "));
    }
    row.note = counters.to_owned();
    Some(row)
}

/// A peer that hears nothing for much longer than usual probes by sending its last packet again; an emulated processor
/// stands still for so long now and then. So duplicates are told of only.
fn is_fault(counter: &str) -> bool {
    !counter.is_empty() && !counter.starts_with("duplicate_request+")
}

/// Prints what the rows of a suite come to, with a line for `each` label, and those that failed. Writes all of them as JSON, if
/// there is a file for that.
pub(crate) fn report(suite: &str, each: &str, rows: &[Row], json: Option<&Path>) -> Result<ExitCode> {
    println!();
    let failed: Vec<_> = rows.iter().filter(|row| !row.passed()).collect();
    let heading = [each, "passed", "result", "seconds"].map(str::to_owned);
    table::print(&[heading].into_iter().chain(summary(rows)).collect::<Vec<_>>());
    for row in &failed {
        println!("FAILED: {}: {}: {}", row.label, row.case, row.result);
    }
    println!("{suite}: {} rows, {} failed", rows.len(), failed.len());
    if let Some(path) = json {
        let text = serde_json::to_string_pretty(rows).context("cannot write rows as JSON")?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a label's rows come to: how many passed, and the time they took.
fn summary(rows: &[Row]) -> Vec<[String; 4]> {
    let mut labels: Vec<&str> = Vec::new();
    for row in rows {
        if !labels.contains(&row.label.as_str()) {
            labels.push(&row.label);
        }
    }
    let line = |label: &&str| {
        let own: Vec<_> = rows.iter().filter(|row| row.label == **label).collect();
        let passed = own.iter().filter(|row| row.passed()).count();
        let result = if passed == own.len() { "ok".to_owned() } else { "FAILED".to_owned() };
        let seconds: f64 = own.iter().map(|row| row.seconds).sum();
        [(*label).to_owned(), format!("{passed} of {}", own.len()), result, format!("{seconds:.1}")]
    };
    labels.iter().map(line).collect()
}
