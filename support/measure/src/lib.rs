//! Figures of measurements, and how they are told.
//!
//! | for | see |
//! |---|---|
//! | rows, targets and verdicts | [`row`] |
//! | tables for people, JSON for programs | [`TextTable`], [`Json`] |
//! | numbers as text | [`number`], [`bytes`], [`rate`] |
//! | median and spread of repeats | [`stats`] |
//! | energy that a machine uses | [`energy`] |

pub mod energy;
mod figures;
mod output;
pub mod row;
pub mod stats;
mod text_table;

pub use figures::{bytes, number, rate};
pub use output::Json;
pub use text_table::{Column, TextTable, line};
