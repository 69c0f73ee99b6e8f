//! `naa bench` runs, and its rows have the promised form. How fast anything is, no test says.

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_naa-bench"));
    command.args(arguments).stdin(Stdio::null());
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
        // There are too few repeats for a verdict; only rows without a target pass.
        let pass = if row["target"] == "report" { Value::Bool(true) } else { Value::Null };
        assert_eq!(row["pass"], pass, "{row}");
    }
    rows
}

/// What all rows have under `key`.
fn texts<'a>(rows: impl IntoIterator<Item = &'a Value>, key: &str) -> Vec<&'a str> {
    rows.into_iter().map(|row| row[key].as_str().expect(key)).collect()
}

fn have_ratios<'a>(rows: impl IntoIterator<Item = &'a Value>) -> bool {
    rows.into_iter().all(|row| row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0))
}

fn with_target(rows: &[Value]) -> Vec<&Value> {
    rows.iter().filter(|row| row["target"] != "report").collect()
}

#[test]
fn writes_are_compared_and_their_cpu_time_is_told() {
    let rows = rows("MTU 1024");
    let names = texts(&rows, "measure");
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
fn calls_are_compared_with_three_things() {
    let rows = rows("64-byte call, blocking");
    let targets: Vec<_> = texts(&rows, "target").into_iter().step_by(3).collect();
    assert_eq!(targets, ["<= 1.15", "report", "<= 0.8"]);
}

#[test]
fn c_libraries_are_compared_with_the_rust_api() {
    let rows = rows_of(&["capi"], "naa_");
    let rows = with_target(&rows);
    assert_eq!(texts(rows.iter().copied(), "target"), ["<= 1.05", "<= 1.05", "<= 1.2", "<= 1.0"]);
    let (calls, blocked) = rows.split_at(3);
    assert!(have_ratios(calls.iter().copied()), "{calls:?}");
    assert_eq!((&blocked[0]["unit"], &blocked[0]["reference"]), (&"%".into(), &Value::Null));
}

#[test]
fn the_bridge_is_compared_with_what_is_left_out_or_taken_instead() {
    let rows = rows_of(&["bridge"], "1 MiB events, store, vs");
    let rows = with_target(&rows);
    let with_zeromq = [">= 0.85", ">= 1.15"];
    assert_eq!(
        texts(rows.iter().copied(), "target"),
        with_zeromq[..if cfg!(feature = "zeromq") { 2 } else { 1 }]
    );
    assert!(have_ratios(rows.iter().copied()), "{rows:?}");
    let rows = rows_of(&["bridge"], "last segment received");
    assert_eq!((texts(&rows, "target"), &rows[0]["unit"]), (vec!["<= 1000.0"], &"us".into()));
    let rows = rows_of(&["bridge"], "MTU 9000");
    let ends = texts(&rows, "measure");
    for end in ["CPU of bridge", "CPU of worker"] {
        assert!(ends.iter().any(|name| name.ends_with(end)), "{end}: {ends:?}");
    }
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
    for (arguments, why) in [
        (&["--only", "no such thing"][..], "naa bench --list"),
        (&["capi", "--only", "no such thing"], "naa bench capi --list"),
        (&["--only", "roce ", "--json", "/nonexistent/bench.json"], "cannot write /nonexistent/bench.json"),
    ] {
        let output = bench(arguments);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }
    assert!(fs::metadata("/nonexistent").is_err());
}

/// `naa bench layouts` on a few small workloads, into a folder of the test's own.
struct Layouts(std::path::PathBuf);

impl Layouts {
    const FEW: &str = "--quick --repeats 2 --provider embedded --params 3,8 --bytes 64 --direction";

    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("naa-bench-layouts-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).expect(name)
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.file("layouts.json")).expect("JSON")
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let out = self.0.to_str().expect("a path in UTF-8");
        bench(&[&["layouts", "--out", out], arguments].concat())
    }

    /// Starts a measurement, or continues one.
    #[track_caller]
    fn measure(&self, direction: &str, more: &[&str]) -> Output {
        let output = self.run(&[&Self::FEW.split(' ').collect::<Vec<_>>()[..], &[direction], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        output
    }
}

impl Drop for Layouts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Lines that say what is being measured.
fn measured(output: &Output) -> usize {
    text(&output.stderr).lines().filter(|line| line.starts_with("measuring ")).count()
}

#[test]
fn layouts_are_measured_into_a_page_a_table_and_json() {
    let layouts = Layouts::new("outputs");
    let output = layouts.measure("both", &["--json", "-", "--fit"]);
    let run: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(run, layouts.json());
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&run), ["command", "machine", "points", "rows", "rules"]);
    let mut point = keys(&run["points"][0]);
    point.sort_unstable();
    let expected = "bytes calls direction first_us goodput host_cpu_us host_registered joules layout p50_us p99_us params \
                    provider repeats server_cpu_us server_registered setup_us sizes spread used wait";
    assert_eq!(point.join(" "), expected);
    let points = run["points"].as_array().expect("points");
    // 3 and 8 parameters, equal and mixed by spinning ends, equal by ones that block.
    assert_eq!((measured(&output), points.len()), (6, 6 * 5));
    let layouts_of = |workload: usize| texts(&points[5 * workload..][..5], "layout");
    let expected = ["symmetric", "asymmetric", "gathered", "packed:1024", "auto"];
    assert!((0..6).all(|workload| layouts_of(workload) == expected), "{points:?}");
    for point in points {
        let positive = |key: &str| point[key].as_f64().is_some_and(|number| number > 0.0);
        assert!(["setup_us", "first_us", "p50_us", "p99_us", "goodput"].into_iter().all(positive), "{point}");
        let used = point["used"].as_str().expect("a name");
        assert!(point["layout"] == "auto" || point["layout"] == used, "{point}");
    }
    let csv = layouts.file("layouts.csv");
    assert!(csv.starts_with("byte_length,setup_time,transfer_time,provider,wait,layout,used,"), "{csv}");
    assert_eq!(csv.lines().count(), points.len() + 1);
    let html = layouts.file("layouts.html");
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("packed:1024"), "{html}");
    assert!(!html.contains("http://") && !html.contains("https://"), "the page needs nothing else");
    let table = text(&output.stderr);
    assert!(table.contains("export NAA_LAYOUT_RULE=packed:"), "{table}");
}

