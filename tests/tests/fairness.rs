//! What one peer may have of a server, and what others get beside it.

use std::{
    os::fd::BorrowedFd,
    thread,
    time::{Duration, Instant},
};

use naa_host::{Device, FunctionCode, Param, Session, SessionConfig, U24};
use naa_server::{
    Config, Server,
    call::{Call, CallFailure},
    functions,
    loop_service::{LoopService, StreamId, StreamingSession, SubscribingHost},
};
use naa_tests::{
    local::{device, eventually, serve},
    slow::SLOW,
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const MIB: usize = 1 << 20;
/// Longer than anything takes that is not held up, also on a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(20);

fn connect(device: &Device, server: &Server, bytes: usize) -> Result<Session, naa_host::Error> {
    Session::connect(device, server.address(), &[Param::in_out(bytes)], &SessionConfig::default())
}

/// Calls the function that takes so many milliseconds.
fn slow(session: &mut Session, milliseconds: u32) -> Result<(), naa_host::Error> {
    session.invoke(SLOW, U24::new(milliseconds).unwrap())?;
    session.wait()?.into_result().map(drop)
}

#[test]
fn a_peer_that_reserves_all_it_can_leaves_memory_to_others() {
    let server = serve("127.0.6.60", |config| config.memory = 64 * MIB as u64);
    let hog = device("127.0.6.61");
    let mut held = Vec::new();
    let refused = loop {
        match connect(&hog, &server, 4 * MIB) {
            Ok(session) => held.push(session),
            Err(error) => break error,
        }
        assert!(held.len() <= 8, "one peer has more than half of the memory");
    };
    assert_eq!(held.len(), 8, "{refused}");
    assert!(matches!(refused, naa_host::Error::Peer { .. }), "{refused}");
    // A second peer gets the rest, without the reserve.
    let other = device("127.0.6.62");
    for _ in 0..6 {
        held.push(connect(&other, &server, 4 * MIB).unwrap());
    }
    connect(&other, &server, 4 * MIB).unwrap_err();
    // A third peer gets its first session from the reserve.
    let mut newcomer = connect(&device("127.0.6.63"), &server, MIB / 4).unwrap();
    newcomer.call(INCREMENT).unwrap();
    eventually(TIME_LIMIT, || {
        let peers = server.stats().peers();
        let of = |name: &str| {
            peers.iter().find(|of| of.peer.is_some_and(|peer| peer.to_string() == name)).cloned()
        };
        of("127.0.6.61")
            .is_some_and(|hog| (hog.sessions, hog.memory, hog.memory_refused) == (8, 32 * MIB as u64, 1))
            && of("127.0.6.63").is_some_and(|newcomer| (newcomer.sessions, newcomer.calls) == (1, 1))
    });
    drop(held);
    drop(newcomer);
    eventually(TIME_LIMIT, || server.memory_used() == 0);
}

#[test]
fn a_peer_waits_for_none_of_anothers_calls() {
    let server = serve("127.0.6.64", |config| config.pool.pool_threads = 2);
    let (hog, other) = (device("127.0.6.65"), device("127.0.6.66"));
    let mut hogs: Vec<_> = (0..8).map(|_| connect(&hog, &server, 64).unwrap()).collect();
    let mut session = connect(&other, &server, 64).unwrap();
    let begun = Instant::now();
    for session in &mut hogs {
        session.invoke(SLOW, U24::new(2000).unwrap()).unwrap();
    }
    eventually(TIME_LIMIT, || server.stats().calls.get() == 8);
    for _ in 0..5 {
        slow(&mut session, 1).unwrap();
    }
    // In a queue for all, these five would have come behind the eight.
    assert!(begun.elapsed() < Duration::from_millis(2000 * 8 / 2), "{:?}", begun.elapsed());
    assert!(server.stats().calls.get() == 13 && server.stats().calls_failed.get() == 0);
}

#[test]
fn calls_that_a_peer_leaves_count_against_it_and_nobody_else() {
    let server = serve("127.0.6.67", |config| {
        config.pool.pool_threads = 1;
        config.pool.quarantine = 4;
    });
    let hog = device("127.0.6.68");
    // The function does not check whether it is to stop, because a function that a user adds may not check it either.
    for left in 1..=2 {
        let mut session = connect(&hog, &server, MIB).unwrap();
        session.invoke(SLOW, U24::new(3000).unwrap()).unwrap();
        eventually(TIME_LIMIT, || server.stats().calls.get() == left);
        thread::sleep(Duration::from_millis(50));
        drop(session);
        eventually(TIME_LIMIT, || server.stats().sessions.get() == 0);
    }
    // The memory of the abandoned calls is still charged to the peer.
    assert_eq!(server.memory_used(), 2 * MIB as u64);
    let mut session = connect(&hog, &server, 64).unwrap();
    let error = slow(&mut session, 1).unwrap_err();
    assert!(error.to_string().contains("busy"), "{error}");
    // Another peer is served as ever, on another thread.
    let mut other = connect(&device("127.0.6.69"), &server, 64).unwrap();
    slow(&mut other, 1).unwrap();
    // This peer is served again, too, when its abandoned calls have ended.
    eventually(TIME_LIMIT, || slow(&mut session, 1).is_ok());
    eventually(TIME_LIMIT, || server.memory_used() < MIB as u64);
}

/// A loop service with a defect.
#[derive(Debug)]
struct Broken(std::fs::File);

impl LoopService for Broken {
    fn subscribe(&mut self, _: &SubscribingHost<'_>, _: &mut Call<'_>) -> Result<(), CallFailure> {
        Ok(())
    }
    fn begin(&mut self, _: StreamingSession, _: Instant) {}
    fn completed(&mut self, _: StreamId, _: Instant) {}
    fn ended(&mut self, _: StreamId, _: Instant) {}
    fn turn(&mut self, _: Instant) -> bool {
        panic!("a defect on purpose")
    }
    fn finish(&mut self) -> bool {
        true
    }
    fn poll_closing(&mut self) -> Option<(StreamId, String)> {
        None
    }
    fn deadline(&self) -> Option<Instant> {
        Some(Instant::now())
    }
    fn descriptor(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }
    fn woken(&mut self) {}
}

#[test]
fn a_server_whose_thread_ended_says_so() {
    let config = Config::new("127.0.6.70:0".parse().unwrap());
    let broken = Broken(std::fs::File::open("/dev/null").unwrap());
    let server = Server::start_with(config, functions::builtins().unwrap(), Some(Box::new(broken))).unwrap();
    eventually(TIME_LIMIT, || server.ended().is_some());
    assert!(server.ended().unwrap().contains("panicked"));
    let healthy = serve("127.0.6.71", |_| {});
    assert_eq!(healthy.ended(), None);
}
