//! The binary as people use it.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{ServerProcess, TempFolder, hard, json_of, naa, run, stderr, stdout_of, text, wait_at_most};
use serde_json::Value;

#[test]
fn demo_verifies_every_function() {
    let report = json_of(&["demo", "--quick", "--json", "-"]);
    let rows = report["rows"].as_array().expect("rows");
    for row in rows {
        let keys: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["bytes_in", "bytes_out", "function", "local_s", "offloaded_s", "verified"]);
        assert_eq!(row["verified"], true, "{row}");
        assert!(row["offloaded_s"].as_f64().is_some_and(|s| s > 0.0), "{row}");
    }
    for (_, name) in mrsp::builtin::NAMES {
        assert!(rows.iter().any(|row| row["function"] == *name), "{name} is missing");
    }
}

#[test]
fn demo_writes_the_table_and_a_file() {
    let folder = TempFolder::new("demo");
    let file = folder.file("rows.json");
    let table = stdout_of(&["demo", "--quick", "--json", &file]);
    for word in
        ["function", "bytes in", "bytes out", "local", "offloaded", "goodput", "verified", "all 41 results"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(report["rows"].as_array().map(Vec::len), Some(41));
}

#[test]
fn killed_demo_leaves_no_process() {
    let mut demo = naa(&["demo", "--full"]).stdout(Stdio::piped()).spawn().expect("a demonstration");
    let mut stdout = BufReader::new(demo.stdout.take().expect("piped"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("the first line");
    let server = line.split_whitespace().nth(1).expect("a process ID").to_owned();
    demo.kill().expect("it can be killed");
    demo.wait().expect("it ends");
    let start = Instant::now();
    let is_there = || {
        let status = fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    while is_there() {
        assert!(start.elapsed() < Duration::from_secs(15), "server {server} outlives the demonstration");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn checksums_are_those_of_the_files() {
    let server = ServerProcess::start("127.0.5.1");
    let folder = TempFolder::new("checksums");
    let content = text(3_000_001);
    let (large, empty) = (folder.with("large", &content), folder.with("empty", b""));
    let printed = stdout_of(&[
        "call",
        "sha256",
        "--server",
        &server.name(),
        "--local",
        "127.0.5.2",
        "--in",
        &large,
        &empty,
    ]);
    let line = |content: &[u8], file: &str| {
        let digits: String = naa_server::functions::sha256::compute(content)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("{digits}  {file}\n")
    };
    assert_eq!(printed, line(&content, &large) + &line(b"", &empty));
    let report = json_of(&["call", "17", "--server", &server.name(), "--in", &large, "--json"]);
    let expected = naa_server::functions::crc32c::compute(&content);
    assert_eq!(report["function"], "crc32c");
    assert_eq!(report["result"], format!("{expected:08x}"));
    assert_eq!((report["bytes_in"].as_u64(), report["code"].as_u64()), (Some(3_000_001), Some(0)));
}

#[test]
fn compression_gives_the_file_back() {
    let server = ServerProcess::start("127.0.5.3");
    let folder = TempFolder::new("compression");
    // More than four times the compressed size, so that the output must grow.
    let content = text(9_000_000);
    let file = folder.with("data", &content);
    for (method, suffix) in [("zstd", "zst"), ("lz4", "lz4")] {
        let (packed, unpacked) =
            (folder.file(&format!("data.{suffix}")), folder.file(&format!("{method}.out")));
        let call = |function: String, input: &str, output: &str| {
            stdout_of(&["call", &function, "--server", &server.name(), "--in", input, "--out", output])
        };
        call(format!("{method}-compress"), &file, &packed);
        assert!(fs::metadata(&packed).expect("the frame").len() < 1_000_000, "{method}");
        call(format!("{method}-decompress"), &packed, &unpacked);
        assert!(fs::read(&unpacked).expect("the original") == content, "{method}");
    }
    assert_eq!(folder.names(), ["data", "data.lz4", "data.zst", "lz4.out", "zstd.out"]);
}

#[test]
fn matrices_and_plain_functions() {
    let server = ServerProcess::start("127.0.5.4");
    let folder = TempFolder::new("matrices");
    let bytes = |numbers: &[f64]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let a = folder.with("a", &bytes(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let b = folder.with("b", &bytes(&[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]));
    let c = folder.file("c");
    stdout_of(&["call", "dgemm", "--server", &server.name(), "-m", "2", "--in", &a, &b, "--out", &c]);
    assert_eq!(fs::read(&c).expect("the product"), bytes(&[4.0, 5.0, 10.0, 11.0]));
    let cut = folder.with("cut", &bytes(&[1.0; 6])[..47]);
    for pair in [[&a, &cut], [&cut, &b]] {
        let arguments = ["call", "dgemm", "--server", &server.name(), "-m", "2", "--in", pair[0], pair[1]];
        let refused = run(&[&arguments[..], &["--out", &folder.file("none")]].concat());
        let said = stderr(&refused);
        assert!(
            refused.status.code() == Some(2) && said.contains(&cut) && said.contains("47 bytes"),
            "{said}"
        );
    }
    let (data, more) = (folder.with("data", &[0, 7, 255]), folder.file("more"));
    stdout_of(&["call", "increment", "--server", &server.name(), "--in", &data, "--out", &more]);
    assert_eq!(fs::read(&more).expect("the result"), [1, 8, 0]);
}

#[test]
fn arrays_of_numbers() {
    let server = ServerProcess::start("127.0.5.13");
    let folder = TempFolder::new("arrays");
    let name = server.name();
    let call = |rest: &[&str]| run(&[&["call", "--server", &name], rest].concat());
    let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let counts = |counts: &[u64]| counts.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let (a, b) = (folder.with("a", &bytes(&[3.0, -1.0, 0.5])), folder.with("b", &bytes(&[1.0, 1.0, 1.0])));
    let out = folder.file("out");
    assert!(call(&["vector-add", "--type", "f32", "--in", &a, &b, "--out", &out]).status.success());
    assert_eq!(fs::read(&out).expect("the sum"), bytes(&[4.0, 0.0, 1.5]));
    assert!(call(&["sort", "--type", "f32", "--descending", "--in", &a, "--out", &out]).status.success());
    assert_eq!(fs::read(&out).expect("in order"), bytes(&[3.0, 0.5, -1.0]));
    let histogram =
        ["histogram", "--type", "f32", "--bins", "2", "--range", "-1:1", "--in", &a, "--out", &out];
    assert!(call(&histogram).status.success());
    assert_eq!(fs::read(&out).expect("the counts"), counts(&[1, 1, 0, 1, 0]));

    let refused = |rest: &[&str], why: &str| {
        let output = call(&[rest, &["--out", &out]].concat());
        assert!(output.status.code() == Some(2) && stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&["sort", "--in", &a], "--type");
    refused(&["sort", "--type", "f64", "--in", &a], "12 bytes");
    refused(&["histogram", "--type", "f32", "--in", &a], "--range");
    refused(&["histogram", "--range", "2:1", "--in", &a], "larger");
    refused(&["vector-add", "--type", "f32", "--in", &a], "2 inputs");
    refused(&["vector-add", "--type", "f32", "--in", &a, &folder.with("c", &[0; 4])], "equally long");
}

#[test]
fn offloading_is_compared_with_computing_here() {
    let report = json_of(&["bench", "offload", "--quick", "--repeats", "2", "--json", "-"]);
    let rows = report["rows"].as_array().expect("rows");
    // 12 functions of 3 sizes with and without connecting, and their break-even sizes.
    assert_eq!(rows.len(), 12 * (3 * 2 + 1));
    for row in rows {
        let keys: Vec<_> = row.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["measure", "ours", "pass", "ratio", "reference", "spread", "target", "unit"]);
        assert_eq!((&row["target"], &row["pass"]), (&"report".into(), &true.into()), "{row}");
        let is_size = row["unit"] == "B";
        assert!(
            is_size || row["ours"].as_f64() > Some(0.0) && row["reference"].as_f64() > Some(0.0),
            "{row}"
        );
    }
    let unknown = run(&["bench", "offload", "--only", "nonsense"]);
    assert!(stderr(&unknown).contains("zstd-compress"), "{}", stderr(&unknown));
}

#[test]
fn energy_is_compared_where_it_is_counted() {
    let output = run(&["bench", "offload", "--quick", "--repeats", "2", "--json", "-", "--only", "crc32c"]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    let rows = report["rows"].as_array().expect("rows");
    let table = stderr(&output);
    let count = |unit: &str| rows.iter().filter(|row| row["unit"] == unit).count();
    // Three sizes, each with connecting and without.
    assert_eq!((count("us"), count("B")), (6, 1), "{table}");
    let energy = rows.iter().find(|row| row["measure"] == "crc32c, 1 KiB, energy, offloaded vs local");
    let told = (count("J"), energy.is_some(), table.contains("J/call local"));
    let why = table.lines().find(|line| line.starts_with("no energy: "));
    assert_eq!(told, if why.is_some() { (0, false, false) } else { (3, true, true) }, "{table}");
}

#[test]
fn other_measurements_are_the_program_beside() {
    let folder = TempFolder::new("beside");
    let naa = folder.file("naa");
    fs::hard_link(env!("CARGO_BIN_EXE_naa"), &naa)
        .or_else(|_| fs::copy(env!("CARGO_BIN_EXE_naa"), &naa).map(drop))
        .expect("a second name");
    let bench = |arguments: &[&str]| {
        let output = Command::new(&naa).arg("bench").args(arguments).output();
        output.expect("the binary runs")
    };
    let output = bench(&["--quick"]);
    assert_eq!(output.status.code(), Some(1));
    for part in [&folder.file("naa-bench"), "cargo build --release -p naa-benches"] {
        assert!(stderr(&output).contains(part), "{}", stderr(&output));
    }
    let program = folder.with("naa-bench", b"#!/bin/sh\necho \"$@\"\nexit 7\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the program is ours");
    let output = bench(&["--only", "a b", "--json", "-"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(7), "--only a b --json -\n"));
    let output = bench(&["offload", "--only", "nonsense"]);
    assert!(stderr(&output).contains("zstd-compress"), "{}", stderr(&output));
}

#[test]
fn failures_leave_no_file_and_name_the_remedy() {
    let server = ServerProcess::start("127.0.5.5");
    let folder = TempFolder::new("failures");
    let (data, out) = (folder.with("data", b"no frame at all"), folder.file("out"));
    let failed = run(&["call", "zstd-decompress", "--server", &server.name(), "--in", &data, "--out", &out]);
    assert_eq!(failed.status.code(), Some(1));
    let said = stderr(&failed);
    assert!(
        said.starts_with("naa: ") && said.contains(&server.name()) && said.contains("cannot be read"),
        "{said}"
    );
    assert_eq!(folder.names(), ["data"]);

    let wrong_port = run(&["call", "sha256", "--server", "127.0.5.5:9", "--in", &data]);
    assert_eq!(wrong_port.status.code(), Some(1));
    let said = stderr(&wrong_port);
    assert!(said.contains("127.0.5.5:9") && said.contains("naa serve"), "{said}");

    let without_input = run(&["call", "sha256", "--server", &server.name()]);
    assert_eq!(without_input.status.code(), Some(2), "{}", stderr(&without_input));
    assert!(stderr(&without_input).contains("--in"));
    let unknown = run(&["call", "no-such-function", "--server", &server.name(), "--in", &data]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("naa functions"));
    assert_eq!(run(&["call", "sha256"]).status.code(), Some(2));
}

#[test]
fn inputs_without_a_size_and_outputs_behind_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let server = ServerProcess::start("127.0.5.12");
    let folder = TempFolder::new("kinds");
    let name = server.name();
    let call = |rest: &[&str]| run(&[&["call", "--server", &name], rest].concat());
    let version = folder.with("version", &fs::read("/proc/version").expect("procfs"));
    let sums = stdout_of(&["call", "sha256", "--server", &name, "--in", "/proc/version", &version]);
    let digests: Vec<_> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(matches!(digests[..], [a, b] if a == b), "{sums}");

    let (secret, link) = (folder.with("secret", b"old"), folder.file("link"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("its mode");
    symlink("secret", &link).expect("a link");
    let data = folder.with("data", &[1, 2, 3]);
    assert!(call(&["increment", "--in", &data, "--out", &link]).status.success());
    assert_eq!(fs::read(&secret).expect("the result"), [2, 3, 4]);
    assert_eq!(fs::metadata(&secret).expect("a file").permissions().mode() & 0o777, 0o600);
    assert_eq!(folder.names(), ["data", "link", "secret", "version"]);
    assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());

    let piped = call(&["increment", "--in", &data, "--out", "-", "--json"]);
    assert_eq!(piped.stdout, [2, 3, 4]);
    assert!(stderr(&piped).starts_with('{'), "{}", stderr(&piped));

    let signal = folder.with("signal", &[0; 150 * 16]);
    let cut = call(&["fft", "-n", "7", "--in", &signal, "--out", &link]);
    let said = stderr(&cut);
    assert!(cut.status.code() == Some(2) && said.contains("-n is 7") && said.contains("150"), "{said}");
    let many = call(&["sha256", "--in", &data, &data, "--out", &link]);
    assert!(stderr(&many).contains("with --out, give one input"), "{}", stderr(&many));
}

#[test]
fn what_cannot_work_is_refused_at_once() {
    for option in [
        ["--path-mtu", "1500"],
        ["--memory", "0"],
        ["--session-memory", "0"],
        ["--max-sessions", "0"],
        ["--max-sessions-per-peer", "0"],
        ["--max-regions", "0"],
        ["--workers", "0"],
    ] {
        let refused = run(&["serve", option[0], option[1]]);
        assert!(refused.status.code() == Some(2) && stderr(&refused).contains(option[0]), "{option:?}");
    }
    for limit in
        [&["--behind-lb"][..], &["--max-open", "5"], &["--max-open-per-sender", "5"], &["--max-senders", "5"]]
    {
        let refused = run(&[&["serve", "--forward", "127.0.5.74"], limit].concat());
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(2), "{limit:?}: {said}");
        assert!(said.contains("--reassemble") && said.contains("--bridge"), "{limit:?}: {said}");
    }
    let refused = run(&["demo", "--quick", "--json", "/nonexistent/rows.json"]);
    assert!(refused.status.code() == Some(1) && refused.stdout.is_empty(), "{}", stderr(&refused));
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = naa(&["demo", "--quick"]).stdout(full).output().expect("the binary runs");
    assert!(stderr(&output).contains("cannot write standard output: "), "{}", stderr(&output));
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let server = ServerProcess::start("127.0.5.34");
    let list = |log: Stdio| {
        let name = server.name();
        let mut list = naa(&["functions", "--server", &name]);
        list.env("NAA_LOG", "info").stderr(log).output().expect("the binary runs")
    };
    let logged = list(Stdio::piped());
    assert!(stderr(&logged).contains("INFO"), "nothing is logged: {}", stderr(&logged));
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = list(full.into());
    assert!(output.status.success() && output.stdout == logged.stdout, "{}", output.status);
}

#[test]
fn an_error_that_cannot_be_written_is_still_an_exit_status() {
    let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut call = naa(&["call", "sha256", "--server", "127.0.5.35:1", "--in", "/nonexistent"]);
    let output = call.stderr(full).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_command_that_waits_says_for_what_unless_it_is_to_be_quiet() {
    // A socket that answers nothing.
    let silent = std::net::UdpSocket::bind("127.0.5.36:4791").expect("the address is ours");
    let ping = ["ping", "--server", "127.0.5.36", "--local", "127.0.5.37", "--timeout", "1.6"];
    let (waits, quiet) = (run(&ping), run(&[&ping[..], &["-q"]].concat()));
    drop(silent);
    let said = [&waits, &quiet].map(stderr);
    assert_eq!((waits.status.code(), quiet.status.code()), (Some(1), Some(1)), "{said:?}");
    assert!(
        said[0].starts_with("naa: connecting to 127.0.5.36:12345...\nnaa: 127.0.5.36:12345 "),
        "{said:?}"
    );
    assert!(said[1].starts_with("naa: 127.0.5.36:12345 ") && said[1].lines().count() == 1, "{said:?}");
}

#[test]
fn quiet_leaves_results() {
    let server = ServerProcess::start("127.0.5.38");
    let folder = TempFolder::new("quiet");
    folder.with("a", b"a");
    folder.with("b", b"b");
    let call = ["call", "sha256", "--server", &server.name(), "--in-dir", &folder.file("")];
    let (told, quiet) = (run(&call), run(&[&["-q"], &call[..]].concat()));
    assert_eq!(told.stdout, quiet.stdout);
    assert!(quiet.stdout.iter().filter(|byte| **byte == b'\n').count() == 2);
    for command in [
        &["demo", "-q", "bridge", "--help"][..],
        &["bridge", "-q", "status", "--help"],
        &["lb", "table", "-q", "--help"],
    ] {
        assert!(run(command).status.success(), "{command:?}");
    }
    assert!(stderr(&told).contains("2 files") && stderr(&quiet).is_empty(), "{}", stderr(&quiet));
}

#[test]
fn hosts_share_an_address() {
    let server = ServerProcess::start("127.0.5.6");
    let folder = TempFolder::new("hosts");
    let file = folder.with("data", &text(4 << 20));
    let arguments =
        ["call", "sha256", "--server", &server.name(), "--local", "127.0.5.7", "--in", &file, &file, &file];
    let start = || naa(&arguments).stdout(Stdio::piped()).spawn().expect("a host");
    let printed = [start(), start(), start()].map(|mut host| {
        let mut printed = String::new();
        host.stdout.take().expect("piped").read_to_string(&mut printed).expect("text");
        assert!(host.wait().expect("an end").success());
        printed
    });
    assert!(printed[0].lines().count() == 3 && printed.iter().all(|text| *text == printed[0]), "{printed:?}");
}

#[test]
fn server_that_dies_is_noticed() {
    let mut server = ServerProcess::start("127.0.5.8");
    let folder = TempFolder::new("dies");
    let file = folder.with("data", &hard(64 << 20));
    let out = folder.file("out");
    let arguments =
        ["call", "zstd-compress", "--level", "19", "--server", &server.name(), "--in", &file, "--out", &out];
    let mut host = naa(&arguments).stderr(Stdio::piped()).spawn().expect("a host");
    std::thread::sleep(Duration::from_secs(1));
    assert!(host.try_wait().expect("a child").is_none(), "the call is too short for this test");
    server.process.child.kill().expect("it can be killed");
    let status = wait_at_most(&mut host, Duration::from_secs(60)).expect("the host notices");
    let mut said = String::new();
    host.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert_eq!(status.code(), Some(1));
    assert!(said.contains(&server.name()) && said.contains("lost the accelerator"), "{said}");
    assert_eq!(folder.names(), ["data"]);
}

#[test]
fn calls_are_given_up_after_the_time_allowed() {
    let server = ServerProcess::start("127.0.5.9");
    let folder = TempFolder::new("timeout");
    let file = folder.with("data", &hard(64 << 20));
    let out = folder.file("out");
    let arguments = ["call", "zstd-compress", "--level", "19", "--timeout", "1", "--server"];
    let failed = run(&[&arguments[..], &[&server.name(), "--in", &file, "--out", &out]].concat());
    assert_eq!(failed.status.code(), Some(1));
    assert!(stderr(&failed).contains("--timeout"), "{}", stderr(&failed));
}

/// NAA_TIMEOUT does what --timeout does, which counts more.
#[test]
fn the_environment_limits_calls() {
    let server = ServerProcess::start("127.0.5.33");
    let folder = TempFolder::new("limit");
    let (hard, easy) = (folder.with("data", &hard(64 << 20)), folder.with("easy", b"abc"));
    let out = folder.file("out");
    let given_up = naa(&["call", "zstd-compress", "--level", "19", "--server", &server.name()])
        .args(["--in", &hard, "--out", &out])
        .env("NAA_TIMEOUT", "1")
        .output()
        .expect("the binary runs");
    assert_eq!(given_up.status.code(), Some(1));
    assert!(stderr(&given_up).contains("within 1s"), "{}", stderr(&given_up));
    let name = server.name();
    let call = |value: &str, more: &[&str]| {
        let arguments = [&["call", "sha256", "--server", &name, "--in", &easy], more].concat();
        naa(&arguments).env("NAA_TIMEOUT", value).output().expect("the binary runs")
    };
    let nonsense = call("soon", &[]);
    assert_eq!(nonsense.status.code(), Some(2));
    assert!(stderr(&nonsense).contains("NAA_TIMEOUT=soon: "), "{}", stderr(&nonsense));
    let explicit = call("soon", &["--timeout", "20"]);
    assert!(explicit.status.success(), "{}", stderr(&explicit));
}

#[test]
fn functions_are_listed() {
    let server = ServerProcess::start("127.0.5.10");
    let listed = json_of(&["functions", "--server", &server.name(), "--json"]);
    let functions = listed["functions"].as_array().expect("functions");
    let table = stdout_of(&["functions", "--server", &server.name()]);
    assert!(table.starts_with("code"), "{table}");
    for (code, name) in mrsp::builtin::NAMES {
        let found = functions.iter().find(|function| function["name"] == *name).expect("its entry");
        assert_eq!(found["code"], code.get());
        assert!(table.contains(name), "{name}: {table}");
    }
}

#[test]
fn pings_are_measured() {
    let server = ServerProcess::start("127.0.5.11");
    let report = json_of(&["ping", "--server", &server.name(), "-c", "200", "-s", "4096", "--json"]);
    assert_eq!((report["count"].as_u64(), report["size"].as_u64()), (Some(200), Some(4096)));
    let of = |key: &str| report[key].as_f64().unwrap_or_else(|| panic!("{key} in {report}"));
    let times = ["min_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"].map(of);
    assert!(times[0] > 1.0 && times.is_sorted(), "{report}");
    let text = stdout_of(&["ping", "--server", &server.name(), "-c", "10"]);
    assert!(
        text.contains(", path MTU ") && text.contains("10 calls of 64 B") && text.contains("p99.9"),
        "{text}"
    );
}

#[test]
fn sizes_of_pings_have_units_and_a_limit_that_is_told() {
    let server = ServerProcess::start("127.0.5.64");
    let ping = |size: &str| run(&["ping", "--server", &server.name(), "-c", "2", "--json", "--size", size]);
    let report: Value = serde_json::from_slice(&ping("1M").stdout).expect("one JSON object");
    assert_eq!(report["size"].as_u64(), Some(1 << 20));
    for bad in ["3G", "2147483649", "0", "many"] {
        let refused = ping(bad);
        assert!(refused.status.code() == Some(2) && stderr(&refused).contains("from 1 to 2G"), "{bad}");
    }
    let refused = run(&["rping", "-c", "-a", "127.0.5.64", "-S", "65K"]);
    assert!(refused.status.code() == Some(2) && stderr(&refused).contains("from 24 to 64K"));
}

#[test]
fn rping_ends_quietly_when_nobody_reads_its_output() {
    let mut server = naa(&["rping", "-s", "-a", "127.0.5.65", "-v"]);
    let mut server = server.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a server");
    let mut line = String::new();
    let mut told = BufReader::new(server.stderr.take().expect("piped"));
    told.read_line(&mut line).expect("the server listens");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let client = naa(&["rping", "-c", "-a", "127.0.5.65", "-I", "127.0.5.66", "-S", "1K", "-C", "3", "-v"])
        .stdout(writer)
        .output()
        .expect("the binary runs");
    let ended = wait_at_most(&mut server, Duration::from_secs(5));
    let _ = server.kill();
    assert!(client.status.success() && stderr(&client).is_empty(), "{}: {}", client.status, stderr(&client));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

#[test]
fn what_cannot_be_decompressed_is_named_and_said_to_be_no_frame() {
    let server = ServerProcess::start("127.0.5.67");
    let folder = TempFolder::new("no-frame");
    let (file, out) = (folder.with("plain.txt", b"this is no frame"), folder.file("out"));
    for (function, format) in [("zstd-decompress", "zstd"), ("lz4-decompress", "LZ4")] {
        let call = ["call", function, "--server", &server.name(), "--in", &file, "--out", &out];
        let failed = run(&call);
        let said = stderr(&failed);
        assert_eq!(failed.status.code(), Some(1), "{said}");
        assert!(said.contains("plain.txt") && said.contains(&format!("no {format} frame")), "{said}");
    }
}

#[test]
fn help_teaches() {
    for command in ["demo", "serve", "call", "functions", "ping", "bench", "ejfat"] {
        let help = stdout_of(&[command, "--help"]);
        assert!(help.contains("Examples:") && help.contains(&format!("naa {command}")), "{help}");
    }
    assert!(stdout_of(&["--help"]).contains("naa demo"));
    assert!(stdout_of(&["--version"]).starts_with("naa "));
    for shell in ["bash", "zsh", "fish"] {
        assert!(stdout_of(&["completions", shell]).contains("naa"));
    }
    for (page, title) in [(&["man"][..], ".TH naa 1"), (&["man", "call"], ".TH naa-call 1")] {
        let text = stdout_of(page);
        assert!(text.contains(title) && text.contains("sha256"), "{text}");
    }
    assert_eq!(run(&["nonsense"]).status.code(), Some(2));
}
