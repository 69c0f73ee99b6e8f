//! Figures of measurements, and how they are told.
//!
//! | for | see |
//! |---|---|
//! | rows, targets and verdicts | [`row`] |
//! | tables for people, JSON for programs | [`Table`], [`Json`] |
//! | median and spread of repeats | [`stats`] |
//! | energy that a machine uses | [`energy`] |

pub mod energy;
mod output;
pub mod row;
pub mod stats;

pub use output::{Json, Table, number};
