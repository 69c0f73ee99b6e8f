//! Kernels in C, served by `naa serve --kernels` in processes of their own.

mod common;

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{ServerProcess, TempFolder, json_of, naa, run, stderr};
use naa_host::{Device, FunctionCode, Layout, LayoutChoice, Param, Session, SessionConfig, U24};

const MULTIPLY: FunctionCode = FunctionCode::constant(96);
const INCREMENT: FunctionCode = FunctionCode::constant(97);
const SEVERAL: FunctionCode = FunctionCode::constant(98);
const HARM: FunctionCode = FunctionCode::constant(126);

/// Compiles the kernels, one way or another.
fn compile(folder: &TempFolder, wrong: u32) -> String {
    let library = folder.file(&format!("kernels-{wrong}.so"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let status = Command::new("cc")
        .args(["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"])
        .arg(format!("-DWRONG={wrong}"))
        .arg("-I")
        .arg(root.join("../bindings/capi/include"))
        .arg(root.join("tests/kernels/kernels.c"))
        .args(["-o", &library])
        .status();
    assert!(status.expect("a C compiler").success());
    library
}

/// Compiles the example, as C and as C++.
fn compile_example(folder: &TempFolder, compiler: &str, language: &[&str]) -> String {
    let library = folder.file(&format!("example-{}.so", language.concat()));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let status = Command::new(compiler)
        .args(language)
        .args(["-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"])
        .arg("-I")
        .arg(root.join("bindings/capi/include"))
        .arg(root.join("examples/kernels/example.c"))
        .args(["-o", &library])
        .status();
    assert!(status.expect("a compiler").success(), "{compiler} {language:?}");
    library
}

/// A server with the kernels, on an address of the test's own, where it knows the others'.
fn serve(bind: &str, library: &str, more: &[&str]) -> ServerProcess {
    let arguments =
        [&["serve", "--bind", bind, "--port", "0", "--json", "--kernels", library], more].concat();
    ServerProcess::spawn(naa(&arguments).stderr(Stdio::piped()))
}

fn connect(peer: SocketAddr, params: &[Param<'_>]) -> Session {
    let device = Device::towards(peer).expect("a device");
    Session::connect(&device, peer, params, &SessionConfig::default()).expect("a session")
}

/// A session whose kernel does what it is told.
struct Harmed(Session);

impl Harmed {
    fn new(peer: SocketAddr) -> Self {
        Self(connect(peer, &[Param::input(64), Param::output(64)]))
    }

    /// 0, or the return code.
    fn call(&mut self, sort: u8) -> u32 {
        self.0.write(0, 0, &[sort]).expect("between calls");
        match self.0.call(HARM) {
            Ok(()) => 0,
            Err(error) => error.return_code().unwrap_or_else(|| panic!("sort {sort}: {error}")).get(),
        }
    }

    /// The process that runs its kernels.
    fn process(&mut self) -> u32 {
        assert_eq!(self.call(0), 0);
        let out = self.0.slice(1).expect("between calls");
        assert_eq!(out[4], 1, "no core dumps, and the server is its parent");
        u32::from_le_bytes(out[..4].try_into().expect("4 bytes"))
    }
}

fn is_running(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[track_caller]
fn gone_within(processes: &[u32], limit: Duration) {
    let end = Instant::now() + limit;
    while processes.iter().any(|process| is_running(*process)) {
        assert!(Instant::now() < end, "{processes:?} are not gone after {limit:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Inodes of the sessions' memory that the process maps.
fn regions_of(process: u32) -> BTreeSet<String> {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("a process");
    let regions = maps.lines().filter(|line| line.contains("/memfd:naa-region"));
    regions.map(|line| line.split_whitespace().nth(4).expect("an inode").to_owned()).collect()
}

#[test]
fn kernels_compute() {
    let folder = TempFolder::new("kernels");
    let server = serve("127.0.71.1", &compile(&folder, 0), &[]);
    let functions = json_of(&["functions", "--server", &server.name(), "--json"]);
    let listed = functions["functions"].as_array().expect("functions");
    let multiply = listed.iter().find(|f| f["code"] == 96).expect("a kernel in the catalogue");
    assert_eq!((multiply["name"].as_str(), multiply["pooled"].as_bool()), (Some("multiply"), Some(true)));
    assert_eq!(multiply["parameters"][2]["direction"], "output");
    assert_eq!(multiply["parameters"][0]["description"], "n rows of n");

    let n = 48_usize;
    let matrix = |step: usize| -> Vec<u8> {
        (0..n * n).flat_map(|i| ((i * step % 17) as f64).to_le_bytes()).collect()
    };
    let (a, b) = (matrix(3), matrix(5));
    let mut session = connect(server.address, &[Param::data(&a), Param::data(&b), Param::output(n * n * 8)]);
    let rows = U24::new(n as u32).expect("small");
    session.invoke(MULTIPLY, rows).expect("posted");
    let _ = session.wait().expect("answered").into_result().expect("computed");
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        bytes.chunks_exact(8).map(|c| f64::from_le_bytes(c.try_into().expect("8 bytes"))).collect()
    };
    let (a, b, c) = (numbers(&a), numbers(&b), numbers(session.slice(2).expect("between calls")));
    for (at, found) in c.iter().enumerate() {
        let right: f64 = (0..n).map(|k| a[at / n * n + k] * b[k * n + at % n]).sum();
        assert_eq!(*found, right, "element {at}");
    }
    session.invoke(MULTIPLY, U24::new(49).expect("small")).expect("posted");
    let refused = session.wait().expect("answered").into_result().expect_err("too many rows");
    assert_eq!(refused.return_code().map(|code| code.get()), Some(0x11));
    session.finalize().expect("goodbye");

    // The parameters differ from those that the kernel declared.
    let mut session = connect(server.address, &[Param::output(8), Param::input(8), Param::output(8)]);
    let refused = session.call(MULTIPLY).expect_err("an output first");
    assert_eq!(refused.return_code().map(|code| code.get()), Some(0x11));
}

#[test]
fn regions_of_every_kind_are_seen_in_place() {
    let folder = TempFolder::new("kernels-regions");
    let server = serve("127.0.71.2", &compile(&folder, 0), &[]);
    let params = [Param::data(&[1, 2, 3, 4]), Param::output(16), Param::output(2), Param::internal(5000)];
    let mut session = connect(server.address, &params);
    for call in 1..=3 {
        session.invoke(SEVERAL, U24::new(42).expect("small")).expect("posted");
        let _ = session.wait().expect("answered").into_result().expect("computed");
        // Bytes after the produced ones are not sent.
        assert_eq!(session.slice(1).expect("an output")[..4], [call, 10, 42, 0]);
        assert_eq!(session.slice(2).expect("an output"), [1, 2]);
    }
    session.finalize().expect("goodbye");

    let mut session = connect(server.address, &params[..3]);
    let refused = session.call(SEVERAL).expect_err("no internal region");
    assert_eq!(refused.return_code().map(|code| code.get()), Some(0x11));

    // In place, empty, and larger than a page; a built-in function between kernels.
    let big: Vec<u8> = (0..3_000_000_u32).map(|i| i as u8).collect();
    let mut session = connect(
        server.address,
        &[Param::in_out(big.len()).holding(&big), Param::in_out(0), Param::in_out(1)],
    );
    for (function, by) in [(INCREMENT, 1), (FunctionCode::constant(2), 3), (INCREMENT, 4), (INCREMENT, 5)] {
        session.call(function).expect("computed");
        let found = session.slice(0).expect("an output");
        assert!(found.iter().zip(&big).all(|(found, before)| *found == before.wrapping_add(by)), "{by}");
        assert_eq!(session.slice(2).expect("an output"), [by]);
    }
}

#[test]
fn a_session_may_have_many_regions() {
    let folder = TempFolder::new("kernels-regions-many");
    let server = serve("127.0.71.10", &compile(&folder, 0), &["--max-regions", "200"]);
    let device = Device::towards(server.address).expect("a device");
    let params: Vec<_> = (0..150).map(Param::in_out).collect();
    let config = SessionConfig { max_regions: 200, ..SessionConfig::default() };
    let mut session = Session::connect(&device, server.address, &params, &config).expect("a session");
    for call in 1..=2 {
        session.call(INCREMENT).expect("computed");
        for (at, param) in (0..150).map(|at| (at, session.slice(at).expect("between calls"))) {
            assert!(param.len() == at && param.iter().all(|byte| *byte == call), "region {at}");
        }
    }
}

#[test]
fn parameters_may_start_anywhere_in_a_common_region() {
    let folder = TempFolder::new("kernels-layouts");
    let server = serve("127.0.71.20", &compile(&folder, 0), &[]);
    let device = Device::towards(server.address).expect("a device");
    let packed = |threshold| Layout::Packed { threshold };
    for layout in [Layout::Asymmetric, Layout::Gathered, packed(5000), packed(1 << 21)] {
        let config = SessionConfig { layout: LayoutChoice::Fixed(layout), ..SessionConfig::default() };
        let connect = |params: &[Param<'_>]| {
            let session = Session::connect(&device, server.address, params, &config).expect("a session");
            assert_eq!(session.layout(), layout);
            session
        };
        // Before, in and behind pages; a built-in function between kernels.
        let sizes = [1, 0, 4095, 130, 4097, 64, 70_001, 0, 5];
        let holding = |size| -> Vec<u8> { (0..size).map(|i| (i + size) as u8).collect() };
        let before = sizes.map(holding);
        let params: Vec<_> = before.iter().map(|of| Param::in_out(of.len()).holding(of)).collect();
        let mut session = connect(&[&params[..], &[Param::internal(777)]].concat());
        for (function, by) in [(INCREMENT, 1), (FunctionCode::constant(2), 3), (INCREMENT, 4)] {
            session.call(function).expect("computed");
            for (at, before) in before.iter().enumerate() {
                let expected: Vec<_> = before.iter().map(|byte| byte.wrapping_add(by)).collect();
                assert!(session.slice(at).expect("an output") == expected, "{layout}, parameter {at}, +{by}");
            }
        }

        // The matrices have n rows. Their numbers are aligned, whatever parameters come before them.
        let n = 5_usize;
        let bytes = |number: fn(usize) -> f64| -> Vec<u8> {
            (0..n * n).flat_map(|i| number(i).to_le_bytes()).collect()
        };
        let (a, twice) = (bytes(|i| i as f64), bytes(|i| if i % 6 == 0 { 2.0 } else { 0.0 }));
        let mut session =
            connect(&[Param::data(&a), Param::data(&twice), Param::output(n * n * 8), Param::input(3)]);
        for _ in 0..2 {
            session.invoke(MULTIPLY, U24::new(n as u32).expect("small")).expect("posted");
            let _ = session.wait().expect("answered").into_result().expect("computed");
            assert_eq!(session.slice(2).expect("an output"), bytes(|i| 2.0 * i as f64), "{layout}");
        }
    }
}

#[test]
fn the_example_compiles_as_c_and_cpp_and_computes() {
    let folder = TempFolder::new("kernels-example");
    for (bind, compiler, language) in
        [("127.0.71.11", "cc", &["-std=c11"][..]), ("127.0.71.12", "c++", &["-x", "c++", "-std=c++17"])]
    {
        let server = serve(bind, &compile_example(&folder, compiler, language), &[]);
        let bytes = |numbers: &[f64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
        let (a, x, y) = (bytes(&[2.0]), bytes(&[1.0, 2.0, 3.0]), bytes(&[10.0, 20.0, 30.0]));
        let params = [Param::data(&a), Param::data(&x), Param::in_out(24).holding(&y)];
        let mut session = connect(server.address, &params);
        session.call(FunctionCode::constant(96)).expect("computed");
        assert_eq!(session.slice(2).expect("an output"), bytes(&[12.0, 24.0, 36.0]));

        let values = bytes(&[1.0, f64::NAN, 3.0]);
        let mut session = connect(server.address, &[Param::data(&values), Param::output(16)]);
        session.call(FunctionCode::constant(97)).expect("computed");
        assert_eq!(session.slice(1).expect("an output"), bytes(&[1.0, 3.0]));
    }
}

#[test]
fn files_are_mapped_to_parameters_as_the_catalogue_says() {
    let folder = TempFolder::new("kernels-files");
    let server = serve("127.0.71.13", &compile_example(&folder, "cc", &["-std=c11"]), &[]);
    let bytes = |numbers: &[f64]| numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>();
    let (a, x) = (folder.with("a", &bytes(&[2.0])), folder.with("x", &bytes(&[1.0, 2.0, 3.0])));
    let (y, sum) = (folder.with("y", &bytes(&[10.0, 20.0, 30.0])), folder.file("sum"));
    let name = server.name();
    let call = |function: &str, files: &[&str]| {
        run(&[&["call", function, "--server", &name, "--in"], files].concat())
    };
    let called = call("axpy", &[&a, &x, &y, "--out", &sum]);
    assert!(called.status.success(), "{}", stderr(&called));
    assert_eq!(fs::read(&sum).expect("the result"), bytes(&[12.0, 24.0, 36.0]));
    assert_eq!(fs::read(&y).expect("an input"), bytes(&[10.0, 20.0, 30.0]), "inputs stay as they are");
    let called = call("axpy", &[&a, &x, &y, "--out", &y]);
    assert!(called.status.success(), "{}", stderr(&called));
    assert_eq!(
        fs::read(&y).expect("the result"),
        bytes(&[12.0, 24.0, 36.0]),
        "the result may take its place"
    );
    for files in
        [&[&*a, &x, "--out", &sum][..], &[&a, &x, &y], &[&a, &x, &y, "--out", &sum, "--out-size", "24"]]
    {
        let refused = call("axpy", files);
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("axpy takes 3 files at --in, 1 at --out and 0 sizes"), "{said}");
    }
    let values = folder.with("values", &bytes(&[1.0, f64::NAN, 3.0]));
    let called = call("drop-nan", &[&values, "--out", &sum, "--out-size", "24"]);
    assert!(called.status.success(), "{}", stderr(&called));
    assert_eq!(fs::read(&sum).expect("the result"), bytes(&[1.0, 3.0]));
}

#[test]
fn what_goes_wrong_costs_its_call() {
    let folder = TempFolder::new("kernels-harm");
    let server = serve("127.0.71.3", &compile(&folder, 0), &["--call-time", "1.5", "--kernel-memory", "64"]);
    let mut other = Harmed::new(server.address);
    let undisturbed = other.process();
    let mut session = Harmed::new(server.address);
    assert_eq!(session.call(7), 0x41);
    for (sort, code) in [(8, 0x14), (9, 0x14), (99, 0x12), (14, 0), (15, 0x42)] {
        let before = session.process();
        assert_eq!(session.call(sort), code, "sort {sort}");
        assert_eq!(session.process(), before, "sort {sort}: its process lives on");
    }
    assert_eq!(session.0.slice(1).expect("an output")[5], 64, "MiB");
    for sort in [1, 2, 3, 5, 6, 10, 11, 13] {
        let before = session.process();
        assert_eq!(session.call(sort), 0x14, "sort {sort}");
        assert!(!is_running(before), "sort {sort}");
        assert_ne!(session.process(), before, "sort {sort}");
    }
    // What it said too early is found out by the next call, if not at once.
    let before = session.process();
    let early = (session.call(12), session.call(0));
    assert!(early.0 == 0x14 || early.1 == 0x14, "{early:?}");
    assert_ne!(session.process(), before);

    let before = session.process();
    let begun = Instant::now();
    assert_eq!(session.call(4), 0x02);
    let took = begun.elapsed();
    assert!(took > Duration::from_millis(1400) && took < Duration::from_millis(2500), "{took:?}");
    assert!(!is_running(before));
    assert_ne!(session.process(), before, "the session goes on");
    assert_eq!(other.process(), undisturbed);

    let log = server.process.errors();
    for text in
        ["signal 11 (SIGSEGV)", "signal 6 (SIGABRT)", "ended by itself (exit status: 0)", "its time was over"]
    {
        assert!(log.contains(text), "{text}: {log}");
    }
}

#[test]
fn the_log_says_at_its_usual_level_what_a_kernel_said() {
    let folder = TempFolder::new("kernels-log");
    let mut command = naa(&["serve", "--bind", "127.0.71.14", "--port", "0", "--json", "--kernels"]);
    command.arg(compile(&folder, 0)).env_remove("NAA_LOG").stderr(Stdio::piped());
    let server = ServerProcess::spawn(&mut command);
    let input = folder.with("sort", &[7]);
    let out = folder.file("out");
    let server_name = server.name();
    let call = ["call", "harm", "--server", &server_name, "--in", &input, "--out", &out, "--out-size", "64"];
    let own = run(&call);
    let said = stderr(&own);
    assert_eq!(own.status.code(), Some(1), "{said}");
    assert!(
        said.contains("function 126") && said.contains("0x41") && said.contains("log may say more"),
        "{said}"
    );
    fs::write(&input, [1]).expect("a file");
    let crashed = stderr(&run(&call));
    assert!(crashed.contains("0x14") && crashed.contains("its log says more"), "{crashed}");
    // The call gives an output where `multiply` wants an input. `naa call` does not notice, because it looks up names only
    // and not numbers.
    let wrong = stderr(&run(&[
        "call",
        "96",
        "--server",
        &server_name,
        "--in",
        &input,
        "--out",
        &out,
        "--out-size",
        "8",
    ]));
    assert!(wrong.contains("0x11") && wrong.contains("log may say more"), "{wrong}");
    let log = server.process.errors();
    let line = |texts: &[&str]| {
        let all = |line: &&str| line.contains("WARN") && texts.iter().all(|text| line.contains(text));
        log.lines().find(all).unwrap_or_else(|| panic!("no line with {texts:?}: {log}"))
    };
    line(&["127.0.0.1", "kernel harm returned 0x41: as it was told"]);
    line(&["kernel harm failed", "signal 11 (SIGSEGV)"]);
    line(&["kernel multiply was not called: parameter 1 (b) is to be Input"]);
}

/// Processes that live on in the process group of `started`, which has ended.
fn orphans_of(started: u32) -> Vec<u32> {
    let group = |process: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
    };
    let all = fs::read_dir("/proc").expect("procfs").flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|process| *process != started && is_running(*process) && group(*process) == Some(started))
        .collect()
}

#[test]
fn a_kernel_that_forks_and_exits_costs_its_call_at_once() {
    let folder = TempFolder::new("kernels-fork");
    let server = serve("127.0.71.15", &compile(&folder, 0), &["--call-time", "60"]);
    let mut session = Harmed::new(server.address);
    for sort in [16, 17] {
        let before = session.process();
        let begun = Instant::now();
        assert_eq!(session.call(sort), 0x14, "sort {sort}");
        assert!(begun.elapsed() < Duration::from_secs(30), "sort {sort}: {:?}", begun.elapsed());
        assert!(!is_running(before), "sort {sort}");
        assert_ne!(session.process(), before, "sort {sort}: the session goes on");
        let end = Instant::now() + Duration::from_secs(5);
        while !orphans_of(before).is_empty() {
            assert!(Instant::now() < end, "sort {sort}: what the kernel forked lives on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    assert_eq!(session.call(18), 0, "a forked process has no mapping of the session's memory");
    let log = server.process.errors();
    assert!(log.contains("ended by itself (exit status: 7)"), "{log}");
}

#[test]
fn sessions_have_processes_of_their_own() {
    let folder = TempFolder::new("kernels-apart");
    let server = serve("127.0.71.4", &compile(&folder, 0), &[]);
    let (mut one, mut other) = (Harmed::new(server.address), Harmed::new(server.address));
    let (first, second) = (one.process(), other.process());
    assert_ne!(first, second);
    let (of_one, of_other) = (regions_of(first), regions_of(second));
    assert_eq!((of_one.len(), of_other.len()), (2, 2));
    assert!(of_one.is_disjoint(&of_other));
    let of_server = regions_of(server.process.child.id());
    assert!(of_one.union(&of_other).all(|region| of_server.contains(region)));
    let open = fs::read_dir(format!("/proc/{first}/fd")).expect("a process").count();
    assert_eq!(open, 4, "standard input, output, error and the socket");

    one.0.finalize().expect("goodbye");
    gone_within(&[first], Duration::from_secs(5));
    assert_eq!(other.process(), second);
    // The process of a session is killed when its host leaves during a call.
    let mut hangs = Harmed::new(server.address);
    let third = hangs.process();
    hangs.0.write(0, 0, &[4]).expect("between calls");
    hangs.0.invoke(HARM, U24::ZERO).expect("posted");
    std::thread::sleep(Duration::from_millis(50));
    assert!(is_running(third));
    drop(hangs);
    gone_within(&[third], Duration::from_secs(10));
    assert_eq!(other.process(), second);
}

#[test]
fn processes_go_with_the_server() {
    let folder = TempFolder::new("kernels-killed");
    let mut server = serve("127.0.71.5", &compile(&folder, 0), &[]);
    let mut sessions: Vec<_> = (0..4).map(|_| Harmed::new(server.address)).collect();
    let mut processes: Vec<_> = sessions.iter_mut().map(Harmed::process).collect();
    let hangs = &mut sessions[3].0;
    hangs.write(0, 0, &[4]).expect("between calls");
    hangs.invoke(HARM, U24::ZERO).expect("posted");
    std::thread::sleep(Duration::from_millis(100));
    assert!(processes.iter().all(|process| is_running(*process)));
    processes.push(server.process.child.id());
    server.process.kill();
    gone_within(&processes, Duration::from_secs(1));
}

#[test]
fn two_hundred_sessions_have_kernels() {
    let folder = TempFolder::new("kernels-many");
    let server = serve("127.0.71.6", &compile(&folder, 0), &[]);
    let mut sessions: Vec<_> = (0..200).map(|_| Harmed::new(server.address)).collect();
    let begun = Instant::now();
    let processes: BTreeSet<_> = sessions.iter_mut().map(Harmed::process).collect();
    println!("200 first calls: {:?}", begun.elapsed());
    assert_eq!(processes.len(), 200);
    let again: BTreeSet<_> = sessions.iter_mut().map(Harmed::process).collect();
    assert_eq!(again, processes);
    drop(sessions);
    gone_within(&processes.into_iter().collect::<Vec<_>>(), Duration::from_secs(10));
}

#[test]
fn wrong_libraries_are_refused_by_name() {
    let folder = TempFolder::new("kernels-wrong");
    for (wrong, text) in [
        (1, "parameter 1 of kernel 126 has kind 99"),
        (2, "kernel 0 has code 95, give it one from 96 to 126"),
        (3, "declares code 96 twice"),
        (4, "kernel 97 has no name"),
        (5, "the name of kernel 97 has control characters"),
        (6, "kernel 98 has 4 parameters at NULL"),
        (7, "kernel 98 has no compute function"),
        (8, "has no function naa_kernel_get_table"),
        (9, "was compiled for version 2 of naa_kernel.h, this naa knows version 1"),
        (10, "naa_kernel_get_table returned NULL"),
        (11, "the kernel's process was killed by signal 11 (SIGSEGV)"),
        (12, "the kernel's process ended by itself (exit status: 3)"),
        (13, "kernel 98 declares an internal region before a parameter"),
        (14, "parameter 2 of kernel 98 has direction 4"),
    ] {
        let library = compile(&folder, wrong);
        let output = run(&["serve", "--bind", "127.0.71.7", "--port", "0", "--kernels", &library]);
        let error = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(text) && error.contains(&library), "{text}: {error}");
    }
    let text = folder.with("text.so", b"not a library");
    let missing = folder.file("missing.so");
    let twice = compile(&folder, 0);
    for (libraries, text) in [
        ([&text, &text], "cannot be loaded"),
        ([&missing, &missing], "No such file"),
        ([&twice, &twice], "declares code 96, which is a kernel of"),
    ] {
        let output =
            run(&["serve", "--bind", "127.0.71.7", "--kernels", libraries[0], "--kernels", libraries[1]]);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(text), "{}", stderr(&output));
    }
}

#[test]
fn a_library_that_changed_is_not_called() {
    let folder = TempFolder::new("kernels-changed");
    let library = compile(&folder, 0);
    let server = serve("127.0.71.8", &library, &[]);
    let mut before = Harmed::new(server.address);
    let process = before.process();
    fs::rename(compile(&folder, 12), &library).expect("replaced");
    assert_eq!(before.process(), process, "it has the former one");
    assert_eq!(Harmed::new(server.address).call(0), 0x14);
    fs::remove_file(&library).expect("removed");
    assert_eq!(Harmed::new(server.address).call(0), 0x14);
    assert_eq!(before.process(), process);
}

/// Prints what a call through a process costs beside calls of a built-in function.
#[test]
fn a_call_costs_little_more_than_one_through_the_pool() {
    let folder = TempFolder::new("kernels-cost");
    let server = serve("127.0.71.9", &compile(&folder, 0), &[]);
    let median = |function: FunctionCode, bytes: usize| {
        let calls = 2000;
        let mut session = connect(server.address, &[Param::in_out(bytes)]);
        session.call(function).expect("warm");
        let mut times: Vec<_> = (0..calls)
            .map(|_| {
                let begun = Instant::now();
                session.call(function).expect("computed");
                begun.elapsed()
            })
            .collect();
        times.sort_unstable();
        times[calls / 2]
    };
    // The first runs in the server's loop; from 16 KiB on it goes through the pool, as kernels do.
    let [inline, pooled] = [64, 20 << 10].map(|bytes| median(FunctionCode::constant(1), bytes));
    let [kernel, larger] = [64, 20 << 10].map(|bytes| median(INCREMENT, bytes));
    println!("20 KiB: built in, pooled {pooled:?}, kernel {larger:?}");
    let begun = Instant::now();
    drop(connect(server.address, &[Param::in_out(64)]).call(INCREMENT));
    println!(
        "64 bytes: built in {inline:?}, kernel {kernel:?}; connect and first call {:?}",
        begun.elapsed()
    );
    assert!(kernel < inline * 20 + Duration::from_millis(1));
}
