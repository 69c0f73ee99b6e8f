//! Pools of accelerators, for async and for blocking programs.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use naa_host::{
    Device, Error, FunctionCode, Param, ReturnCode, SessionConfig, Spec, U24,
    asynchronous::{Accelerators, PoolConfig, Repeat, SessionState},
};
use naa_server::{Config, ProviderChoice, Server, functions};
use naa_tests::front::{LATER, later};
use simnet::Random;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_secs(20);

fn current() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn free() -> SocketAddr {
    SocketAddr::new(roce_udp::free_loopback().unwrap(), 0)
}

fn start(listen: SocketAddr, runtime: &Runtime, change: impl FnOnce(&mut Config)) -> Server {
    let mut config = Config { provider: Some(ProviderChoice::Embedded), ..Config::new(listen) };
    change(&mut config);
    let registry = functions::registry([later(runtime.handle(), 1000)]).unwrap();
    let begin = Instant::now();
    loop {
        // A server that has just ended may still have the address.
        match Server::start(config.clone(), registry.clone()) {
            Ok(server) => return server,
            Err(error) => assert!(begin.elapsed() < LIMIT, "{error}"),
        }
        std::thread::sleep(5 * MS);
    }
}

fn servers(count: usize, runtime: &Runtime) -> Vec<Server> {
    (0..count).map(|_| start(free(), runtime, |_| {})).collect()
}

fn addresses(servers: &[Server]) -> Vec<SocketAddr> {
    servers.iter().map(Server::address).collect()
}

fn quick() -> PoolConfig {
    PoolConfig {
        session: SessionConfig { setup_timeout: Duration::from_secs(2), ..SessionConfig::default() },
        sessions_per_accelerator: 1,
        first_retry: 10 * MS,
        longest_retry: 100 * MS,
        give_up_after: Some(300 * MS),
    }
}

fn pool(servers: &[SocketAddr], config: PoolConfig) -> Accelerators {
    let device = Device::open(roce_udp::free_loopback().unwrap()).unwrap();
    let members = servers.iter().map(|&server| (device.clone(), server)).collect();
    Accelerators::new(members, config).unwrap()
}

/// Makes a call that takes `time` milliseconds, and checks its result.
async fn one(pool: &Accelerators, repeat: Repeat, byte: u8, time: u32) -> Result<SocketAddr, Error> {
    let content = [byte; 100];
    pool.run(repeat, &[Param::in_out(100).holding(&content)], |mut session| async move {
        let outcome = session.call_with(LATER, U24::new(time).unwrap()).await?;
        assert_eq!(*session.bytes(0, ..)?, [byte.wrapping_add(1); 100]);
        Ok(outcome.peer)
    })
    .await
}

