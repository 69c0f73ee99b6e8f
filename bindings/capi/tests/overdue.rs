//! Calls that do not end in time, in C programs: what the library says, and how NAA_TIMEOUT ends them.

mod naaice_support;

use std::{
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use naaice_support::{Program, build, server};

/// On naa.h, and on NAAICE's headers. Built once for all tests.
static NATIVE: LazyLock<Program> = LazyLock::new(|| build("overdue_native.c", "c11", "overdue_native", &[]));
static NAAICE: LazyLock<Program> = LazyLock::new(|| build("overdue_naaice.c", "c11", "overdue_naaice", &[]));

/// Lines of the log on standard error.
fn said(program: &Program, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<String> {
    let output = program.run(arguments, environment);
    let said = String::from_utf8(output.stderr).unwrap();
    said.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
}

#[test]
fn a_call_of_more_than_ten_seconds_is_reported_once_unless_the_log_is_off() {
    let server = server("127.0.8.120");
    let address = server.address().to_string();
    let (ip, port) = (server.address().ip().to_string(), server.address().port().to_string());
    thread::scope(|scope| {
        let reported = [
            scope.spawn(|| said(&NATIVE, &[&address, "slow", "loud"], &[])),
            scope.spawn(|| said(&NAAICE, &[&ip, &port, "slow"], &[])),
        ];
        let quiet = [
            scope.spawn(|| said(&NATIVE, &[&address, "slow", "loud"], &[("NAA_LOG", "off")])),
            scope.spawn(|| said(&NATIVE, &[&address, "slow", "quiet"], &[])),
            scope.spawn(|| said(&NAAICE, &[&ip, &port, "slow"], &[("NAA_LOG", "off")])),
        ];
        for lines in reported.map(|run| run.join().unwrap()) {
            let [line] = &lines[..] else { panic!("{lines:?}") };
            for part in [&*address, "function 100", "10 s", "answers probes", "NAA_TIMEOUT"] {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
        for lines in quiet.map(|run| run.join().unwrap()) {
            assert!(lines.is_empty(), "{lines:?}");
        }
    });
}

#[test]
fn the_environment_limits_calls_unless_the_program_does() {
    let server = server("127.0.8.121");
    let (ip, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let limit = [("NAA_TIMEOUT", "0.5")];
    NATIVE.run(&[&*server.address().to_string(), "limited", ""], &limit);
    NAAICE.run(&[&*ip, &port, "limited"], &limit);
}

#[test]
fn the_environment_limits_connecting() {
    let start = Instant::now();
    NATIVE.run(&["127.0.8.122:12345", "unreachable", ""], &[("NAA_TIMEOUT", "0.5")]);
    NAAICE.run(&["127.0.8.122", "12345", "unreachable"], &[("NAA_TIMEOUT", "0.5")]);
    // Ten seconds each without it.
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

#[test]
fn a_limit_that_is_no_time_is_an_error() {
    let server = server("127.0.8.123");
    let (ip, port) = (server.address().ip().to_string(), server.address().port().to_string());
    for value in ["soon", "0", "-3", "5s"] {
        NATIVE.run(&[&*server.address().to_string(), "nonsense", ""], &[("NAA_TIMEOUT", value)]);
        NAAICE.run(&[&*ip, &port, "nonsense"], &[("NAA_TIMEOUT", value)]);
    }
}

/// A wrong NAA_LOG is reported once, and the program goes on with the level `warn`.
#[test]
fn a_filter_of_the_log_that_cannot_be_read_is_told_once_and_ends_no_program() {
    let server = server("127.0.8.124");
    let (ip, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let environment = [("NAA_TIMEOUT", "0.5"), ("NAA_LOG", "loud")];
    for lines in [
        said(&NATIVE, &[&*server.address().to_string(), "limited", ""], &environment),
        said(&NAAICE, &[&ip, &port, "limited"], &environment),
    ] {
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(
            line.contains("NAA_LOG=loud: ") && line.contains("error, warn, info, debug or trace"),
            "{line}"
        );
    }
}
