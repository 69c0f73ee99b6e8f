//! Tests of calls that succeed, and of functions that fail.

mod model;

use std::time::{Duration, Instant};

use model::{AcceleratorModel, Action, increment};
use mrsp::RegionFlags;
use naa_host::{
    CallResponse, Device, Dialect, Error, FunctionCode, Param, Part, ReturnCode, Session, SessionConfig, U24,
};

const F: FunctionCode = FunctionCode::constant(1);

fn device(ip: &str) -> Device {
    Device::open(ip.parse().unwrap()).unwrap()
}

fn connect(local: &str, model: &AcceleratorModel, params: &[Param<'_>]) -> Session {
    Session::connect(&device(local), model.address, params, &SessionConfig::default()).unwrap()
}

#[test]
fn the_longest_duration_is_no_limit_of_the_setup() {
    let model = AcceleratorModel::start("127.0.3.230", increment);
    let config = SessionConfig { setup_timeout: Duration::MAX, ..SessionConfig::default() };
    let params = [Param::output(8)];
    let mut session = Session::connect(&device("127.0.3.231"), model.address, &params, &config).unwrap();
    session.call(F).unwrap();
}

#[test]
fn all_kinds_of_regions() {
    let model = AcceleratorModel::start("127.0.3.1", |regions, request| {
        let kinds: Vec<_> = regions.iter().map(|region| region.flags).collect();
        let (input, output) = (RegionFlags::INPUT, RegionFlags::OUTPUT);
        let once = input | RegionFlags::SINGLE_SEND;
        assert_eq!(kinds, [input, output, input | output, once, RegionFlags::INTERNAL]);
        assert_eq!((request.function, request.user.get()), (Some(F), 0xabcdef));
        let sum = regions[0].bytes()[99_999] + regions[2].bytes()[0] + regions[3].bytes()[2];
        regions[1].write(&[sum; 3000]);
        regions[2].write(&[77; 600]);
        Action::Respond(Ok(Vec::new()))
    });
    let params = [
        Param::input(100_000),
        Param::output(3000),
        Param::in_out(600).holding(&[20]),
        Param::internal(5000),
        Param::data(&[1, 2, 3]).single_send(),
    ];
    let mut session = connect("127.0.3.101", &model, &params);
    assert_eq!(session.params(), 4);
    session.slice_mut(0).unwrap().fill(10);
    session.invoke(F, U24::new(0xabcdef).unwrap()).unwrap();
    assert!(matches!(session.slice(1), Err(Error::InCall)));
    assert!(matches!(session.slice_mut(0), Err(Error::InCall)));
    assert!(matches!(session.invoke(F, U24::ZERO), Err(Error::InCall)));
    let outcome = session.wait().unwrap().into_result().unwrap();
    assert_eq!((outcome.answer, outcome.last_write_bytes), (CallResponse::Success, 600));
    assert_eq!(session.slice(1).unwrap(), [33; 3000]);
    assert_eq!(session.slice(2).unwrap(), [77; 600]);
    assert!(matches!(session.wait(), Err(Error::NoCall)));
    session.finalize().unwrap();
}

#[test]
fn single_send_is_sent_once() {
    let model = AcceleratorModel::start("127.0.3.2", |regions, _| {
        regions[2].write(&[regions[0].bytes()[0], regions[1].bytes()[0]]);
        Action::Respond(Ok(Vec::new()))
    });
    let params = [Param::data(&[1]).single_send(), Param::input(1), Param::output(2)];
    let mut session = connect("127.0.3.102", &model, &params);
    for round in 1..=3 {
        session.write(0, 0, &[round]).unwrap();
        session.write(1, 0, &[10 * round]).unwrap();
        session.call(F).unwrap();
        assert_eq!(session.slice(2).unwrap(), [1, 10 * round]);
    }
}

#[test]
fn only_prefixes_are_sent_and_received() {
    let model = AcceleratorModel::start("127.0.3.3", |regions, _| {
        let input = regions[0].bytes();
        let sent = input.iter().filter(|&&byte| byte != 0).count();
        regions[1].write(&[7; 5000]);
        Action::Respond(Ok(vec![None, Some(Part::prefix(sent as u64))]))
    });
    let mut session = connect("127.0.3.103", &model, &[Param::input(5000), Param::output(5000)]);
    session.slice_mut(0).unwrap().fill(1);
    for (bytes, all) in [(Some(0), 0), (Some(3), 3), (Some(4000), 4000), (None, 5000)] {
        session.slice_mut(1).unwrap().fill(0);
        session.set_bytes_to_send(0, bytes).unwrap();
        session.invoke(F, U24::ZERO).unwrap();
        assert_eq!(session.wait().unwrap().last_write_bytes, all);
        let produced = session.slice(1).unwrap().iter().filter(|&&byte| byte == 7).count();
        assert_eq!(produced, all as usize);
    }
    assert!(matches!(session.set_bytes_to_send(0, Some(5001)), Err(Error::OutOfBounds { .. })));
    assert!(matches!(session.set_bytes_to_send(1, Some(1)), Err(Error::NotInput { index: 1 })));
    assert!(matches!(session.set_bytes_to_send(2, None), Err(Error::NoSuchParam { .. })));
    assert!(matches!(session.write(0, usize::MAX, &[1]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(session.read(1, 4999, &mut [0; 2]), Err(Error::OutOfBounds { .. })));
    session.call(F).unwrap();
}

#[test]
fn calls_without_outputs_or_inputs() {
    let model = AcceleratorModel::start("127.0.3.4", increment);
    let mut session = connect("127.0.3.104", &model, &[Param::data(b"in")]);
    session.call(F).unwrap();
    assert_eq!(session.slice(0).unwrap(), b"in");
    let mut session = connect("127.0.3.104", &model, &[Param::output(9), Param::output(0)]);
    session.call(F).unwrap();
    session.call(F).unwrap();
    assert_eq!(session.slice(0).unwrap(), [2; 9]);
}

#[test]
fn many_regions_and_large_ones() {
    let model = AcceleratorModel::start("127.0.3.5", increment);
    let params: Vec<_> = (0..31).map(|i| Param::in_out(1 + 700 * i)).collect();
    let mut session = connect("127.0.3.105", &model, &params);
    session.call(F).unwrap();
    for i in 0..31 {
        assert!(session.slice(i).unwrap().iter().all(|&byte| byte == 1), "region {i}");
    }
    let mut session = connect("127.0.3.105", &model, &[Param::in_out(20 << 20)]);
    session.call(F).unwrap();
    assert!(session.slice(0).unwrap().iter().all(|&byte| byte == 1));
}

#[test]
fn failures_have_codes_and_leave_the_session_usable() {
    let mut codes = [ReturnCode::UNKNOWN_FUNCTION, ReturnCode::KERNEL_TIMEOUT].into_iter();
    let model = AcceleratorModel::start("127.0.3.6", move |regions, request| match codes.next() {
        Some(code) => {
            regions[0].write(&[1; 8]);
            Action::Fail(code, 4)
        }
        None => increment(regions, request),
    });
    let mut session = connect("127.0.3.106", &model, &[Param::output(8)]);
    let error = session.call(F).unwrap_err();
    assert_eq!(error.return_code(), Some(ReturnCode::UNKNOWN_FUNCTION));
    assert!(error.to_string().contains("function 1 (increment)"), "{error}");
    assert_eq!(session.slice(0).unwrap(), [1, 1, 1, 1, 0, 0, 0, 0]);
    session.invoke(F, U24::ZERO).unwrap();
    assert_eq!(session.wait().unwrap().answer, CallResponse::Failure(ReturnCode::KERNEL_TIMEOUT));
    session.call(F).unwrap();
    assert_eq!(session.slice(0).unwrap(), [2; 8]);
}

#[test]
fn the_other_dialect_has_user_bits_instead_of_codes() {
    let code = ReturnCode::new(U24::new(0x1234).unwrap()).unwrap();
    let model = AcceleratorModel::start("127.0.3.7", move |_, _| Action::Respond(Err(code)));
    let config = SessionConfig { dialect: Dialect::Next, ..SessionConfig::default() };
    let device = device("127.0.3.107");
    let mut session = Session::connect(&device, model.address, &[Param::output(8)], &config).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    assert_eq!(session.wait().unwrap().answer, CallResponse::User(U24::new(0x1234).unwrap()));
}

#[test]
fn a_slow_function_is_not_a_dead_accelerator() {
    let model = AcceleratorModel::start("127.0.3.8", |_, _| {
        Action::Later(Duration::from_millis(3000), Ok(Vec::new()))
    });
    let config =
        SessionConfig { probe_interval: Some(Duration::from_millis(300)), ..SessionConfig::default() };
    let device = device("127.0.3.108");
    let mut session = Session::connect(&device, model.address, &[Param::in_out(8)], &config).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    let start = Instant::now();
    assert_eq!(session.test().unwrap(), None);
    assert_eq!(session.wait_timeout(Duration::from_millis(200)).unwrap(), None);
    let waited = start.elapsed();
    assert!((200..600).contains(&waited.as_millis()), "{waited:?}");
    assert!(session.is_in_call());
    let _ = session.wait().unwrap().into_result().unwrap();
    assert!(start.elapsed() >= Duration::from_millis(2900));
}

#[test]
fn testing_without_waiting_ends_too() {
    let model = AcceleratorModel::start("127.0.3.9", increment);
    let mut session = connect("127.0.3.109", &model, &[Param::in_out(8)]);
    session.invoke(F, U24::ZERO).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    while session.test().unwrap().is_none() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
    assert_eq!(session.slice(0).unwrap(), [1; 8]);
}

#[test]
fn sessions_share_a_device_across_threads() {
    let model = AcceleratorModel::start("127.0.3.10", increment);
    let (a, b) = (device("127.0.3.110"), device("127.0.3.110"));
    assert_eq!(a.describe(), b.describe());
    let peer = model.address;
    std::thread::scope(|scope| {
        for device in [a, b] {
            scope.spawn(move || {
                let mut session =
                    Session::connect(&device, peer, &[Param::in_out(3000)], &SessionConfig::default())
                        .unwrap();
                for round in 1..=50 {
                    session.call(F).unwrap();
                    assert_eq!(session.slice(0).unwrap(), [round; 3000]);
                }
                session.finalize().unwrap();
            });
        }
    });
}
