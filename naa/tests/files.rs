//! `naa call` on many files.

mod common;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    net::UdpSocket,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use common::{ServerProcess, TempFolder, hard, naa, run, stderr, text, wait_at_most};
use serde_json::Value;

fn call(server: &ServerProcess, rest: &[&str]) -> Output {
    run(&[&["call", "--server", &server.name()], rest].concat())
}

#[track_caller]
fn succeeds(server: &ServerProcess, rest: &[&str]) -> String {
    let output = call(server, rest);
    assert!(output.status.success(), "{rest:?}: {}", stderr(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Files of all kinds of sizes and names, in folders.
fn fill(folder: &Path) {
    fs::create_dir_all(folder.join("deep/er")).expect("folders");
    let content = text(300_000);
    for index in 0..120 {
        let name = if index % 3 == 0 { format!("deep/er/file {index}") } else { format!("file-{index}") };
        fs::write(folder.join(name), &content[..index * 2000]).expect("a file");
    }
    fs::write(folder.join("deep/back\\slash"), "x").expect("a file");
    fs::write(folder.join("large"), text(20_000_000)).expect("a file");
}

/// Names below `folder` with contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    fn collect(at: &Path, root: &Path, all: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(at).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                collect(&path, root, all);
            } else {
                let name = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
                all.insert(name, fs::read(&path).expect("a file"));
            }
        }
    }
    let mut all = BTreeMap::new();
    if folder.is_dir() {
        collect(folder, folder, &mut all);
    }
    all
}

fn plus_one(content: &[u8]) -> Vec<u8> {
    content.iter().map(|byte| byte.wrapping_add(1)).collect()
}

#[test]
fn folders_go_there_and_back() {
    let server = ServerProcess::start("127.0.6.1");
    let folder = TempFolder::new("folders");
    let [data, packed, back] = ["data", "packed", "back"].map(|name| folder.file(name));
    fill(data.as_ref());
    for method in ["zstd", "lz4"] {
        let [pack, unpack] = ["compress", "decompress"].map(|what| format!("{method}-{what}"));
        succeeds(&server, &[&pack, "--in-dir", &data, "--out-dir", &packed, "--sessions", "3"]);
        succeeds(&server, &[&unpack, "--in-dir", &packed, "--out-dir", &back]);
        assert!(contents(back.as_ref()) == contents(data.as_ref()), "{method}");
        let suffix = if method == "zstd" { ".zst" } else { ".lz4" };
        let names: Vec<_> = contents(packed.as_ref()).into_keys().collect();
        assert!(names.len() == 122 && names.iter().all(|name| name.ends_with(suffix)), "{names:?}");
        fs::remove_dir_all(&packed).expect("a folder");
        fs::remove_dir_all(&back).expect("a folder");
    }
    // Results beside their inputs, and again: results are no inputs.
    let before = contents(data.as_ref());
    for _ in 0..2 {
        succeeds(&server, &["sha256", "--in-dir", &data, "--out-dir", &data, "--suffix", ".sum"]);
        let mut now = contents(data.as_ref());
        assert_eq!(now.len(), 2 * before.len());
        now.retain(|name, content| !name.ends_with(".sum") || content.len() != 32);
        assert!(now == before);
    }
}

