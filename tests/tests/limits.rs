//! What a server makes of a device's limits.

use naa_host::{Error, FunctionCode, Param, Session, SessionConfig};
use naa_tests::local::{device, serve};

#[test]
fn there_are_as_many_sessions_as_the_completion_queue_has_room_for() {
    // 32 regions take 44 completions of a session.
    let server = serve("127.0.6.40", |config| config.device.limits.max_cq_depth = 100);
    let device = device("127.0.6.41");
    let config = SessionConfig::default();
    let connect = || Session::connect(&device, server.address(), &[Param::in_out(64)], &config);
    // The queue's places are free again when sessions have ended.
    for _ in 0..30 {
        let mut both = [connect().unwrap(), connect().unwrap()];
        let error = connect().unwrap_err();
        assert!(matches!(&error, Error::ConnectionRefused { .. }), "{error}");
        assert!(error.to_string().contains("as many sessions as it may"), "{error}");
        for session in &mut both {
            session.call(FunctionCode::constant(1)).unwrap();
        }
        for session in both {
            session.finalize().unwrap();
        }
        while server.stats().sessions.get() > 0 {
            std::thread::yield_now();
        }
    }
    assert_eq!(server.stats().sessions_failed.get(), 0);
}

#[test]
fn there_are_as_many_regions_as_a_queue_pair_has_room_for() {
    let server = serve("127.0.6.42", |config| config.device.limits.max_wr = 10);
    let device = device("127.0.6.43");
    let connect = |count| {
        let params = vec![Param::in_out(16); count];
        Session::connect(&device, server.address(), &params, &SessionConfig::default())
    };
    let error = connect(3).unwrap_err();
    assert!(error.to_string().contains("too many regions"), "{error}");
    let mut session = connect(2).unwrap();
    session.call(FunctionCode::constant(1)).unwrap();
}
