//! Calls that are cut: their time is up, their host leaves, their connection fails, their server ends.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use naa_host::{Device, Error, Param, ReturnCode, Session, SessionConfig, U24};
use naa_server::{
    Config, Server, functions,
    stats::{Cut, Stats},
};
use naa_tests::slow::{self, SLOW};

/// What is logged, by all servers of this process.
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

/// A host in the middle of a call of `milliseconds`.
fn calling(server: &Server, local: &str, milliseconds: u32) -> Session {
    let device = Device::open(local.parse().unwrap()).unwrap();
    let config = SessionConfig::default();
    let mut session = Session::connect(&device, server.address(), &[Param::in_out(64)], &config).unwrap();
    let before = server.stats().calls.get();
    session.invoke(SLOW, U24::new(milliseconds).unwrap()).unwrap();
    eventually(|| server.stats().calls.get() > before);
    session
}

fn eventually(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "it never becomes so");
        thread::sleep(Duration::from_millis(1));
    }
}

fn counted(stats: &Stats) -> [u64; 4] {
    Cut::ALL.map(|cause| stats.calls_cut(cause).get())
}

#[test]
fn a_call_that_is_cut_is_counted_by_its_cause_and_told_at_both_ends() {
    let log = Log::default();
    let written = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(move || written.clone());
    lines.init();
    let mut config = Config::new("127.0.6.40:0".parse().unwrap());
    config.call_time = Duration::from_millis(300);
    let server = Server::start(config, functions::registry([slow::function()]).unwrap()).unwrap();
    let told = |local: &str, cause: &str| log.lines(&["WARN", "a call was cut", local, "slow", cause]);

    let mut late = calling(&server, "127.0.6.41", 2000);
    let error = late.wait().unwrap().into_result().unwrap_err();
    assert_eq!(error.return_code(), Some(ReturnCode::KERNEL_TIMEOUT));
    for part in [&*server.address().to_string(), "function 100", "raise the time"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    eventually(|| counted(server.stats()) == [1, 0, 0, 0] && told("127.0.6.41", "time_up") == 1);

    calling(&server, "127.0.6.42", 2000).finalize().unwrap();
    eventually(|| counted(server.stats()) == [1, 1, 0, 0] && told("127.0.6.42", "host_left") == 1);

    let stats = server.stats().clone();
    let mut last = calling(&server, "127.0.6.43", 2000);
    drop(server);
    assert_eq!(counted(&stats), [1, 1, 0, 1]);
    assert_eq!(told("127.0.6.43", "server_ended"), 1);
    assert_eq!((stats.calls.get(), stats.calls_failed.get()), (3, 1));
    let error = last.wait().unwrap_err();
    assert!(matches!(error, Error::PeerGone { function: Some(SLOW), .. }), "{error}");
    for part in ["127.0.6.40:", "function 100", "connect and call again"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}