#[test]
fn sums_of_many_files_are_read_by_sha256sum() {
    let server = ServerProcess::start("127.0.6.2");
    let folder = TempFolder::new("sums");
    fill(&folder.0.join("data"));
    let mut command = naa(&["call", "sha256", "--server", &server.name(), "--in-dir", "data"]);
    let sums = command.current_dir(&folder.0).output().expect("the binary runs");
    assert!(sums.status.success(), "{}", stderr(&sums));
    assert!(stderr(&sums).contains("122 files, "), "{}", stderr(&sums));
    let mut check = Command::new("sha256sum");
    check.args(["-c", "--strict", "--quiet"]).current_dir(&folder.0).stdin(Stdio::piped());
    let mut check = check.spawn().expect("sha256sum runs");
    check.stdin.take().expect("piped").write_all(&sums.stdout).expect("it reads");
    assert!(check.wait().expect("it ends").success());

    let pattern = folder.file("data/**/file*7");
    let lines = succeeds(&server, &["crc32c", "--in", &pattern, "--json"]);
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 12);
    for row in &rows {
        let file = row["inputs"][0].as_str().expect("its name");
        let expected = naa_server::functions::crc32c::compute(&fs::read(file).expect("it"));
        assert_eq!(row["result"], format!("{expected:08x}"));
        assert_eq!((&row["status"], &row["code"]), (&"done".into(), &0.into()));
    }
    let names: Vec<_> = rows.iter().map(|row| row["inputs"][0].as_str().expect("its name")).collect();
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn one_failed_file_does_not_stop_the_others() {
    let server = ServerProcess::start("127.0.6.3");
    let folder = TempFolder::new("one-fails");
    let (data, out) = (folder.file("data"), folder.file("out"));
    fill(data.as_ref());
    let packed = folder.file("packed");
    succeeds(&server, &["lz4-compress", "--in-dir", &data, "--out-dir", &packed]);
    for name in ["bad-1.lz4", "bad-2.lz4"] {
        fs::write(Path::new(&packed).join(name), "no frame").expect("a file");
    }
    fs::write(Path::new(&packed).join("other"), "no suffix").expect("a file");
    let arguments = ["lz4-decompress", "--in-dir", &packed, "--out-dir", &out, "--json"];
    let failed = call(&server, &arguments);
    let said = stderr(&failed);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    let last = said.lines().last().expect("the failures");
    assert!(last.contains("3 of 125 files failed: ") && last.contains("bad-1.lz4"), "{said}");
    assert!(last.contains("bad-2.lz4") && last.contains("other") && said.contains("--suffix"), "{said}");
    assert!(contents(out.as_ref()) == contents(data.as_ref()));
    let rows = String::from_utf8(failed.stdout).expect("text");
    let rows: Vec<Value> = rows.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert_eq!((rows.len(), of("done"), of("failed")), (125, 122, 3));
    let bad =
        rows.iter().find(|row| row["inputs"][0].as_str().is_some_and(|name| name.ends_with("bad-1.lz4")));
    let bad = bad.expect("its row");
    assert!(bad["error"].is_string() && bad["code"].as_u64() > Some(0), "{bad}");

    let gone = call(&server, &["sha256", "--in", &packed, "/nonexistent", &format!("{packed}/other")]);
    assert!(stderr(&gone).contains("2 of 3 files failed"), "{}", stderr(&gone));
    assert_eq!(gone.stdout.iter().filter(|&&byte| byte == b'\n').count(), 1);
    let lost = run(&["call", "sha256", "--server", "127.0.6.3:9", "--in-dir", &data]);
    assert!(stderr(&lost).contains("122 of 122 files are not done"), "{}", stderr(&lost));
}

#[test]
fn a_full_server_serves_with_fewer_sessions() {
    let mut command = naa(&["serve", "--bind", "127.0.6.4", "--port", "0", "--json", "--max-sessions", "1"]);
    let server = ServerProcess::spawn(&mut command);
    let folder = TempFolder::new("full");
    let (data, out) = (folder.file("data"), folder.file("out"));
    fill(data.as_ref());
    succeeds(&server, &["increment", "--in-dir", &data, "--out-dir", &out, "--sessions", "4"]);
    let expected: BTreeMap<_, _> =
        contents(data.as_ref()).into_iter().map(|(name, content)| (name, plus_one(&content))).collect();
    assert!(contents(out.as_ref()) == expected);
}

