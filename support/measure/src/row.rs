//! A line of the table: what was measured, and what is said about it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::{
    Column, TextTable, number,
    stats::{median, spread},
};

/// Where repeats differ by more than this, nothing can be said.
pub const MOST_SPREAD: f64 = 0.20;

/// Verdicts need so many repeats.
pub const LEAST_REPEATS: u32 = 15;

/// What a figure is held against: the ratio to the reference, or the figure itself where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The figure is to be at least this number.
    AtLeast(f64),
    /// The figure is to be at most this number.
    AtMost(f64),
    /// Only told.
    Report,
}

impl Target {
    /// Returns true if `value` meets the target. A target of the kind [`Target::Report`] is always met.
    pub fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
            Self::Report => true,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">= {least:?}"),
            Self::AtMost(most) => write!(f, "<= {most:?}"),
            Self::Report => f.write_str("report"),
        }
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A row of the table: a figure, its reference and its verdict. The names of the fields in JSON are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of what was measured.
    pub measure: String,
    /// Median over the repeats.
    pub ours: Option<f64>,
    /// The median of the reference over the repeats, or `None` if the row has no reference.
    pub reference: Option<f64>,
    /// The unit of `ours` and `reference`, as text for people.
    pub unit: &'static str,
    /// Median of the repeats' ratios of ours to the reference.
    pub ratio: Option<f64>,
    /// The target that decides the verdict.
    pub target: Target,
    /// The spread of the ratios, or of `ours` where there is no reference.
    pub spread: Option<f64>,
    /// `None` is no verdict: too few repeats, or too much spread. In a row without a target, the field says whether the
    /// value was measured.
    pub pass: Option<bool>,
    /// For people: what is hoped for, and what else there is to know.
    #[serde(skip)]
    pub aim: Option<Target>,
    /// The text in the last column of the table, which is empty if there is nothing to remark.
    #[serde(skip)]
    pub remark: String,
    /// The table has it in a remark to another row.
    #[serde(skip)]
    pub is_detail: bool,
}

impl Row {
    /// Ours beside a reference, pair by pair from the same repeat.
    pub fn compared(
        measure: impl Into<String>,
        unit: &'static str,
        target: Target,
        pairs: &[(f64, f64)],
    ) -> Self {
        let ratios: Vec<_> = pairs.iter().map(|(ours, reference)| ours / reference).collect();
        let (ours, references): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
        let repeats = Repeats::of(&ratios);
        Self {
            ours: median(&ours),
            reference: median(&references),
            ratio: repeats.median,
            ..Self::with_verdict(measure.into(), unit, target, repeats)
        }
    }

    /// A figure by itself.
    pub fn alone(measure: impl Into<String>, unit: &'static str, target: Target, ours: &[f64]) -> Self {
        Self::with_verdict(measure.into(), unit, target, Repeats::of(ours))
    }

    fn with_verdict(measure: String, unit: &'static str, target: Target, repeats: Repeats) -> Self {
        let pass = match target {
            Target::Report => Some(repeats.median.is_some()),
            _ => repeats.conclusive().map(|value| target.is_met(value)),
        };
        let (ours, spread) = (repeats.median, repeats.spread);
        let (reference, ratio, aim, remark, is_detail) = (None, None, None, String::new(), false);
        Self { measure, ours, reference, unit, ratio, target, spread, pass, aim, remark, is_detail }
    }

    /// Removes the verdict from a row whose repeats are too short for one.
    #[must_use]
    pub fn without_verdict(mut self) -> Self {
        if self.target != Target::Report {
            self.pass = None;
        }
        self
    }

    /// Sets the aim of the row: a value that the project hopes for, and that does not change the verdict.
    #[must_use]
    pub fn aiming(mut self, aim: Option<Target>) -> Self {
        self.aim = aim;
        self
    }

    /// Sets the remark of the row.
    #[must_use]
    pub fn remarked(mut self, remark: impl Into<String>) -> Self {
        self.remark = remark.into();
        self
    }

    /// Marks the row as a detail, which the table shows only in a remark to another row.
    #[must_use]
    pub fn detail(self) -> Self {
        Self { is_detail: true, ..self }
    }

    /// The table of rows: [`Row::HEAD`], and the [`Row::cells`] of each.
    pub fn table() -> TextTable {
        use Column::{Left, Right};
        TextTable::new([
            Left(66),
            Right(8),
            Right(9),
            Left(8),
            Right(6),
            Left(7),
            Left(7),
            Right(6),
            Left(10),
            Left(0),
        ])
    }

    /// The names of the columns of [`cells`](Self::cells).
    pub const HEAD: [&str; 10] =
        ["measure", "ours", "reference", "unit", "ratio", "target", "aim", "spread", "verdict", "remarks"];

    /// Returns the row as the texts of a table's cells.
    pub fn cells(&self) -> [String; 10] {
        let figure = |value: Option<f64>| value.map_or("-".into(), number);
        [
            self.measure.clone(),
            figure(self.ours),
            figure(self.reference),
            self.unit.to_owned(),
            figure(self.ratio),
            self.target.to_string(),
            self.aim.map_or("-".into(), |aim| aim.to_string()),
            self.spread.map_or("-".into(), |spread| format!("{:.0} %", spread * 100.0)),
            self.verdict().to_owned(),
            self.remark.clone(),
        ]
    }

