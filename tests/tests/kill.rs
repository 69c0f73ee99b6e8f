//! Processes are killed at any moment: the other side notices, and loses nothing but that session.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use naa_host::{Error, FunctionCode, U24};
use naa_server::{
    Config, Server,
    call::{Call, CallFailure},
    counters::Cut,
    function::{Function, FunctionInfo},
    functions,
};
use naa_tests::{
    local::{eventually, open, serve},
    slow::{self, SLOW},
};

/// Eight times 4.096 us * 2^17, one probe, and room for a busy machine.
const NOTICED: Duration = Duration::from_secs(12);
const INCREMENT: FunctionCode = FunctionCode::constant(1);

struct PeerProcess(Child);

impl PeerProcess {
    /// Starts one; returns what it says first.
    fn start(args: &[&str]) -> (Self, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_actor"))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the actor starts");
        let mut said = String::new();
        let out = child.stdout.take().expect("it was piped");
        BufReader::new(out).read_line(&mut said).expect("it says something");
        (Self(child), said.trim().to_owned())
    }

    fn kill(mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it was started here");
    }
}

#[test]
fn killed_hosts_cost_their_session_only() {
    let server = serve("127.0.6.1", |_| {});
    let address = server.address().to_string();
    let mut witness = open("127.0.6.2", server.address(), 4096);
    for round in 0u64..12 {
        let (host, said) = PeerProcess::start(&["host", &address, "127.0.6.3"]);
        assert_eq!(said, "calling");
        // Anywhere in a call, over the rounds: one takes well under a millisecond.
        thread::sleep(Duration::from_micros(round * 370));
        host.kill();
        witness.call(INCREMENT).unwrap();
    }
    alone(&server, 1);
    let (calls, cut) = (server.stats().calls.get(), server.stats().calls_connection_failed.get());
    let (host, said) = PeerProcess::start(&["waiting-host", &address, "127.0.6.3"]);
    assert_eq!(said, "calling");
    eventually(NOTICED, || server.stats().calls.get() > calls);
    host.kill();
    alone(&server, 1);
    assert_eq!(server.stats().calls_connection_failed.get(), cut + 1, "the call of a killed host is cut");
    witness.call(INCREMENT).unwrap();
    assert_eq!(witness.slice(0).unwrap()[4095], 13);
}

/// Waits until the server has no more than so many sessions.
#[track_caller]
fn alone(server: &Server, sessions: u64) {
    eventually(NOTICED, || server.stats().sessions.get() <= sessions);
}

/// Takes a second, and then says that its time is up.
#[derive(Debug)]
struct TimeUp(FunctionInfo);

impl Function for TimeUp {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, _: &mut Call<'_>) -> Result<(), CallFailure> {
        thread::sleep(Duration::from_secs(1));
        Err(CallFailure::TimedOut)
    }
}

#[test]
fn a_call_whose_time_is_up_is_cut_once_though_its_host_was_killed() {
    let function = TimeUp(slow::function().info().clone());
    let config = Config::new("127.0.6.145:0".parse().unwrap());
    let server = Server::start(config, functions::registry([function]).unwrap()).unwrap();
    let (host, said) = PeerProcess::start(&["waiting-host", &server.address().to_string(), "127.0.6.146"]);
    assert_eq!(said, "calling");
    eventually(NOTICED, || server.stats().calls.get() >= 1);
    // Before the answer, which it does not acknowledge then.
    host.kill();
    alone(&server, 0);
    assert_eq!(Cut::ALL.map(|cause| server.stats().calls_cut(cause).get()), [1, 0, 0, 0]);
    assert_eq!(server.stats().calls_failed.get(), 1);
}

#[test]
fn a_killed_server_gives_the_host_an_error_in_time() {
    let (server, said) = PeerProcess::start(&["server", "127.0.6.4:0"]);
    let address = said.strip_prefix("ready ").unwrap().parse().unwrap();
    let mut session = open("127.0.6.5", address, 64);
    session.invoke(SLOW, U24::new(600_000).unwrap()).unwrap();
    assert!(session.wait_timeout(Duration::from_millis(300)).unwrap().is_none());
    server.kill();
    let start = Instant::now();
    let error = session.wait().unwrap_err();
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    assert!(start.elapsed() < NOTICED, "noticed after {:?}", start.elapsed());
}

#[test]
fn a_slow_function_is_not_a_dead_peer() {
    let server = serve("127.0.6.6", |_| {});
    let mut session = open("127.0.6.7", server.address(), 64);
    // Longer than it takes to give a dead peer up.
    session.invoke(SLOW, U24::new(7_000).unwrap()).unwrap();
    assert!(session.wait().unwrap().into_result().is_ok());
    session.finalize().unwrap();
}
