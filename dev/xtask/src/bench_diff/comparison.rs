//! The result of the rounds: which benches moved by more than their spread.

use super::programs::Bench;
use anyhow::Result;
use naa_measure::{
    Column, number,
    row::{Row, Target},
};
use serde::Serialize;

/// A bench of one revision or of both, and what was measured of it so far.
#[derive(Debug)]
pub(super) struct Paired {
    name: String,
    before: Option<Bench>,
    after: Option<Bench>,
    /// The nanoseconds after and before, of each round.
    rounds: Vec<(f64, f64)>,
}

/// Brings benches of the same name together, in the order of this checkout; those that only the revision before has come last.
pub(super) fn paired(mut before: Vec<Bench>, after: Vec<Bench>) -> Vec<Paired> {
    let mut all = Vec::new();
    for bench in after {
        let same = before.iter().position(|other| other.name == bench.name);
        let before = same.map(|at| before.remove(at));
        all.push(Paired { name: bench.name.clone(), before, after: Some(bench), rounds: Vec::new() });
    }
    let only_before = |bench: Bench| Paired {
        name: bench.name.clone(),
        before: Some(bench),
        after: None,
        rounds: Vec::new(),
    };
    all.extend(before.into_iter().map(only_before));
    all
}

impl Paired {
    /// Measures the bench before and after, if both have it.
    pub(super) fn measure(&mut self, mut measure: impl FnMut(&Bench) -> Result<f64>) -> Result<()> {
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            let before = measure(before)?;
            self.rounds.push((measure(after)?, before));
        }
        Ok(())
    }

    pub(super) fn compare(&self) -> Comparison {
        let row = Row::compared(&self.name, "ns", Target::Report, &self.rounds);
        let change = row.ratio.map(|ratio| ratio - 1.0);
        let verdict = match (&self.before, &self.after) {
            (None, _) => Verdict::OnlyAfter,
            (_, None) => Verdict::OnlyBefore,
            _ => Verdict::of(change, row.spread),
        };
        let (before_ns, after_ns) = (row.reference, row.ours);
        Comparison { bench: row.measure, before_ns, after_ns, change, spread: row.spread, verdict }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Faster,
    Slower,
    /// The bench did not change by more than its spread.
    Same,
    /// The revision before has the bench, and this checkout has not.
    OnlyBefore,
    /// This checkout has the bench, and the revision before has not.
    OnlyAfter,
}

impl Verdict {
    fn of(change: Option<f64>, spread: Option<f64>) -> Self {
        match change.zip(spread) {
            Some((change, spread)) if change > spread => Self::Slower,
            Some((change, spread)) if -change > spread => Self::Faster,
            _ => Self::Same,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "SLOWER",
            Self::Same => "",
            Self::OnlyBefore => "only before",
            Self::OnlyAfter => "only after",
        }
    }
}

/// A row of the table. The names of the fields in JSON are stable.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Comparison {
    bench: String,
    /// Nanoseconds of one iteration, median over the rounds.
    before_ns: Option<f64>,
    after_ns: Option<f64>,
    /// The median of the rounds' ratios of after to before, less 1.
    change: Option<f64>,
    /// The distance of the quartiles of these ratios, divided by their median.
    spread: Option<f64>,
    verdict: Verdict,
}

impl Comparison {
    /// The names of the columns of [`cells`](Self::cells).
    pub(super) const HEAD: [&str; 6] = ["bench", "before, ns", "after, ns", "change", "spread", ""];

    pub(super) fn columns() -> [Column; 6] {
        use Column::{Left, Right};
        [Left(0), Right(0), Right(0), Right(0), Right(0), Left(0)]
    }

    pub(super) fn cells(&self) -> [String; 6] {
        let text = |value: Option<f64>, text: fn(f64) -> String| value.map_or("-".to_owned(), text);
        [
            self.bench.clone(),
            text(self.before_ns, number),
            text(self.after_ns, number),
            text(self.change, |change| format!("{:+.1} %", change * 100.0)),
            text(self.spread, |spread| format!("{:.1} %", spread * 100.0)),
            self.verdict.text().to_owned(),
        ]
    }

    /// Whether the bench became slower by more than `limit`, and by more than its spread.
    pub(super) fn is_slower_than(&self, limit: f64) -> bool {
        self.verdict == Verdict::Slower && self.change.is_some_and(|change| change > limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(name: &str, program: &str) -> Bench {
        Bench { name: name.to_owned(), program: program.into() }
    }

    /// A bench that both have, with rounds of nanoseconds after and before.
    fn measured(rounds: &[(f64, f64)]) -> Comparison {
        let mut paired = paired(vec![bench("b", "before")], vec![bench("b", "after")]).remove(0);
        for &(after, before) in rounds {
            let ns = |bench: &Bench| Ok(if bench.program.ends_with("after") { after } else { before });
            paired.measure(ns).unwrap();
        }
        paired.compare()
    }

    #[test]
    fn a_change_counts_if_it_is_larger_than_its_spread() {
        let slower = measured(&[(104.0, 100.0), (105.0, 100.0), (106.0, 100.0)]);
        assert_eq!(
            (slower.verdict, slower.before_ns, slower.after_ns),
            (Verdict::Slower, Some(100.0), Some(105.0))
        );
        assert!(slower.is_slower_than(0.04) && !slower.is_slower_than(0.06));
        let faster = measured(&[(80.0, 100.0), (81.0, 100.0), (79.0, 100.0)]);
        assert_eq!(faster.verdict, Verdict::Faster);
        assert!(!faster.is_slower_than(0.0));
        let same = measured(&[(90.0, 100.0), (104.0, 100.0), (120.0, 100.0)]);
        assert_eq!(same.verdict, Verdict::Same, "{same:?}");
        assert!(!same.is_slower_than(0.0));
        assert_eq!(measured(&[(100.0, 100.0); 3]).verdict, Verdict::Same);
    }

    #[test]
    fn a_machine_that_becomes_slower_moves_no_bench() {
        // Each round took longer than the one before, and after as long as before.
        assert_eq!(measured(&[(100.0, 100.0), (150.0, 150.0), (300.0, 300.0)]).verdict, Verdict::Same);
    }

    #[test]
    fn benches_of_one_revision_are_named_and_not_measured() {
        let before = ["gone", "both"].map(|name| bench(name, "before")).to_vec();
        let after = ["both", "new"].map(|name| bench(name, "after")).to_vec();
        let mut all = paired(before, after);
        let mut ran = 0;
        for row in &mut all {
            row.measure(|_| {
                ran += 1;
                Ok(1.0)
            })
            .unwrap();
        }
        let verdicts: Vec<_> = all.iter().map(|row| (row.name.as_str(), row.compare().verdict)).collect();
        let expected = [("both", Verdict::Same), ("new", Verdict::OnlyAfter), ("gone", Verdict::OnlyBefore)];
        assert_eq!((verdicts, ran), (expected.to_vec(), 2));
        assert_eq!(all[1].compare().cells(), ["new", "-", "-", "-", "-", "only after"]);
    }

    #[test]
    fn json_has_these_keys() {
        let text =
            serde_json::to_string(&measured(&[(110.0, 100.0), (110.0, 100.0), (110.0, 100.0)])).unwrap();
        assert!(
            text.starts_with(r#"{"bench":"b","before_ns":100.0,"after_ns":110.0,"change":0.1"#),
            "{text}"
        );
        assert!(text.ends_with(r#""spread":0.0,"verdict":"slower"}"#), "{text}");
    }
}
