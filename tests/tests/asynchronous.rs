//! Sessions whose calls are awaited, against a server whose function runs as a task.

use std::{
    net::SocketAddr,
    pin::pin,
    time::{Duration, Instant},
};

use naa_host::{
    Buffer, Device, Error, FunctionCode, Param, ReturnCode, SessionConfig, U24, WaitMode,
    asynchronous::{Session, SessionState},
};
use naa_server::{Config, ProviderChoice, Server, functions};
use naa_tests::{
    cut_off::cut_off,
    front::{LATER, later},
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

const INCREMENT: FunctionCode = FunctionCode::constant(1);
const MS: Duration = Duration::from_millis(1);
const MODES: [WaitMode; 3] = [WaitMode::Block, WaitMode::Adaptive, WaitMode::Spin];

fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn threads() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A server with a runtime of its own, on which its async function runs.
struct Front {
    server: Server,
    runtime: Runtime,
}

impl Front {
    fn start(change: impl FnOnce(&mut Config)) -> Self {
        let runtime = threads();
        let listen = SocketAddr::new(roce_udp::free_loopback().unwrap(), 0);
        let mut config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
        change(&mut config);
        let registry = functions::registry([later(runtime.handle(), 64)]).unwrap();
        Self { server: Server::start(config, registry).unwrap(), runtime }
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }
}

fn device() -> Device {
    Device::open(roce_udp::free_loopback().unwrap()).unwrap()
}

fn config(wait: WaitMode) -> SessionConfig {
    SessionConfig { wait, ..SessionConfig::default() }
}

async fn open(device: &Device, server: SocketAddr, bytes: usize) -> Session {
    Session::connect(device, server, &[Param::in_out(bytes)], &SessionConfig::default()).await.unwrap()
}

fn millis(time: u32) -> U24 {
    U24::new(time).unwrap()
}

/// Runs a test in a process of its own, because it counts or limits the descriptors of its process. Returns false in that
/// process.
fn ran_alone(test: &str) -> bool {
    const ALONE: &str = "NAA_TESTS_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return false;
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", test]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
    true
}

/// Waits until a condition is true. Panics if that takes long.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "not so after a while: {what}");
        tokio::time::sleep(MS).await;
    }
}

/// The number of file descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn calls_are_awaited_on_both_flavours_and_in_all_modes() {
    let front = Front::start(|_| {});
    for runtime in [current(), threads()] {
        runtime.block_on(async {
            let device = device();
            for mode in MODES {
                let numbers = [1.0_f64, 2.0, 4.0];
                let params = [Param::values(&numbers), Param::output_of::<f64>(3), Param::in_out(4)];
                let mut session =
                    Session::connect(&device, front.address(), &params, &config(mode)).await.unwrap();
                session.write(2, 0, &[7; 4]).unwrap();
                let outcome = session.call(INCREMENT).await.unwrap();
                assert_eq!((outcome.function, outcome.peer), (INCREMENT, front.address()));
                assert_eq!(session.state(), SessionState::Idle);
                assert_eq!(*session.values::<f64>(0).unwrap(), numbers);
                session.finalize().unwrap();
                let mut session = open(&device, front.address(), 4).await;
                session.set_wait_mode(mode);
                for round in 0..20_u8 {
                    session.write(0, 0, &[round; 4]).unwrap();
                    session.call(LATER).await.unwrap();
                    assert_eq!(*session.bytes(0, ..).unwrap(), [round + 1; 4]);
                }
                assert!(matches!(session.outcome().await, Err(Error::NoCall)));
            }
        });
    }
}

#[test]
fn a_call_that_was_left_goes_on_and_can_be_awaited_later() {
    let front = Front::start(|_| {});
    for mode in MODES {
        current().block_on(async {
            let mut session = open(&device(), front.address(), 8).await;
            session.set_wait_mode(mode);
            session.write(0, 0, &[5; 8]).unwrap();
            drop(session.call_with(LATER, millis(1)));
            assert_eq!(session.state(), SessionState::Idle, "a future that was never polled posts nothing");
            let left = timeout(10 * MS, session.call_with(LATER, millis(1500))).await;
            assert!(left.is_err());
            assert_eq!(session.state(), SessionState::InCall);
            // While the call runs, every access to the bytes is refused.
            assert!(matches!(session.bytes(0, ..), Err(Error::InCall)));
            assert!(matches!(session.slice_mut(0), Err(Error::InCall)));
            assert!(matches!(session.write(0, 0, &[1]), Err(Error::InCall)));
            assert!(matches!(session.call(LATER).await, Err(Error::InCall)));
            assert!(timeout(MS, session.outcome()).await.is_err());
            let _ = session.outcome().await.unwrap().into_result().unwrap();
            assert_eq!(*session.bytes(0, ..).unwrap(), [6; 8]);
            session.call(LATER).await.unwrap();
            assert_eq!(*session.bytes(0, ..).unwrap(), [7; 8]);
        });
    }
}

