//! A line of the table: what was measured, and what is said about it.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::stats::{median, spread};

/// Where repeats differ by more than this, nothing can be said.
pub const MOST_SPREAD: f64 = 0.20;

/// What a figure is held against: the ratio to the reference, or the figure itself where there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
    /// Only told.
    Report,
}

impl Target {
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

/// The form in JSON is stable.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub measure: String,
    /// Median over the repeats.
    pub ours: Option<f64>,
    pub reference: Option<f64>,
    pub unit: &'static str,
    /// Median of the repeats' ratios of ours to the reference.
    pub ratio: Option<f64>,
    pub target: Target,
    /// Of the ratios; of ours where there is no reference.
    pub spread: Option<f64>,
    pub pass: bool,
    /// For people: what is hoped for, and what else there is to know.
    #[serde(skip)]
    pub aim: Option<Target>,
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
        let (ratio, spread) = (finite(median(&ratios)), finite(spread(&ratios)));
        Self {
            reference: median(&references),
            ratio,
            ..Self::judged(measure.into(), unit, target, median(&ours), ratio, spread)
        }
    }

    /// A figure by itself.
    pub fn alone(measure: impl Into<String>, unit: &'static str, target: Target, ours: &[f64]) -> Self {
        let (middle, spread) = (finite(median(ours)), finite(spread(ours)));
        Self::judged(measure.into(), unit, target, middle, middle, spread)
    }

    fn judged(
        measure: String,
        unit: &'static str,
        target: Target,
        ours: Option<f64>,
        judged: Option<f64>,
        spread: Option<f64>,
    ) -> Self {
        let calm = target == Target::Report || spread.is_some_and(|spread| spread <= MOST_SPREAD);
        let pass = calm && judged.is_some_and(|value| target.is_met(value));
        let (reference, ratio, aim, remark, is_detail) = (None, None, None, String::new(), false);
        Self { measure, ours, reference, unit, ratio, target, spread, pass, aim, remark, is_detail }
    }

    #[must_use]
    pub fn aiming(mut self, aim: Option<Target>) -> Self {
        self.aim = aim;
        self
    }

    #[must_use]
    pub fn remarked(mut self, remark: impl Into<String>) -> Self {
        self.remark = remark.into();
        self
    }

    #[must_use]
    pub fn detail(self) -> Self {
        Self { is_detail: true, ..self }
    }

    /// In words.
    pub fn verdict(&self) -> &'static str {
        let judged = self.ratio.or(self.ours);
        match (self.target, self.pass) {
            (Target::Report, true) => "-",
            (Target::Report, false) => "not measured",
            (_, true) => "pass",
            (target, false) if judged.is_some_and(|value| target.is_met(value)) => "no verdict",
            (_, false) if self.spread.is_none_or(|spread| spread > MOST_SPREAD) => "no verdict",
            (_, false) => "MISSED",
        }
    }
}

fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// What `--json` writes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
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
        assert!((row.ratio.unwrap() - 0.8).abs() < 1e-12 && row.pass, "{row:?}");
    }

    #[test]
    fn a_target_is_met_or_missed() {
        let verdict = |target, ratio| Row::compared("m", "us", target, &pairs(&[ratio; 4])).verdict();
        assert_eq!(verdict(Target::AtLeast(0.5), 0.5), "pass");
        assert_eq!(verdict(Target::AtLeast(0.5), 0.49), "MISSED");
        assert_eq!(verdict(Target::AtMost(2.0), 2.1), "MISSED");
        assert_eq!(verdict(Target::AtMost(2.0), 0.1), "pass");
        assert_eq!(verdict(Target::Report, 1e9), "-");
    }

    #[test]
    fn too_much_spread_is_no_verdict_and_no_pass() {
        let wide = pairs(&[0.5, 0.95, 1.0, 1.05, 1.5]);
        let row = Row::compared("m", "GiB/s", Target::AtLeast(0.1), &wide);
        assert_eq!((row.pass, row.verdict()), (true, "pass"), "{row:?}");
        let wide = pairs(&[0.5, 0.7, 1.0, 1.3, 1.5]);
        let row = Row::compared("m", "GiB/s", Target::AtLeast(0.1), &wide);
        assert_eq!((row.pass, row.verdict()), (false, "no verdict"), "{row:?}");
        assert!(Row::compared("m", "GiB/s", Target::Report, &wide).pass);
        let once = Row::compared("m", "GiB/s", Target::AtLeast(0.1), &[(1.0, 1.0)]);
        assert_eq!((once.pass, once.verdict()), (false, "no verdict"), "one repeat has no spread");
    }

    #[test]
    fn without_a_reference_the_figure_is_judged() {
        let row = Row::alone("cpu", "%", Target::AtMost(1.0), &[0.4, 0.4, 0.4]);
        assert_eq!((row.ratio, row.reference, row.pass), (None, None, true));
        assert_eq!(Row::alone("cpu", "%", Target::AtMost(1.0), &[1.4, 1.4]).verdict(), "MISSED");
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
        assert_eq!((&value["target"], &value["ratio"]), (&">= 0.5".into(), &serde_json::Value::Null));
    }
}
