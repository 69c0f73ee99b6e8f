//! Figures of measurements, and their output.
//!
//! | for | see |
//! |---|---|
//! | rows, targets and verdicts | [`row`] |
//! | tables for people, JSON for programs | [`TextTable`], [`Json`] |
//! | numbers as text | [`number`], [`bytes`], [`rate`] |
//! | median and spread of repeats | [`stats`] |
//! | energy that a machine uses | [`energy`] |
//!
//! This example compares two programs in 15 repeats, and prints a table with one row:
//!
//! ```rust
//! use naa_measure::{Column, TextTable, number, row::{LEAST_REPEATS, Row, Target}};
//!
//! # fn main() -> anyhow::Result<()> {
//! // Each pair has our figure and the figure of the reference from one repeat.
//! let pairs: Vec<_> = (0..LEAST_REPEATS).map(|repeat| (9.0 + f64::from(repeat) / 100.0, 10.0)).collect();
//! let row = Row::compared("write, 1 MiB", "GiB/s", Target::AtLeast(0.8), &pairs);
//! assert_eq!(row.verdict(), "pass");
//! let mut table = TextTable::new([Column::Left(20), Column::Right(6)]);
//! table.row(["measure", "ratio", "verdict"])?;
//! table.row([row.measure.as_str(), &row.ratio.map_or("-".into(), number), row.verdict()])?;
//! # Ok(())
//! # }
//! ```
#![warn(missing_docs)]

pub mod energy;
mod figures;
mod output;
pub mod row;
pub mod stats;
mod text_table;

pub use figures::{bytes, number, rate};
pub use output::Json;
pub use text_table::{Column, TextTable, line};