#[test]
fn memory_that_is_back_is_not_written_by_a_call_that_was_given_up() {
    let front = Front::start(|_| {});
    current().block_on(async {
        let device = device();
        let buffers = vec![Buffer::new(4096).unwrap()];
        let params = [Param::in_out(4096)];
        let config = SessionConfig::default();
        let mut session =
            Session::connect_with(&device, front.address(), &params, buffers, &config).await.unwrap();
        assert!(timeout(5 * MS, session.call_with(LATER, millis(500))).await.is_err());
        let mut buffers = session.into_buffers().unwrap();
        buffers[0].write(0, &[0xab; 4096]);
        tokio::time::sleep(1000 * MS).await;
        assert_eq!(buffers[0].to_vec(), [0xab; 4096]);
        // Another session can use the memory.
        let mut session =
            Session::connect_with(&device, front.address(), &params, buffers, &config).await.unwrap();
        session.call(LATER).await.unwrap();
        assert_eq!(session.to_vec(0).unwrap(), [0xac; 4096]);
    });
}

#[test]
fn a_task_whose_session_ends_is_dropped() {
    let front = Front::start(|_| {});
    current().block_on(async {
        let mut session = open(&device(), front.address(), 8).await;
        assert!(timeout(20 * MS, session.call_with(LATER, millis(60_000))).await.is_err());
        eventually("the task runs", || front.runtime.metrics().num_alive_tasks() == 1).await;
        drop(session);
        eventually("the task is dropped", || front.runtime.metrics().num_alive_tasks() == 0).await;
    });
}

#[test]
fn a_task_whose_time_is_over_is_dropped_and_its_session_goes_on() {
    let front = Front::start(|config| config.call_time = 100 * MS);
    current().block_on(async {
        let mut session = open(&device(), front.address(), 8).await;
        for _ in 0..2 {
            let error = session.call_with(LATER, millis(60_000)).await.unwrap_err();
            assert_eq!(error.return_code(), Some(ReturnCode::KERNEL_TIMEOUT), "{error}");
            session.call(LATER).await.unwrap();
        }
        eventually("no task is left", || front.runtime.metrics().num_alive_tasks() == 0).await;
    });
}

#[test]
fn async_functions_are_bounded_in_number_for_each_peer() {
    let runtime = threads();
    let listen = SocketAddr::new(roce_udp::free_loopback().unwrap(), 0);
    let config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
    let server = Server::start(config, functions::services([later(runtime.handle(), 4)]).unwrap()).unwrap();
    current().block_on(async {
        let (first, other) = (device(), device());
        let mut sessions = Vec::new();
        for device in [&first, &first, &first, &other, &other, &other] {
            sessions.push(open(device, server.address(), 8).await);
        }
        let mut refused = 0;
        for session in &mut sessions {
            match timeout(100 * MS, session.call_with(LATER, millis(3000))).await {
                Ok(Err(error)) => {
                    assert_eq!(error.return_code(), Some(ReturnCode::BUSY), "{error}");
                    refused += 1;
                }
                Ok(Ok(_)) => panic!("it answered at once"),
                Err(_) => {}
            }
        }
        assert_eq!(refused, 2, "of each address two of three run");
        let running = || server.stats().peers().iter().map(|peer| peer.open.running).collect::<Vec<_>>();
        eventually("the calls of each peer are counted", || running() == [2, 2]).await;
        for session in &mut sessions {
            if session.state() == SessionState::InCall {
                let _ = session.outcome().await.unwrap().into_result().unwrap();
            }
            session.call(LATER).await.unwrap();
        }
    });
}

#[test]
fn an_accelerator_that_ends_during_a_call_is_an_error() {
    let front = Front::start(|_| {});
    let address = front.address();
    current().block_on(async {
        let mut session = open(&device(), address, 8).await;
        assert!(timeout(20 * MS, session.call_with(LATER, millis(60_000))).await.is_err());
        let Front { server, runtime } = front;
        std::thread::spawn(move || drop(server));
        let error = session.outcome().await.unwrap_err();
        assert!(matches!(error, Error::PeerGone { .. }), "{error}");
        assert_eq!(session.state(), SessionState::Over);
        session.bytes(0, ..).unwrap();
        assert!(matches!(session.call(LATER).await, Err(Error::Over { .. })));
        let error = Session::connect(&device(), address, &[Param::in_out(8)], &SessionConfig::default())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::ConnectionRefused { .. } | Error::Unreachable { .. }), "{error}");
        runtime.shutdown_background();
    });
}

