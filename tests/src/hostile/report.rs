//! The outcomes as a table and as JSON.

use naa_measure::TextTable;
use serde_json::{Value, json};

use super::{
    case::{Latency, Outcome},
    suite::Ran,
};

/// Rows for people, the names of the columns first.
pub fn table(ran: &Ran) -> String {
    let header = ["IP", "group", "case", "answer", "counters", "p50 us", "p99 us", "KiB", "result"];
    let mut rows = Vec::new();
    for (family, baseline) in &ran.baselines {
        let [p50, p99] = micros(*baseline);
        let ip = family.number().to_string();
        rows.push([&*ip, "", "bystanders alone", "", "", &p50, &p99, "", ""].map(str::to_owned));
    }
    for outcome in &ran.outcomes {
        let answer = if outcome.observation.answer.is_empty() { "-" } else { &outcome.observation.answer };
        let answer = match outcome.observation.note.as_str() {
            // The result says why.
            _ if outcome.observation.skipped => answer.to_owned(),
            "" => answer.to_owned(),
            note => format!("{answer} ({note})"),
        };
        let mut latency = micros(outcome.bystander);
        if let Some(quiet) = outcome.quiet {
            // The row shows the latency before the attack and during it.
            let quiet = micros(quiet);
            latency = [0, 1].map(|n| format!("{} -> {}", quiet[n], latency[n]));
        }
        let [p50, p99] = latency;
        let (ip, growth) = (outcome.family.number().to_string(), format!("{:+}", outcome.growth_kib));
        let (group, name) = (outcome.case.group.to_owned(), outcome.case.name.to_owned());
        rows.push([ip, group, name, answer, counters(outcome), p50, p99, growth, outcome.result()]);
    }
    TextTable::of(header, rows) + "\n"
}

fn micros(latency: Latency) -> [String; 2] {
    [latency.p50, latency.p99].map(|time| time.as_micros().to_string())
}

/// The counters a case names; the JSON has all that rose.
fn counters(outcome: &Outcome) -> String {
    let shown = outcome.rose.iter().filter(|(name, _)| outcome.case.counters.contains(&name.as_str()));
    shown.map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join(", ")
}

/// The same for programs; keys are stable.
pub fn json(ran: &Ran) -> Value {
    let rows = ran.outcomes.iter().map(|outcome| {
        json!({
            "ip": outcome.family.number(),
            "group": outcome.case.group,
            "case": outcome.case.name,
            "sent": outcome.case.sent,
            "expected": outcome.case.expected,
            "expected_counters": outcome.case.counters,
            "answer": outcome.observation.answer,
            "note": outcome.observation.note,
            "counters": outcome.rose.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
            // null: the case does not compare.
            "quiet": outcome.quiet.map(latency),
            "bystander": latency(outcome.bystander),
            "growth_kib": outcome.growth_kib,
            "seconds": outcome.took.as_secs_f64(),
            // null: skipped, and the note says why; or not applicable.
            "pass": outcome.tried().then_some(!outcome.failed()),
            "not_applicable": outcome.not_applicable(),
            "why": outcome.why,
        })
    });
    let baselines = ran.baselines.iter();
    let by_ip = baselines.clone().map(|(family, alone)| (family.number().to_string(), latency(*alone)));
    let first = baselines.clone().next().map(|(_, alone)| *alone).unwrap_or_default();
    json!({
        "baseline": latency(first),
        "baselines": by_ip.collect::<serde_json::Map<_, _>>(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn latency(latency: Latency) -> Value {
    json!({
        "rounds": latency.calls,
        "p50_us": latency.p50.as_secs_f64() * 1e6,
        "p99_us": latency.p99.as_secs_f64() * 1e6,
    })
}