#[test]
fn a_run_of_layouts_goes_on_where_it_was_broken_off() {
    let layouts = Layouts::new("resume");
    layouts.measure("out", &["--wait", "block"]);
    let complete = layouts.json();
    let points = complete["points"].as_array().expect("points");
    let output = layouts.measure("out", &["--wait", "block", "--resume"]);
    assert_eq!((measured(&output), layouts.json()), (0, complete.clone()));
    // As if it had ended after the first workload.
    let mut begun = complete.clone();
    begun["points"] = points[..5].into();
    fs::write(layouts.0.join("layouts.json"), begun.to_string()).expect("a file");
    let output = layouts.measure("out", &["--wait", "block", "--resume"]);
    assert_eq!(measured(&output), points.len() / 5 - 1);
    assert_eq!(layouts.json()["points"].as_array().expect("points")[..5], points[..5]);
    assert_eq!(layouts.json()["points"].as_array().map(Vec::len), Some(points.len()));

    let output = layouts.run(&["--quick", "--resume"]);
    let why = text(&output.stderr);
    assert!(!output.status.success() && why.contains("another --out"), "{why}");
    let json = layouts.0.join("layouts.json");
    let output = layouts.run(&["--fit", "--from", json.to_str().expect("a path in UTF-8")]);
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("export NAA_LAYOUT_RULE=packed:"), "{table}");
    // Nothing is lost by forgetting to say it.
    layouts.measure("out", &["--wait", "block", "--params", "1"]);
    assert!(layouts.file("layouts.old.json").contains("\"points\""));
}

#[test]
fn a_control_plane_is_measured_beside_bare_grpc() {
    let rows = rows_of(&["lb"], "SendState");
    let compared: Vec<_> = rows.iter().filter(|row| row["unit"] == "per s").collect();
    let name = |clients| format!("SendState per second, {clients}, vs bare gRPC (tonic) echo");
    assert_eq!(texts(compared.iter().copied(), "measure"), [name("1 client"), name("64 clients")]);
    assert!(have_ratios(compared), "{rows:?}");
}
