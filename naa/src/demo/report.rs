//! What reports of demonstrations of events have in common.

use std::{collections::HashSet, path::Path};

use anyhow::ensure;
use naa_measure::{Json, TextTable};
use serde::Serialize;

use super::nodes::Ended;

pub(super) trait DemoReport: Serialize {
    /// Whether all is as it should be.
    fn verified(&self) -> bool;

    fn print(&self, table: &TextTable) -> anyhow::Result<()>;
}

/// Runs a demonstration, prints `note` before and the report after it, and writes the report to the file `json`. The last line is
/// `right` if the report is verified, else `wrong` is the error.
pub(super) fn run<R: DemoReport>(
    json: Option<&Path>,
    note: Option<String>,
    demonstration: impl FnOnce(&TextTable) -> anyhow::Result<R>,
    (right, wrong): (&str, &str),
) -> anyhow::Result<()> {
    let json = json.map(Json::open).transpose()?;
    let table = TextTable::default().on_stderr(matches!(json, Some(Json::Stdout)));
    note.map_or(Ok(()), |note| table.line(&note))?;
    let report = demonstration(&table)?;
    report.print(&table)?;
    let verified = report.verified();
    if let Some(json) = json {
        json.write(&report)?;
    }
    ensure!(verified, "{wrong}");
    table.line(right)
}

pub(super) fn yes(verified: bool) -> String {
    if verified { "yes" } else { "NO" }.to_owned()
}

/// Two numbers that should be the same.
#[derive(Debug, Serialize)]
pub(super) struct Sum {
    what: String,
    left: u64,
    right: u64,
    pub(super) verified: bool,
}

impl Sum {
    pub(super) fn new(what: &str, left: u64, right: u64) -> Self {
        Self { what: what.to_owned(), left, right, verified: left == right }
    }

    pub(super) fn print(sums: &[Self], table: &TextTable) -> anyhow::Result<()> {
        let rows = sums
            .iter()
            .map(|sum| [sum.what.clone(), sum.left.to_string(), sum.right.to_string(), yes(sum.verified)]);
        table.line(&TextTable::of(["sums", "", "", "verified"], rows))
    }
}

/// Returns the data id of a sender's first event, and the number of its streams.
pub(super) fn streams(sent: &Ended) -> (u16, usize) {
    let first = sent.events.first().map_or(0, |event| event.data_id);
    (first, sent.events.iter().map(|event| event.data_id).collect::<HashSet<_>>().len())
}

/// Prints a remedy if `lost`, a number of things, found the receive buffer of `receiver` full.
pub(super) fn print_overflows(
    table: &TextTable,
    (lost, things): (u64, &str),
    receiver: &str,
) -> anyhow::Result<()> {
    if lost == 0 {
        return Ok(());
    }
    table.line(&format!(
        "{lost} {things} found the {receiver}'s receive buffer full: lower --rate, or raise it with `sysctl \
         net.core.rmem_max=8388608`"
    ))
}