    /// The verdict in words.
    pub fn verdict(&self) -> &'static str {
        match (self.target, self.pass) {
            (Target::Report, Some(true)) => "-",
            (Target::Report, _) => "not measured",
            (_, Some(true)) => "pass",
            (_, Some(false)) => "MISSED",
            (_, None) => "no verdict",
        }
    }
}

/// What the figures of a row come to.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    count: usize,
    median: Option<f64>,
    spread: Option<f64>,
}

impl Repeats {
    fn of(figures: &[f64]) -> Self {
        Self { count: figures.len(), median: finite(median(figures)), spread: finite(spread(figures)) }
    }

    /// The median, if a verdict may rest on it.
    fn conclusive(&self) -> Option<f64> {
        let calm = self.spread.is_some_and(|spread| spread <= MOST_SPREAD);
        self.median.filter(|_| calm && self.count >= LEAST_REPEATS as usize)
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// What `--json` writes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The rows in the order in which they were measured.
    pub rows: Vec<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<(f64, f64)> {
        ratios.iter().enumerate().map(|(i, ratio)| (ratio * (i + 1) as f64, (i + 1) as f64)).collect()
    }

    #[test]
    fn the_ratio_is_the_median_of_each_repeats_own() {
        // The machine became slower with every repeat; the ratios did not.
        let row = Row::compared("m", "GiB/s", Target::AtLeast(0.5), &[(8.0, 10.0), (4.0, 5.0), (0.8, 1.0)]);
        assert_eq!((row.ours, row.reference), (Some(4.0), Some(5.0)));
        assert!((row.ratio.unwrap() - 0.8).abs() < 1e-12, "{row:?}");
    }

    #[test]
    fn a_target_is_met_or_missed() {
        let verdict = |target, ratio| Row::compared("m", "us", target, &pairs(&[ratio; 15])).verdict();
        assert_eq!(verdict(Target::AtLeast(0.5), 0.5), "pass");
        assert_eq!(verdict(Target::AtLeast(0.5), 0.49), "MISSED");
        assert_eq!(verdict(Target::AtMost(2.0), 2.1), "MISSED");
        assert_eq!(verdict(Target::AtMost(2.0), 0.1), "pass");
        assert_eq!(verdict(Target::Report, 1e9), "-");
    }

    #[test]
    fn too_much_spread_is_no_verdict_and_no_pass() {
        let wide = |ratios: [f64; 5]| pairs(&ratios.repeat(3));
        let calm = wide([0.5, 0.95, 1.0, 1.05, 1.5]);
        let row = Row::compared("m", "GiB/s", Target::AtLeast(0.1), &calm);
        assert_eq!((row.pass, row.verdict()), (Some(true), "pass"), "{row:?}");
        let wide = wide([0.5, 0.7, 1.0, 1.3, 1.5]);
        for target in [Target::AtLeast(0.1), Target::AtLeast(9.0)] {
            let row = Row::compared("m", "GiB/s", target, &wide);
            assert_eq!((row.pass, row.verdict()), (None, "no verdict"), "{row:?}");
        }
        assert_eq!(Row::compared("m", "GiB/s", Target::Report, &wide).pass, Some(true));
    }

    #[test]
    fn few_or_short_repeats_are_no_verdict() {
        for (count, target) in [(1, 0.1), (14, 0.1), (14, 9.0)] {
            let row = Row::compared("m", "GiB/s", Target::AtLeast(target), &pairs(&vec![1.0; count]));
            assert_eq!((row.pass, row.verdict()), (None, "no verdict"), "{row:?}");
        }
        let row = |target| Row::alone("m", "us", target, &[1.0; 15]).without_verdict();
        assert_eq!((row(Target::AtMost(2.0)).pass, row(Target::Report).pass), (None, Some(true)));
    }

    #[test]
    fn without_a_reference_the_figure_is_judged() {
        let row = Row::alone("cpu", "%", Target::AtMost(1.0), &[0.4; 15]);
        assert_eq!((row.ratio, row.reference, row.pass), (None, None, Some(true)));
        assert_eq!(Row::alone("cpu", "%", Target::AtMost(1.0), &[1.4; 15]).verdict(), "MISSED");
        assert_eq!(Row::alone("cpu", "%", Target::Report, &[]).verdict(), "not measured");
    }

    #[test]
    fn json_has_these_keys_in_this_order_and_no_others() {
        let row = Row::alone("m", "us", Target::Report, &[2.0, 2.0]).remarked("x");
        let row = row.aiming(Some(Target::AtMost(1.0)));
        let text = serde_json::to_string(&Report { rows: vec![row] }).unwrap();
        assert_eq!(
            text,
            r#"{"rows":[{"measure":"m","ours":2.0,"reference":null,"unit":"us","ratio":null,"target":"report","spread":0.0,"pass":true}]}"#
        );
        let row = Row::compared("m", "us", Target::AtLeast(0.5), &[(1.0, 0.0), (1.0, 0.0)]);
        let value = serde_json::to_value(row).unwrap();
        let null = &serde_json::Value::Null;
        assert_eq!((&value["target"], &value["ratio"], &value["pass"]), (&">= 0.5".into(), null, null));
    }
}
