//! A whole site with a process for each role: a control plane, data planes for IPv4 and IPv6, workers of different speed, and
//! senders. Meanwhile a worker is killed, one drains and one is added, and the control plane and a data plane are killed and started
//! again. The test sends all 100 000 events only if `NAA_LONG` is 1.

mod common;

use common::{naa, stderr};
use serde_json::Value;

/// Returns the number of events and the events per second. All 100 000 events take 40 seconds.
fn size() -> (&'static str, &'static str) {
    let is_long = std::env::var("NAA_LONG").is_ok_and(|value| value == "1");
    if is_long { ("100000", "2500") } else { ("10000", "1250") }
}

fn number(of: &Value) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("{of} is no number"))
}

#[test]
fn no_event_is_split_and_all_that_are_lost_are_listed_whatever_is_killed() {
    let (events, rate) = size();
    let arguments = ["demo", "lb", "--everything", "--events", events, "--rate", rate, "--json", "-"];
    let output = naa(&arguments).output().expect("the binary runs");
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let fates = report["fates"].as_array().expect("rows");
    let sum = |fate: &str| {
        let those = fates.iter().filter(|row| row["fate"] == fate);
        those.map(|row| number(&row["events"])).sum::<u64>()
    };
    // Each event has one outcome, and each event that is not whole is listed.
    let all: u64 = fates.iter().map(|row| number(&row["events"])).sum();
    assert!(all >= events.parse().unwrap(), "{said}");
    for fault in ["repeated", "wrong", "misrouted", "unexplained"] {
        assert_eq!(sum(fault), 0, "{fault}: {said}");
    }
    for row in fates.iter().filter(|row| row["fate"] != "whole") {
        assert_eq!(row["list"].as_array().map(|list| list.len() as u64), row["events"].as_u64(), "{row}");
    }
    assert!(sum("sent_to_killed") > 0 && sum("plane_away") > 0, "{said}");
    // The workers that were not killed lost nothing, also the one that drained and left.
    let workers = report["workers"].as_array().expect("rows");
    assert_eq!(workers.len(), 8);
    for row in workers.iter().filter(|row| row["part"] != "is killed") {
        assert_eq!((number(&row["lost"]), &row["verified"]), (0, &true.into()), "{row}: {said}");
    }
    // In the last two seconds the medium worker gets nothing, and the new one gets less than the fast one.
    for of in report["shares"].as_array().expect("reservations") {
        let seconds = of["seconds"].as_array().expect("seconds");
        let last = &seconds[seconds.len() - 2..];
        let of_worker = |n: usize| last.iter().map(|second| number(&second["events"][n])).sum::<u64>();
        assert_eq!(of["workers"], serde_json::json!(["fast", "medium", "slow", "new"]));
        assert!(of_worker(3) > 0 && of_worker(3) < of_worker(0), "{said}");
        assert_eq!(of_worker(1), 0, "{said}");
    }
}
