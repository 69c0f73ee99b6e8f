//! `naa bench` runs, and its rows have the promised form. How fast anything is, no test says.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_naa"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Rows of a measurement with few repeats.
#[track_caller]
fn rows(only: &str) -> Vec<Value> {
    rows_of(&[], only)
}

#[track_caller]
fn rows_of(suite: &[&str], only: &str) -> Vec<Value> {
    let output = bench(&[suite, &["--quick", "--repeats", "2", "--json", "-", "--only", only]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let rows = report["rows"].as_array().expect("rows").clone();
    for row in &rows {
        let keys: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut expected = ["measure", "ours", "reference", "unit", "ratio", "target", "spread", "pass"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert!(row["ours"].as_f64().is_some_and(|ours| ours >= 0.0), "{row}");
        // Of few repeats nothing is said but that there are figures.
        let pass = if row["target"] == "report" { Value::Bool(true) } else { Value::Null };
        assert_eq!(row["pass"], pass, "{row}");
    }
    rows
}

#[test]
fn writes_are_compared_and_their_cpu_time_is_told() {
    let rows = rows("MTU 1024");
    let names: Vec<_> = rows.iter().map(|row| row["measure"].as_str().expect("a name")).collect();
    let name = "WRITE 1 MiB, MTU 1024, vs raw UDP with GSO+GRO";
    assert_eq!(names, [name.into(), format!("{name}: CPU of sender"), format!("{name}: CPU of receiver")]);
    assert_eq!(rows[0]["target"], ">= 0.5");
    let number = |key: &str| rows[0][key].as_f64().expect(key);
    assert!(number("ratio") > 0.0 && number("ours") > 0.0 && number("reference") > 0.0, "{}", rows[0]);
    assert_eq!(
        (&rows[1]["target"], &rows[1]["pass"], &rows[1]["unit"]),
        (&"report".into(), &true.into(), &"s/GiB".into())
    );
}

#[test]
fn calls_are_compared_with_two_things() {
    let rows = rows("64-byte call, blocking");
    let targets: Vec<_> = rows.iter().map(|row| row["target"].as_str().expect("a target")).collect();
    assert_eq!(targets, ["<= 2.0", "report", "report", "<= 0.8", "report", "report"]);
}

#[test]
fn c_libraries_are_compared_with_the_rust_api() {
    let rows = rows_of(&["capi"], "naa_");
    let rows: Vec<_> = rows.iter().filter(|row| row["target"] != "report").collect();
    let targets: Vec<_> = rows.iter().map(|row| row["target"].as_str().expect("a target")).collect();
    assert_eq!(targets, ["<= 1.05", "<= 1.05", "<= 1.2", "<= 1.0"]);
    let (calls, blocked) = rows.split_at(3);
    assert!(calls.iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0)), "{calls:?}");
    assert_eq!((&blocked[0]["unit"], &blocked[0]["reference"]), (&"%".into(), &Value::Null));
}

#[test]
fn the_engine_is_measured_without_another_end() {
    assert_eq!(rows("roce ").len(), 3);
}

#[test]
fn the_list_has_names_and_nothing_is_measured() {
    let output = bench(&["--list"]);
    let list = text(&output.stdout);
    assert!(output.status.success() && list.lines().count() > 15, "{list}");
    assert!(list.lines().any(|line| line == "WRITE 1 MiB, MTU 4096, vs TCP, 64 KiB writes"), "{list}");
}

#[test]
fn what_is_not_there_or_cannot_be_written_is_refused_at_once() {
    let output = bench(&["--only", "no such thing"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("naa bench --list"), "{}", text(&output.stderr));
    let output = bench(&["capi", "--only", "no such thing"]);
    assert!(text(&output.stderr).contains("naa bench capi --list"), "{}", text(&output.stderr));
    let output = bench(&["--only", "roce ", "--json", "/nonexistent/bench.json"]);
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("cannot write /nonexistent/bench.json"),
        "{}",
        text(&output.stderr)
    );
    assert!(fs::metadata("/nonexistent").is_err());
}
