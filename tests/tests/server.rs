//! What a server refuses, and how it ends.

use std::{sync::Arc, thread, time::Duration};

use naa_host::{Dialect, Error, FunctionCode, Gone, Param, Session, SessionConfig, U24};
use naa_server::{
    Config, Server,
    call::{Call, CallFailure},
    function::{Function, FunctionInfo},
    functions,
};
use naa_tests::{
    local::{device, open, serve},
    slow::{self, SLOW},
};

#[test]
fn a_call_and_its_results_outlive_the_order_to_end() {
    const LEN: usize = 64 << 20;
    let server = serve("127.0.6.20", |_| {});
    let device = device("127.0.6.21");
    let config = SessionConfig::default();
    let idle = Session::connect(&device, server.address(), &[Param::in_out(64)], &config).unwrap();
    let mut busy = Session::connect(&device, server.address(), &[Param::in_out(LEN)], &config).unwrap();
    busy.slice_mut(0).unwrap().fill(7);
    busy.invoke(SLOW, U24::new(400).unwrap()).unwrap();
    let waiting = thread::spawn(move || {
        let outcome = busy.wait();
        (busy, outcome)
    });
    while server.stats().calls.get() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    server.shutdown(Duration::from_secs(20));
    let (busy, outcome) = waiting.join().unwrap();
    assert!(outcome.unwrap().into_result().is_ok());
    assert!(busy.slice(0).unwrap().iter().all(|&b| b == 7));
    drop(idle);
}

#[test]
fn too_many_regions_are_refused_by_name() {
    let server = serve("127.0.6.22", |config| config.limits.max_regions = 4);
    let device = device("127.0.6.23");
    let connect = |count| {
        let params = vec![Param::in_out(16); count];
        Session::connect(&device, server.address(), &params, &SessionConfig::default())
    };
    let error = connect(5).unwrap_err();
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    assert!(error.to_string().contains("too many regions"), "{error}");
    connect(4).unwrap().finalize().unwrap();
}

#[test]
fn a_host_that_is_still_writing_is_told() {
    const LEN: usize = 256 << 20;
    let server = serve("127.0.6.24", |_| {});
    let mut session = open("127.0.6.25", server.address(), LEN);
    session.slice_mut(0).unwrap().fill(7);
    session.invoke(FunctionCode::constant(1), U24::ZERO).unwrap();
    let waiting = thread::spawn(move || {
        let outcome = session.wait();
        (session, outcome)
    });
    let received = |server: &Server| {
        server.device_counters().into_iter().find_map(|(name, n)| (name == "rcvd_pkts").then_some(n))
    };
    while received(&server).unwrap() < 100 {
        thread::sleep(Duration::from_millis(1));
    }
    server.shutdown(Duration::from_secs(20));
    let (session, outcome) = waiting.join().unwrap();
    let error = outcome.unwrap_err();
    assert!(matches!(error, Error::PeerGone { why: Gone::Disconnected, .. }), "{error}");
    assert!(error.to_string().contains("may have been stopped"), "{error}");
    assert!(session.is_over());
    assert!(session.slice(0).unwrap().iter().all(|&b| b == 7));
}

#[derive(Debug)]
struct Described(FunctionInfo);

impl Function for Described {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn run(&self, _: &mut Call<'_>) -> Result<(), CallFailure> {
        Ok(())
    }
}

#[test]
fn a_large_catalogue_is_read_whatever_dialect_the_session_has() {
    let described = |code| {
        let (code, description) = (FunctionCode::constant(code), "x".repeat(60_000));
        let FunctionInfo { pooled, parameters, .. } = slow::function().info().clone();
        let info = FunctionInfo { code, name: format!("described-{code}"), description, pooled, parameters };
        Arc::new(Described(info)) as Arc<dyn Function>
    };
    let registry = functions::registry([described(100), described(101)]).unwrap();
    let server = Server::start(Config::new("127.0.6.147:0".parse().unwrap()), registry).unwrap();
    let device = device("127.0.6.148");
    for dialect in [Dialect::Main, Dialect::Next] {
        let config = SessionConfig { dialect, ..SessionConfig::default() };
        let catalogue = naa_host::functions_with(&device, server.address(), &config).unwrap();
        assert!(catalogue.functions.iter().any(|it| it.name == "described-101"), "{dialect:?}");
    }
}
