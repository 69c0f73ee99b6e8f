//! Rows of the table, from what was measured: lines `SAMPLE|SERIES|REPEAT|VALUE` among others.

use std::collections::BTreeMap;

use naa_measure::row::{
    Row,
    Target::{self, AtLeast, AtMost, Report},
};

/// Values by series and repeat.
pub type Samples = BTreeMap<String, BTreeMap<u32, f64>>;

type Text = &'static str;

/// Two series, of which one is held against the other.
struct Comparison {
    measure: Text,
    unit: Text,
    ours: Text,
    reference: Text,
    target: Target,
    aim: Option<Target>,
}

const fn compared(measure: Text, unit: Text, ours: Text, reference: Text) -> Comparison {
    Comparison { measure, unit, ours, reference, target: Report, aim: None }
}

const fn speed(measure: Text, ours: Text, reference: Text) -> Comparison {
    Comparison { aim: Some(AtLeast(1.0)), ..compared(measure, "MiB/s", ours, reference) }
}

const fn latency(measure: Text, ours: Text, reference: Text) -> Comparison {
    Comparison { aim: Some(AtMost(1.0)), ..compared(measure, "us", ours, reference) }
}

impl Comparison {
    const fn to(self, target: Target) -> Self {
        Self { target, ..self }
    }
}

/// All comparisons, in the order of the table. The names of the series come from dev/xtask/rxe-bench/*.sh.
const COMPARISONS: &[Comparison] = &[
    compared("64-byte call, verbs/rxe, p50, vs 2 x ib_write_lat", "us", "call", "lat").to(AtMost(1.3)),
    compared("64-byte call, verbs/rxe, fastest, vs 2 x ib_write_lat, fastest", "us", "call-min", "lat-min"),
    compared("WRITE 1 MiB, verbs/rxe, vs ib_write_bw", "MiB/s", "write", "bw").to(AtLeast(0.9)),
    compared(
        "4 x 64 MiB registered again, verbs/rxe, vs the first time",
        "ms",
        "registered-again",
        "registered-first",
    )
    .to(AtMost(0.2)),
    compared(
        "session with 4 x 64 MiB again, verbs/rxe to embedded, vs the first",
        "ms",
        "session-again",
        "session-first",
    ),
    compared(
        "session with 4 x 64 MiB again, verbs/rxe to verbs/rxe, vs the first",
        "ms",
        "session-rxe-again",
        "session-rxe-first",
    ),
    speed("WRITE 1 MiB, embedded, veth, vs verbs/rxe to embedded", "write-ee", "write-ve"),
    speed("WRITE 1 MiB, embedded, veth, vs embedded to verbs/rxe", "write-ee", "write-ev"),
    latency("64-byte call, p50, embedded, veth, vs verbs/rxe to embedded", "call-ee", "call-ve"),
    latency("64-byte call, p50, embedded, veth, vs embedded to verbs/rxe", "call-ee", "call-ev"),
    speed("WRITE 1 MiB, two machines, embedded, vs verbs/rxe", "two-write-ee", "two-write-vv"),
    latency("64-byte call, p50, two machines, embedded, vs verbs/rxe", "two-call-ee", "two-call-vv"),
];

/// Takes the samples out of what the machines wrote.
///
/// # Errors
/// If a sample is none.
pub fn read(text: &str) -> Result<Samples, String> {
    let mut samples = Samples::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("SAMPLE|") else { continue };
        let sample = || {
            let mut cells = rest.split('|');
            let series = cells.next()?;
            let (repeat, value) = (cells.next()?.parse().ok()?, cells.next()?.trim().parse::<f64>().ok()?);
            (cells.next().is_none() && value.is_finite()).then_some((series, repeat, value))
        };
        let (series, repeat, value) = sample().ok_or_else(|| format!("no sample: {line}"))?;
        samples.entry(series.to_owned()).or_default().insert(repeat, value);
    }
    Ok(samples)
}

/// One row for each comparison that was measured, from the repeats that have both sides; `quick` repeats are no
/// verdict.
///
/// # Errors
/// If a series is in no row.
pub fn rows(samples: &Samples, quick: bool) -> Result<Vec<Row>, String> {
    let known = |series: &str| COMPARISONS.iter().any(|c| [c.ours, c.reference].contains(&series));
    if let Some(series) = samples.keys().find(|series| !known(series)) {
        return Err(format!("no row has the series {series}"));
    }
    let of = |series| samples.get(series).cloned().unwrap_or_default();
    let row = |c: &Comparison| {
        let (ours, reference) = (of(c.ours), of(c.reference));
        let pairs: Vec<_> = ours.iter().filter_map(|(n, v)| Some((*v, *reference.get(n)?))).collect();
        let row = Row::compared(c.measure, c.unit, c.target, &pairs).aiming(c.aim);
        if quick { row.without_verdict() } else { row }
    };
    let measured = |c: &&Comparison| samples.contains_key(c.ours) || samples.contains_key(c.reference);
    Ok(COMPARISONS.iter().filter(measured).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_with_both_sides_count() {
        let text = "noise\nSAMPLE|write|1|50\nSAMPLE|bw|1|100\nSAMPLE|write|2|90\nSAMPLE|bw|3|10\n";
        let rows = rows(&read(text).unwrap(), true).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].ratio, rows[0].pass), (Some(0.5), None), "{rows:?}");
    }

    #[test]
    fn what_is_no_sample_is_refused() {
        for line in ["SAMPLE|write|1|", "SAMPLE|write|x|1", "SAMPLE|write|1|NaN", "SAMPLE|write|1|2|3"] {
            assert!(read(line).is_err(), "{line}");
        }
        assert!(rows(&read("SAMPLE|unheard-of|1|2").unwrap(), false).is_err());
    }

    #[test]
    fn a_side_without_samples_is_a_row_without_figures() {
        let rows = rows(&read("SAMPLE|write|1|50").unwrap(), false).unwrap();
        assert_eq!((rows.len(), rows[0].ratio, rows[0].pass), (1, None, None));
    }
}
