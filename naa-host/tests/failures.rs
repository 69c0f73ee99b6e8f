//! Tests with accelerators that refuse regions, break the protocol, disconnect or stop.

mod model;

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use model::{AcceleratorModel, Action, increment};
use mrsp::accelerator::SessionLimits;
use naa_host::{Device, Error, FunctionCode, Gone, Param, Party, Session, SessionConfig, U24};
use verbs::RejectReason;

const F: FunctionCode = FunctionCode::constant(1);

fn connect(local: &str, peer: SocketAddr, params: &[Param<'_>]) -> Result<Session, Error> {
    let device = Device::open(local.parse().unwrap()).unwrap();
    Session::connect(&device, peer, params, &SessionConfig::default())
}

/// Connects a session whose first call fails. Returns the session, the error and the duration of the call.
fn failing_call(
    ip: &str,
    local: &str,
    action: impl Fn() -> Action + Send + 'static,
) -> (Session, Error, Duration) {
    let model = AcceleratorModel::start(ip, move |_, _| action());
    let mut session = connect(local, model.address, &[Param::in_out(8)]).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    let start = Instant::now();
    let error = session.wait().unwrap_err();
    (session, error, start.elapsed())
}

#[test]
fn nobody_listens() {
    let model = AcceleratorModel::start("127.0.3.20", increment);
    let mut peer = model.address;
    peer.set_port(999);
    let error = connect("127.0.3.120", peer, &[Param::input(1)]).unwrap_err();
    let reason = RejectReason::INVALID_SERVICE_ID;
    assert!(matches!(error, Error::ConnectionRefused { reason: found, .. } if found == reason));
    assert!(error.to_string().contains("`naa serve`"), "{error}");
}

#[test]
fn nobody_answers_in_time() {
    let device = Device::open("127.0.3.121".parse().unwrap()).unwrap();
    let config = SessionConfig { setup_timeout: Duration::from_millis(700), ..SessionConfig::default() };
    let start = Instant::now();
    let peer = "127.0.3.21:12345".parse().unwrap();
    let error = Session::connect(&device, peer, &[Param::input(1)], &config).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert_eq!(error.party(), Party::Network);
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

#[test]
fn regions_are_refused() {
    let limits = SessionLimits { max_region_bytes: 1000, max_regions: 2, ..SessionLimits::default() };
    let model = AcceleratorModel::start_with_abilities("127.0.3.22", None, limits, increment);
    let error = connect("127.0.3.122", model.address, &[Param::input(1001)]).unwrap_err();
    assert!(error.to_string().contains("MRSP error 1"), "{error}");
    let three = [Param::input(1), Param::output(1), Param::internal(1)];
    let error = connect("127.0.3.122", model.address, &three).unwrap_err();
    assert!(error.to_string().contains("MRSP error 3"), "{error}");
    assert_eq!(error.party(), Party::Accelerator);
    connect("127.0.3.122", model.address, &three[..2]).unwrap().call(F).unwrap();
}

#[test]
fn regions_that_make_no_session() {
    let peer = "127.0.3.23:12345".parse().unwrap();
    let refused = |params: &[Param<'_>]| connect("127.0.3.123", peer, params).unwrap_err();
    for params in [&[][..], &[Param::internal(5)], &[Param::input(1); 32], &[Param::output((2 << 30) + 1)]] {
        let error = refused(params);
        assert!(matches!(error, Error::Setup(_)), "{error}");
        assert_eq!(error.party(), Party::Program);
    }
    assert!(matches!(refused(&[Param::input(1).holding(b"ab")]), Error::OutOfBounds { .. }));
}

#[test]
fn it_disconnects_during_a_call() {
    let (mut session, error, took) = failing_call("127.0.3.24", "127.0.3.124", || Action::Disconnect);
    assert!(matches!(error, Error::PeerGone { why: Gone::Disconnected, .. }), "{error}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert!(session.is_over());
    assert!(matches!(session.invoke(F, U24::ZERO), Err(Error::Over { .. })));
    assert_eq!(session.slice_mut(0).unwrap(), [0; 8]);
    session.finalize().unwrap();
}

#[test]
fn it_dies_during_a_call() {
    let (session, error, took) = failing_call("127.0.3.25", "127.0.3.125", || Action::Vanish);
    assert!(matches!(error, Error::PeerGone { why: Gone::Silent, .. }), "{error}");
    assert_eq!(error.party(), Party::Network);
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(session.slice(0).unwrap(), [0; 8]);
}

#[test]
fn it_leaves_between_calls() {
    let model = AcceleratorModel::start("127.0.3.26", increment);
    let mut session = connect("127.0.3.126", model.address, &[Param::in_out(8)]).unwrap();
    session.call(F).unwrap();
    drop(model);
    let error = session.call(F).unwrap_err();
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    assert_eq!(session.slice(0).unwrap(), [1; 8]);
}

#[test]
fn it_answers_with_an_error_message() {
    let (session, error, _) = failing_call("127.0.3.27", "127.0.3.127", || Action::Error);
    assert!(matches!(error, Error::Peer { .. }), "{error}");
    assert!(session.is_over());
}

#[test]
fn it_answers_twice() {
    let model = AcceleratorModel::start("127.0.3.28", |_, _| Action::Twice);
    let mut session = connect("127.0.3.128", model.address, &[Param::in_out(8)]).unwrap();
    // The accelerator sends two responses, but the second response belongs to no call. If the accelerator has no access
    // to the host's region any more, the host's device refuses the WRITE of the second response. Otherwise, the host
    // reports the immediate of the second response as an error, because no call is running.
    let _ = session.call(F);
    std::thread::sleep(Duration::from_millis(100));
    let error = session.call(F).unwrap_err();
    assert!(matches!(error, Error::Peer { .. } | Error::PeerGone { .. } | Error::Over { .. }), "{error}");
    assert_eq!(session.slice(0).unwrap(), [0; 8]);
}
