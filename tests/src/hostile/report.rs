//! The outcomes as a table and as JSON.

use serde_json::{Value, json};

use super::case::{Latency, Outcome};

/// Rows for people, the names of the columns first.
pub fn table(baseline: Latency, outcomes: &[Outcome]) -> String {
    let header = ["group", "case", "answer", "counters", "p50 us", "p99 us", "KiB", "result"];
    let mut rows = vec![header.map(str::to_owned)];
    if baseline.calls > 0 {
        rows.push(row("", "bystanders alone", "", "", baseline, "", ""));
    }
    for outcome in outcomes {
        let answer = if outcome.seen.answer.is_empty() { "-" } else { &outcome.seen.answer };
        let answer = match outcome.seen.note.as_str() {
            // The result says why.
            _ if outcome.seen.skipped => answer.to_owned(),
            "" => answer.to_owned(),
            note => format!("{answer} ({note})"),
        };
        let growth = format!("{:+}", outcome.growth_kib);
        let case = &outcome.case;
        rows.push(row(
            case.group,
            case.name,
            &answer,
            &counters(outcome),
            outcome.bystander,
            &growth,
            &outcome.result(),
        ));
    }
    aligned(&rows)
}

fn row(
    group: &str,
    name: &str,
    answer: &str,
    counters: &str,
    latency: Latency,
    growth: &str,
    result: &str,
) -> [String; 8] {
    let micros = |time: std::time::Duration| time.as_micros().to_string();
    let (p50, p99) = (micros(latency.p50), micros(latency.p99));
    [group, name, answer, counters, &p50, &p99, growth, result].map(str::to_owned)
}

/// The counters a case names; the JSON has all that rose.
fn counters(outcome: &Outcome) -> String {
    let shown = outcome.rose.iter().filter(|(name, _)| outcome.case.counters.contains(&name.as_str()));
    shown.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

fn aligned(rows: &[[String; 8]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// The same for programs; keys are stable.
pub fn json(baseline: Latency, outcomes: &[Outcome]) -> Value {
    let rows = outcomes.iter().map(|outcome| {
        json!({
            "group": outcome.case.group,
            "case": outcome.case.name,
            "sent": outcome.case.sent,
            "expected": outcome.case.expected,
            "expected_counters": outcome.case.counters,
            "answer": outcome.seen.answer,
            "note": outcome.seen.note,
            "counters": outcome.rose.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            "bystander": latency(outcome.bystander),
            "growth_kib": outcome.growth_kib,
            "seconds": outcome.took.as_secs_f64(),
            // null: skipped, and the note says why.
            "pass": (!outcome.skipped()).then_some(!outcome.failed()),
            "why": outcome.why,
        })
    });
    json!({ "baseline": latency(baseline), "rows": rows.collect::<Vec<_>>() })
}

fn latency(latency: Latency) -> Value {
    json!({
        "rounds": latency.calls,
        "p50_us": latency.p50.as_secs_f64() * 1e6,
        "p99_us": latency.p99.as_secs_f64() * 1e6,
    })
}