#[test]
fn a_session_may_be_cut_off_at_every_await() {
    if ran_alone("a_session_may_be_cut_off_at_every_await") {
        return;
    }
    let seeds: u64 = if std::env::var_os("NAA_LONG").is_some() { 10_000 } else { 1000 };
    let front = Front::start(|config| config.max_sessions_per_peer = 1024);
    let runtime = current();
    runtime.block_on(async {
        let device = device();
        let one = |seed| {
            let (device, server) = (device.clone(), front.address());
            async move {
                let life = tokio::spawn(async move {
                    cut_off(seed, &device, server, &SessionConfig::default(), 3 * MS).await
                });
                assert!(life.await.is_ok(), "seed {seed}");
            }
        };
        one(0).await;
        let before = descriptors();
        for first in (0..seeds).step_by(8) {
            // Several sessions run at the same time, so that their packets mix.
            let mut lives = Vec::new();
            for seed in first..(first + 8).min(seeds) {
                lives.push(tokio::spawn(one(seed)));
            }
            for life in lives {
                life.await.unwrap();
            }
        }
        // The device may still get packets from peers, but it has no session any more.
        let server = &front.server;
        eventually("no session is left", || server.stats().sessions.get() == 0).await;
        eventually("no memory is left", || server.memory_used() == 0).await;
        eventually("no descriptor is left", || descriptors() <= before).await;
    });
}

#[test]
fn a_runtime_may_end_in_the_middle_of_calls() {
    if ran_alone("a_runtime_may_end_in_the_middle_of_calls") {
        return;
    }
    let front = Front::start(|_| {});
    for runtime in [current(), threads()] {
        let device = device();
        let before = descriptors();
        for _ in 0..8 {
            let (device, address) = (device.clone(), front.address());
            runtime.spawn(async move {
                let mut session = open(&device, address, 64).await;
                session.call_with(LATER, millis(60_000)).await
            });
        }
        runtime.block_on(async { tokio::time::sleep(100 * MS).await });
        let outside = runtime.block_on(open(&device, front.address(), 64));
        runtime.shutdown_timeout(Duration::from_secs(5));
        // A session outlives its runtime: it can be closed, and it can be used as a blocking session.
        let mut outside = outside.into_blocking();
        outside.call(INCREMENT).unwrap();
        outside.finalize().unwrap();
        drop(device);
        let end = Instant::now() + 5000 * MS;
        while front.server.stats().sessions.get() > 0 || front.runtime.metrics().num_alive_tasks() > 0 {
            assert!(Instant::now() < end, "sessions stay");
            std::thread::sleep(MS);
        }
        assert!(descriptors() <= before, "descriptors stay");
    }
}

#[test]
fn a_session_goes_from_blocking_to_awaited_and_back() {
    let front = Front::start(|_| {});
    let device = device();
    let params = [Param::in_out(4)];
    let mut blocking =
        naa_host::Session::connect(&device, front.address(), &params, &SessionConfig::default()).unwrap();
    blocking.invoke(LATER, millis(20)).unwrap();
    let mut blocking = current().block_on(async move {
        let mut session = Session::from_blocking(blocking).unwrap();
        assert_eq!(session.state(), SessionState::InCall);
        let _ = session.outcome().await.unwrap().into_result().unwrap();
        {
            let mut left = pin!(session.call_with(LATER, millis(500)));
            assert!(timeout(5 * MS, &mut left).await.is_err());
            left.await.unwrap();
        }
        assert!(timeout(5 * MS, session.call_with(LATER, millis(500))).await.is_err());
        session.into_blocking()
    });
    let _ = blocking.wait().unwrap().into_result().unwrap();
    assert_eq!(*blocking.bytes(0, ..).unwrap(), [3; 4]);
}

#[test]
fn a_thousand_sessions_share_one_runtime() {
    const SESSIONS: usize = 1000;
    // Each session has four file descriptors.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(8192, |most| most.min(8192));
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }).unwrap();
    let front = Front::start(|config| {
        config.max_sessions = SESSIONS;
        config.max_sessions_per_peer = SESSIONS;
    });
    current().block_on(async {
        let device = device();
        let mut opening = Vec::new();
        for number in 0..SESSIONS {
            let (device, server) = (device.clone(), front.address());
            opening.push(tokio::spawn(async move {
                let mut session = open(&device, server, 8).await;
                for round in 0..5_u64 {
                    let value = number as u64 * 10 + round;
                    session.write(0, 0, &value.to_le_bytes()).unwrap();
                    session.call(INCREMENT).await.unwrap();
                }
                session
            }));
        }
        let mut sessions = Vec::new();
        for open in opening {
            sessions.push(open.await.unwrap());
        }
        assert_eq!(front.server.stats().sessions.get(), SESSIONS as u64);
        let error =
            Session::connect(&device, front.address(), &[Param::in_out(8)], &SessionConfig::default())
                .await
                .unwrap_err();
        assert!(error.to_string().contains("as many sessions as"), "{error}");
    });
}

#[test]
fn a_lack_of_descriptors_names_the_limit() {
    if ran_alone("a_lack_of_descriptors_names_the_limit") {
        return;
    }
    let front = Front::start(|_| {});
    current().block_on(async {
        let device = device();
        let mut sessions = vec![open(&device, front.address(), 8).await];
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors() as u64 + 12), maximum }).unwrap();
        let error = loop {
            let params = [Param::in_out(8)];
            match Session::connect(&device, front.address(), &params, &SessionConfig::default()).await {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
            assert!(sessions.len() < 100, "there is no limit");
        };
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        // The sessions that are open still work.
        for session in &mut sessions {
            session.call(LATER).await.unwrap();
        }
    });
}
