//! Plain text tables and durations.

use naa_measure::TextTable;
use std::time::Duration;

/// Prints rows in aligned columns; the first row is the heading.
pub(crate) fn print<const N: usize>(rows: &[[String; N]]) {
    if let [heading, rows @ ..] = rows {
        println!("{}", TextTable::of(heading, rows));
    }
}

/// Seconds with one decimal.
pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64())
}