#[test]
fn interrupted_runs_are_resumed() {
    let server = ServerProcess::start("127.0.6.5");
    let folder = TempFolder::new("resume");
    let (data, out) = (folder.file("data"), folder.file("out"));
    fill(data.as_ref());
    let expected: BTreeMap<_, _> =
        contents(data.as_ref()).into_iter().map(|(name, content)| (name, plus_one(&content))).collect();
    let name = server.name();
    let arguments =
        ["call", "increment", "--server", &name, "--in-dir", &data, "--out-dir", &out, "--resume", "--json"];
    for delay in [5, 15, 30, 60, 90, 120] {
        let mut host = naa(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a host");
        std::thread::sleep(Duration::from_millis(delay));
        host.kill().expect("it can be killed");
        host.wait().expect("it ends");
        for (name, content) in contents(out.as_ref()) {
            let partial = name.rsplit('/').next().is_some_and(|name| name.starts_with(".naa-"));
            assert!(partial || expected[&name] == content, "{name} after {delay} ms");
        }
    }
    fs::write(Path::new(&out).join(".naa-1-1.partial"), "of a dead process").expect("a file");
    assert!(run(&arguments).status.success());
    assert!(contents(out.as_ref()) == expected);

    let statuses = |output: Output| {
        let lines = String::from_utf8(output.stdout).expect("text");
        let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        rows.map(|row| row["status"].as_str().expect("a status").to_owned()).collect::<Vec<_>>()
    };
    assert!(statuses(run(&arguments)).iter().all(|status| status == "skipped"));
    fs::write(Path::new(&data).join("file-1"), [1, 2]).expect("a file");
    let again = statuses(run(&arguments));
    assert_eq!(again.iter().filter(|status| *status == "done").count(), 1);
    assert_eq!(fs::read(Path::new(&out).join("file-1")).expect("its result"), [2, 3]);
}

#[test]
fn a_signal_leaves_nothing_half_done() {
    let server = ServerProcess::start("127.0.6.6");
    let folder = TempFolder::new("signal");
    let (data, out) = (folder.with("data", &hard(32 << 20)), folder.file("out"));
    let name = server.name();
    let arguments = ["call", "zstd-compress", "--level", "19", "--server", &name, "--in", &data];
    for outputs in [["--out", &folder.file("data.zst")], ["--out-dir", &out]] {
        let mut host =
            naa(&[&arguments[..], &outputs].concat()).stderr(Stdio::piped()).spawn().expect("a host");
        std::thread::sleep(Duration::from_millis(500));
        let pid = host.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        let status = wait_at_most(&mut host, Duration::from_secs(5)).expect("it ends");
        assert_eq!(status.code(), Some(130));
        assert!(contents(out.as_ref()).is_empty() && !folder.names().contains(&"data.zst".to_owned()));
    }
}

#[test]
fn a_signal_ends_connecting_at_once() {
    // Takes packets and never answers.
    let silent = UdpSocket::bind("127.0.6.9:4791").expect("an address");
    let folder = TempFolder::new("connecting");
    let (data, out) = (folder.with("data", b"1"), folder.file("out"));
    for output in ["--out", "--out-dir"] {
        let arguments = ["call", "increment", "--server", "127.0.6.9", "--in", &data, output, &out];
        let mut host = naa(&arguments).stderr(Stdio::piped()).spawn().expect("a host");
        silent.recv_from(&mut [0; 512]).expect("a request");
        let pid = host.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill runs").success());
        let status = wait_at_most(&mut host, Duration::from_secs(1)).expect("it ends soon");
        assert_eq!(status.code(), Some(130));
        while silent.set_nonblocking(true).is_ok() && silent.recv_from(&mut [0; 512]).is_ok() {}
        silent.set_nonblocking(false).expect("blocking again");
    }
}

#[test]
fn standard_input_and_output() {
    let server = ServerProcess::start("127.0.6.7");
    let content = text(1_000_000);
    let pipe = |function: &str, input: &[u8]| {
        let arguments = ["call", function, "--server", &server.name(), "--in", "-", "--out", "-"];
        let mut command = naa(&arguments);
        let mut host = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a host");
        let mut stdin = host.stdin.take().expect("piped");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input).expect("it reads"));
        let output = host.wait_with_output().expect("it ends");
        writer.join().expect("written");
        assert!(output.status.success(), "{}", stderr(&output));
        output.stdout
    };
    let packed = pipe("zstd-compress", &content);
    assert!(packed.len() < 100_000 && pipe("zstd-decompress", &packed) == content);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let server = ServerProcess::start("127.0.6.8");
    let folder = TempFolder::new("refused");
    for name in ["a", "b"] {
        fs::create_dir_all(folder.file(name)).expect("a folder");
    }
    let files = [folder.with("a/x", b"1"), folder.with("b/x", b"2")];
    let (a, out) = (folder.file("a"), folder.file("out"));
    let refused = |rest: &[&str], why: &str| {
        let output = call(&server, rest);
        assert!(output.status.code() == Some(2) && stderr(&output).contains(why), "{}", stderr(&output));
    };
    refused(&["increment", "--in", &files[0], &files[1], "--out-dir", &out], "would both become");
    refused(&["increment", "--in-dir", &a, "--out-dir", &a], "overwritten");
    refused(&["increment", "--in-dir", &a], "--out-dir");
    refused(&["dgemm", "--in-dir", &a, "--out-dir", &out], "one input");
    refused(&["increment", "--in", &files[0], "--resume", "--out", &out], "--resume");
    refused(&["increment", "--in", &files[0], "--resume"], "--out-dir");
    refused(&["sort", "--in-dir", &a, "--out-dir", &out], "--type");
    let two = ["increment", "--in", &files[0], &files[1], "--out"];
    refused(&[&two[..], &["-", "-"]].concat(), "standard output would get two results");
    refused(&[&two[..], &[&out, &out]].concat(), "would be written twice");
    assert_eq!(folder.names(), ["a", "b"]);
    let none = call(&server, &["sha256", "--in", &folder.file("*.none")]);
    assert!(stderr(&none).contains("no file matches"), "{}", stderr(&none));
}
