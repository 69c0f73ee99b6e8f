//! Tests of `SessionSetup`, with which a program sets up a session step by step, and of a session whose program waits
//! in its own event loop.

mod model;

use std::time::{Duration, Instant};

use model::{AcceleratorModel, Action, increment};
use naa_host::{
    Buffer, Device, Error, FunctionCode, Param, Part, Session, SessionConfig, SessionSetup, SetupStage, U24,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const F: FunctionCode = FunctionCode::constant(1);

fn device(ip: &str) -> Device {
    Device::open(ip.parse().unwrap()).unwrap()
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

#[test]
fn each_stage_follows_the_one_before() {
    let model = AcceleratorModel::start("127.0.3.60", increment);
    let device = device("127.0.3.160");
    let params = [Param::in_out(8), Param::internal(100)];
    let mut setup = SessionSetup::new(&device, model.address, &params, &SessionConfig::default()).unwrap();
    assert_eq!((setup.step().unwrap(), setup.agree().unwrap()), (SetupStage::Idle, false));
    setup.connect().unwrap();
    assert_eq!(setup.stage(), SetupStage::Connecting);
    while setup.step().unwrap() == SetupStage::Connecting {
        setup.wait(soon()).unwrap();
    }
    assert_eq!(setup.stage(), SetupStage::Connected);
    // `agree` returns false, because `prepare` was not called yet.
    assert!(!setup.agree().unwrap());
    setup.prepare(&params, Some(vec![Buffer::new(8).unwrap()])).unwrap();
    assert!(setup.agree().unwrap() && !setup.agree().unwrap());
    setup.reach(SetupStage::Agreed, soon()).unwrap();
    let mut session = setup.into_session().unwrap();
    session.call(F).unwrap();
    assert_eq!(session.slice(0).unwrap(), [1; 8]);
}

#[test]
fn what_is_prepared_last_counts_and_must_fit() {
    let model = AcceleratorModel::start("127.0.3.61", increment);
    let device = device("127.0.3.161");
    let sizes = [Param::input(8), Param::output(16)];
    let mut setup = SessionSetup::new(&device, model.address, &sizes, &SessionConfig::default()).unwrap();
    let more = [Param::input(8), Param::input(8), Param::output(16)];
    assert!(matches!(setup.prepare(&more, None), Err(Error::Setup(_))));
    // One WRITE has at most 2 GiB, so the output would need a second WRITE. `prepare` checks the number of WRITEs
    // before it checks the sizes of the parameters. Its error is therefore about the WRITEs and not about the size.
    let longer = [Param::input(8), Param::output((2 << 30) + 1)];
    let error = setup.prepare(&longer, None).unwrap_err().to_string();
    assert!(error.contains("WRITEs beyond one for each region: the limit is 0"), "{error}");
    let other = [Param::output(8), Param::in_out(16)];
    for params in [&sizes, &other] {
        setup.prepare(params, None).unwrap();
    }
    setup.connect().unwrap();
    setup.reach(SetupStage::Connected, soon()).unwrap();
    setup.agree().unwrap();
    setup.reach(SetupStage::Agreed, soon()).unwrap();
    let mut session = setup.into_session().unwrap();
    session.call(F).unwrap();
    assert_eq!((session.slice(0).unwrap(), session.slice(1).unwrap()), (&[1; 8][..], &[1; 16][..]));
}

#[test]
fn nobody_there_is_told_in_time() {
    let device = device("127.0.3.162");
    let peer = "127.0.3.62:12345".parse().unwrap();
    let mut setup = SessionSetup::new(&device, peer, &[Param::in_out(8)], &SessionConfig::default()).unwrap();
    setup.connect().unwrap();
    let start = Instant::now();
    let error = setup.reach(SetupStage::Connected, start + Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(setup.into_session().is_none());
}

#[test]
fn parts_of_inputs_go_where_they_belong() {
    let model = AcceleratorModel::start("127.0.3.63", increment);
    let device = device("127.0.3.163");
    let params = [Param::in_out(8)];
    let mut session = Session::connect(&device, model.address, &params, &SessionConfig::default()).unwrap();
    session.write(0, 0, &[10, 20, 30, 40, 50, 60, 70, 80]).unwrap();
    session.set_part_to_send(0, Some(Part { offset: 2, bytes: 3 })).unwrap();
    session.call(F).unwrap();
    assert_eq!(session.slice(0).unwrap(), [1, 1, 31, 41, 51, 1, 1, 1]);
    for part in
        [Part { offset: 6, bytes: 3 }, Part { offset: 9, bytes: 0 }, Part { offset: u64::MAX, bytes: 1 }]
    {
        let error = session.set_part_to_send(0, Some(part)).unwrap_err();
        assert!(matches!(error, Error::OutOfBounds { .. }), "{error}");
    }
}

/// Returns true if the session's file descriptor becomes readable within `ms` milliseconds.
fn readable(session: &mut Session, ms: i64) -> bool {
    let fd = session.descriptor().unwrap();
    let time = Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)).unwrap() == 1
}

#[test]
fn a_descriptor_tells_of_the_end_of_a_call() {
    let model = AcceleratorModel::start("127.0.3.64", |_, _| {
        Action::Later(Duration::from_millis(50), Ok(Vec::new()))
    });
    let device = device("127.0.3.164");
    let mut session =
        Session::connect(&device, model.address, &[Param::in_out(8)], &SessionConfig::default()).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    assert!(session.test().unwrap().is_none());
    // The session makes its file descriptor only in this call of `readable`, so the call of `test` above could not set
    // the descriptor's timer. The new file descriptor is readable at once, so that the program calls `test` again.
    assert!(readable(&mut session, 0));
    while session.test().unwrap().is_none() {
        assert!(readable(&mut session, 5000));
    }
    for _ in 0..20 {
        session.invoke(F, U24::ZERO).unwrap();
        let start = Instant::now();
        while session.test().unwrap().is_none() {
            assert!(readable(&mut session, 5000));
        }
        assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    }
}

#[test]
fn a_descriptor_tells_of_the_death_of_the_accelerator() {
    let model = AcceleratorModel::start("127.0.3.65", |_, _| Action::Vanish);
    let config = SessionConfig {
        ack_timeout: 12,
        probe_interval: Some(Duration::from_millis(100)),
        ..SessionConfig::default()
    };
    let device = device("127.0.3.165");
    let mut session = Session::connect(&device, model.address, &[Param::in_out(8)], &config).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    assert!(session.test().unwrap().is_none());
    readable(&mut session, 0);
    let start = Instant::now();
    let error = loop {
        match session.test() {
            Ok(None) => assert!(readable(&mut session, 5000)),
            Ok(Some(outcome)) => panic!("{outcome:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}
