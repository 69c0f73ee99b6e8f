//! Calls that are cut: their time is up, their host leaves, their connection fails, their server ends.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::Duration,
};

use naa_host::{Error, ReturnCode, Session, U24};
use naa_server::{
    Server,
    counters::{Cut, ServerCounters},
};
use naa_tests::{
    local::{eventually, open, serve},
    slow::SLOW,
};

const TIME_LIMIT: Duration = Duration::from_secs(10);

/// Collects the log lines of this process.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// The lines that have all of `words`.
    fn lines(&self, words: &[&str]) -> usize {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A session whose call of so many milliseconds has reached the server.
fn calling(server: &Server, local: &str, milliseconds: u32) -> Session {
    let mut session = open(local, server.address(), 64);
    let before = server.stats().calls.get();
    session.invoke(SLOW, U24::new(milliseconds).unwrap()).unwrap();
    eventually(TIME_LIMIT, || server.stats().calls.get() > before);
    session
}

fn counted(stats: &ServerCounters) -> [u64; 4] {
    Cut::ALL.map(|cause| stats.calls_cut(cause).get())
}

#[test]
fn a_call_that_is_cut_is_counted_by_its_cause_and_told_at_both_ends() {
    let log = Log::default();
    let written = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone());
    lines.init();
    let server_told =
        |host: &str, cause: &str| log.lines(&["WARN", "naa_server", "a call was cut", host, "slow", cause]);
    let host_told = |server: &Server, cause: &str| {
        let peer = format!("peer={} ", server.address());
        log.lines(&["WARN", "naa_host", "a call was cut", &peer, "function 100", cause])
    };

    let strict = serve("127.0.6.140", |config| config.call_time = Duration::from_millis(300));
    let mut late = calling(&strict, "127.0.6.141", 2000);
    let error = late.wait().unwrap().into_result().unwrap_err();
    assert_eq!(error.return_code(), Some(ReturnCode::KERNEL_TIMEOUT));
    for part in [&*strict.address().to_string(), "function 100", "raise the time"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    eventually(TIME_LIMIT, || {
        counted(strict.stats()) == [1, 0, 0, 0] && server_told("127.0.6.141", "time_up") == 1
    });
    assert_eq!((naa_host::calls_cut(), host_told(&strict, "raise the time")), (1, 1));
    assert_eq!((strict.stats().calls.get(), strict.stats().calls_failed.get()), (1, 1));

    let server = serve("127.0.6.142", |config| config.call_time = Duration::from_secs(3600));
    calling(&server, "127.0.6.143", 2000).finalize().unwrap();
    eventually(TIME_LIMIT, || {
        counted(server.stats()) == [0, 1, 0, 0] && server_told("127.0.6.143", "host_left") == 1
    });
    assert_eq!(naa_host::calls_cut(), 1, "the host left by itself");

    let stats = server.stats().clone();
    let mut last = calling(&server, "127.0.6.144", 2000);
    let address = server.address().to_string();
    let peer = format!("peer={address} ");
    drop(server);
    assert_eq!(counted(&stats), [0, 1, 0, 1]);
    assert_eq!(server_told("127.0.6.144", "server_ended"), 1);
    assert_eq!((stats.calls.get(), stats.calls_failed.get()), (2, 0));
    let error = last.wait().unwrap_err();
    assert!(matches!(error, Error::PeerGone { function: Some(SLOW), .. }), "{error}");
    for part in [&*address, "function 100", "connect and call again"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let told = ["WARN", "naa_host", "a call was cut", &peer, "function 100", "ended the connection"];
    assert_eq!((naa_host::calls_cut(), log.lines(&told)), (2, 1));
}