#[test]
fn calls_are_spread_and_sessions_stay_open() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let servers = servers(3, &runtime);
    let pool = pool(&addresses(&servers), quick());
    current().block_on(async {
        for _ in 0..2 {
            let calls: Vec<_> = (0..30)
                .map(|byte| {
                    let pool = pool.clone();
                    tokio::spawn(async move { one(&pool, Repeat::Never, byte, 10).await.unwrap() })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
        }
    });
    let counters = pool.counters();
    assert_eq!((counters.waiting, counters.repeated, counters.given_up), (0, 0, 0));
    for accelerator in counters.accelerators {
        assert!((5..=40).contains(&accelerator.acquired), "{accelerator:?}");
        assert_eq!((accelerator.opened, accelerator.idle, accelerator.in_use), (1, 1, 0), "{accelerator:?}");
    }
}

#[test]
fn tasks_get_sessions_in_the_order_in_which_they_asked() {
    let runtime = current();
    let tasks = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let servers = servers(1, &tasks);
    let pool = pool(&addresses(&servers), quick());
    runtime.block_on(async {
        static SERVED: AtomicUsize = AtomicUsize::new(0);
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    let params = [Param::in_out(8)];
                    let mut session = pool.session(&params).await.unwrap();
                    assert_eq!(SERVED.fetch_add(1, Ordering::Relaxed), number);
                    session.call_with(LATER, U24::new(1).unwrap()).await.unwrap();
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
}

#[test]
fn calls_of_an_accelerator_that_dies_are_repeated_only_if_their_caller_said_so() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for repeat in [Repeat::Never, Repeat::IfLost(3)] {
        let mut servers = servers(3, &tasks);
        let pool = pool(&addresses(&servers), PoolConfig { sessions_per_accelerator: 2, ..quick() });
        let results = current().block_on(async {
            let calls: Vec<_> = (0..20)
                .map(|byte| {
                    let pool = pool.clone();
                    tokio::spawn(async move { one(&pool, repeat, byte, 200).await })
                })
                .collect();
            // The calls take long, so all sessions of the server have a call when it dies.
            while pool.counters().accelerators[1].in_use < 2 {
                tokio::time::sleep(MS).await;
            }
            tokio::time::sleep(50 * MS).await;
            let killed = servers.remove(1);
            std::thread::spawn(move || drop(killed));
            let mut results = Vec::new();
            for call in calls {
                results.push(call.await.unwrap());
            }
            results
        });
        let failed: Vec<_> = results.iter().filter_map(|result| result.as_ref().err()).collect();
        let counters = pool.counters();
        let lost = counters.accelerators[1].lost;
        assert!((1..=2).contains(&lost), "{counters:?}");
        match repeat {
            Repeat::Never => {
                assert_eq!(failed.len() as u64, lost, "{failed:?}");
                assert!(failed.iter().all(|error| matches!(error, Error::PeerGone { .. })), "{failed:?}");
                assert_eq!(counters.repeated, 0);
            }
            Repeat::IfLost(_) => {
                assert!(failed.is_empty(), "{failed:?}");
                assert!(counters.repeated >= lost, "{counters:?}");
            }
        }
    }
}

#[test]
fn an_accelerator_that_starts_later_or_again_is_used() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let first = start(free(), &tasks, |_| {});
    let second = start(free(), &tasks, |_| {});
    let late = second.address();
    drop(second);
    let pool = pool(&[first.address(), late], quick());
    current().block_on(async {
        let used = async || {
            let mut used = BTreeSet::new();
            let calls: Vec<_> = (0..12)
                .map(|byte| {
                    let pool = pool.clone();
                    tokio::spawn(async move { one(&pool, Repeat::Never, byte, 10).await.unwrap() })
                })
                .collect();
            for call in calls {
                used.insert(call.await.unwrap());
            }
            used
        };
        for _ in 0..2 {
            assert_eq!(used().await, BTreeSet::from([first.address()]));
            assert!(!pool.counters().accelerators[1].is_reachable);
            let second = start(late, &tasks, |_| {});
            let begin = Instant::now();
            while !used().await.contains(&late) {
                assert!(begin.elapsed() < LIMIT, "{:?}", pool.counters());
            }
            // The server ends while no task has a session with it, so no call fails.
            let end = std::thread::spawn(move || drop(second));
            while !end.is_finished() {
                tokio::time::sleep(MS).await;
            }
        }
    });
}

#[test]
fn an_accelerator_that_is_full_keeps_the_sessions_it_has() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = start(free(), &tasks, |config| config.max_sessions_per_peer = 2);
    let pool = pool(&[server.address()], PoolConfig { sessions_per_accelerator: 8, ..quick() });
    current().block_on(async {
        let calls: Vec<_> = (0..40)
            .map(|byte| {
                let pool = pool.clone();
                tokio::spawn(async move { one(&pool, Repeat::Never, byte, 2).await.unwrap() })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        // Idle sessions are closed to make room for sessions with other parameters.
        let mut session = pool.session(&[Param::in_out(50_000)]).await.unwrap();
        session.call(LATER).await.unwrap();
    });
    assert_eq!(pool.counters().given_up, 0);
}

#[test]
fn a_task_gives_up_if_no_accelerator_can_be_reached() {
    let tasks = current();
    let gone: Vec<_> = (0..2).map(|_| start(free(), &tasks, |_| {}).address()).collect();
    let pool = pool(&gone, quick());
    current().block_on(async {
        let begin = Instant::now();
        let error = pool.session(&[Param::in_out(8)]).await.unwrap_err();
        assert!(begin.elapsed() >= 300 * MS, "{:?}", begin.elapsed());
        let text = error.to_string();
        assert!(matches!(error, Error::NoAcceleratorReached { .. }), "{text}");
        assert!(gone.iter().all(|peer| text.contains(&peer.to_string())), "{text}");
    });
    assert_eq!(pool.counters().given_up, 1);
    assert!(matches!(Accelerators::towards(&[], quick()), Err(Error::NoAccelerators)));
}

#[test]
fn a_request_that_no_accelerator_takes_fails_at_once() {
    let tasks = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = start(free(), &tasks, |config| config.memory = 1 << 20);
    let pool = pool(&[server.address()], quick());
    current().block_on(async {
        let error = pool.session(&[Param::in_out(64 << 20)]).await.unwrap_err();
        assert!(matches!(error, Error::Peer { .. }), "{error}");
        assert!(one(&pool, Repeat::Never, 1, 0).await.is_ok());
        // Work is not done again because a function has failed.
        let params = [Param::in_out(8)];
        let failing = pool.run(Repeat::IfLost(3), &params, |mut session| async move {
            session.call(FunctionCode::constant(99)).await.map(drop)
        });
        assert_eq!(failing.await.unwrap_err().return_code(), Some(ReturnCode::UNKNOWN_FUNCTION));
    });
    assert_eq!(pool.counters().repeated, 0);
}

#[test]
fn entries_of_naa_spec_have_one_session_at_a_time() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let servers = servers(2, &tasks);
    let entries = servers
        .iter()
        .map(|server| format!("{}:{}:{LATER}:1", server.address().ip(), server.address().port()));
    let spec: Spec = entries.collect::<Vec<_>>().join(",").parse().unwrap();
    let pool = Accelerators::of_spec(&spec, LATER, 1, PoolConfig { sessions_per_accelerator: 8, ..quick() })
        .unwrap();
    assert!(matches!(Accelerators::of_spec(&spec, LATER, 1, quick()), Err(Error::Spec(_))));
    current().block_on(async {
        let calls: Vec<_> = (0..20)
            .map(|byte| {
                let pool = pool.clone();
                tokio::spawn(async move { one(&pool, Repeat::Never, byte, 5).await.unwrap() })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
    });
    for server in &servers {
        assert_eq!(server.stats().sessions_accepted.get(), 1);
    }
    // The idle session is closed to make room for a session with other parameters.
    current().block_on(async {
        let mut sessions = Vec::new();
        for _ in 0..2 {
            sessions.push(pool.session(&[Param::in_out(7)]).await.unwrap());
        }
    });
    for server in &servers {
        naa_tests::local::eventually(LIMIT, || server.stats().sessions.get() == 1);
    }
    drop(pool);
    spec.claim(LATER, 1).unwrap();
}

#[test]
fn tasks_that_leave_at_any_await_lose_no_session() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let servers = servers(2, &tasks);
    let pool = pool(&addresses(&servers), PoolConfig { sessions_per_accelerator: 2, ..quick() });
    current().block_on(async {
        let mut random = Random::new(7, 0);
        let mut calls = Vec::new();
        for number in 0..1000_u64 {
            let (pool, time) = (pool.clone(), Duration::from_micros(random.below(4000)));
            let millis = random.below(2) as u32;
            calls.push(tokio::spawn(async move {
                let _ = timeout(time, one(&pool, Repeat::IfLost(1), number as u8, millis)).await;
            }));
            if number % 16 == 0 {
                tokio::time::sleep(MS).await;
            }
        }
        for call in calls {
            call.await.unwrap();
        }
        let counters = pool.counters();
        assert_eq!(counters.waiting, 0);
        assert!(counters.accelerators.iter().all(|its| its.in_use == 0 && its.is_reachable), "{counters:?}");
        // All places are free again.
        let mut sessions = Vec::new();
        for _ in 0..4 {
            sessions.push(timeout(LIMIT, pool.session(&[Param::in_out(100)])).await.unwrap().unwrap());
        }
        assert!(timeout(20 * MS, pool.session(&[Param::in_out(100)])).await.is_err());
        // A session that is dropped in mid-call is closed, and its place is free again.
        let call = sessions[0].call_with(LATER, U24::new(60_000).unwrap());
        assert!(timeout(10 * MS, call).await.is_err());
        assert_eq!(sessions[0].state(), SessionState::InCall);
        drop(sessions.remove(0));
        timeout(LIMIT, one(&pool, Repeat::Never, 1, 0)).await.unwrap().unwrap();
    });
}

#[test]
fn threads_that_block_share_a_pool() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut servers = servers(3, &tasks);
    let device = Device::open(roce_udp::free_loopback().unwrap()).unwrap();
    let members = servers.iter().map(|server| (device.clone(), server.address())).collect();
    let config = PoolConfig { sessions_per_accelerator: 2, ..quick() };
    let pool = naa_host::Accelerators::new(members, config).unwrap();
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..6_u8 {
            let (pool, done) = (pool.clone(), &done);
            scope.spawn(move || {
                for byte in 0..20_u8 {
                    let content = [byte ^ thread; 10];
                    let params = [Param::in_out(10).holding(&content)];
                    pool.run(Repeat::IfLost(3), &params, |session| {
                        session.invoke(LATER, U24::new(5).unwrap())?;
                        let _ = session.wait()?.into_result()?;
                        assert_eq!(*session.bytes(0, ..)?, [content[0].wrapping_add(1); 10]);
                        Ok(())
                    })
                    .unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 30 {
            std::thread::sleep(MS);
        }
        drop(servers.remove(0));
    });
    let counters = pool.counters();
    assert_eq!(done.load(Ordering::Relaxed), 120);
    assert!(counters.accelerators.iter().all(|its| its.in_use == 0), "{counters:?}");
    let mut session = pool.session(&[Param::in_out(10)]).unwrap();
    session.call(LATER).unwrap();
}

#[test]
fn a_pool_outlives_the_runtimes_of_its_tasks() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = start(free(), &tasks, |_| {});
    let gone = start(free(), &tasks, |_| {}).address();
    let pool = pool(&[server.address()], quick());
    let first = current();
    first.block_on(one(&pool, Repeat::Never, 1, 0)).unwrap();
    // The first runtime has no thread that drives it; the second has ended.
    current().block_on(one(&pool, Repeat::Never, 2, 0)).unwrap();
    drop(first);
    current().block_on(one(&pool, Repeat::Never, 3, 0)).unwrap();
    assert_eq!(pool.counters().accelerators[0].opened, 1);
    let unreachable = self::pool(&[gone], PoolConfig { give_up_after: None, ..quick() });
    let params = [Param::in_out(100)];
    let first = current();
    assert!(first.block_on(async { timeout(50 * MS, unreachable.session(&params)).await }).is_err());
    drop(first);
    let _again = start(gone, &tasks, |_| {});
    current()
        .block_on(async { timeout(LIMIT, one(&unreachable, Repeat::Never, 4, 0)).await.unwrap().unwrap() });
}

#[test]
fn what_a_task_changes_of_a_session_does_not_reach_the_next() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = start(free(), &tasks, |_| {});
    let pool = pool(&[server.address()], quick());
    current().block_on(async {
        for byte in [10_u8, 20] {
            let content = [byte; 8];
            let mut session = pool.session(&[Param::in_out(8).holding(&content)]).await.unwrap();
            session.call(LATER).await.unwrap();
            assert_eq!(*session.bytes(0, ..).unwrap(), [byte + 1; 8]);
            session.set_bytes_to_send(0, Some(1)).unwrap();
            session.set_call_timeout(Some(Duration::ZERO));
        }
        // Once-parameters are sent for each task.
        for byte in [10_u8, 20] {
            let content = [byte; 8];
            let params = [Param::data(&content).single_send(), Param::output(8)];
            let mut session = pool.session(&params).await.unwrap();
            session.call(LATER).await.unwrap();
            assert_eq!(*session.bytes(1, ..).unwrap(), [byte + 1; 8]);
        }
    });
}

#[test]
fn a_session_whose_accelerator_ended_while_it_was_idle_is_not_given_to_a_task() {
    let tasks = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let server = start(free(), &tasks, |_| {});
    let address = server.address();
    let pool = pool(&[address], PoolConfig { give_up_after: None, ..quick() });
    current().block_on(async {
        one(&pool, Repeat::Never, 1, 0).await.unwrap();
        assert_eq!(pool.counters().accelerators[0].idle, 1);
    });
    drop(server);
    let _again = start(address, &tasks, |_| {});
    current().block_on(async {
        let mut session = pool.session(&[Param::in_out(100)]).await.unwrap();
        session.call(LATER).await.unwrap();
    });
    assert_eq!(pool.counters().accelerators[0].lost, 0);
}
