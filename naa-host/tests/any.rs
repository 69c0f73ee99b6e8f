//! Tests of `wait_any`, which waits until the first of several calls ends.

mod model;

use std::time::{Duration, Instant};

use model::{AcceleratorModel, Action};
use naa_host::{Any, Device, Error, FunctionCode, Param, Session, SessionConfig, U24, WaitMode, wait_any};

const F: FunctionCode = FunctionCode::constant(1);

/// Connects `N` sessions. The user bits of a call are the number of milliseconds after which the accelerator responds.
fn sessions<const N: usize>(
    model: &AcceleratorModel,
    device: &Device,
    config: &SessionConfig,
) -> [Session; N] {
    [(); N].map(|()| Session::connect(device, model.address, &[Param::in_out(8)], config).unwrap())
}

fn sleeping(ip: &str) -> AcceleratorModel {
    AcceleratorModel::start(ip, |_, request| match request.user.get() {
        0xffffff => Action::Vanish,
        ms => Action::Later(Duration::from_millis(ms.into()), Ok(Vec::new())),
    })
}

fn user(ms: u32) -> U24 {
    U24::new(ms).unwrap()
}

#[test]
fn the_quickest_is_told_first() {
    let model = sleeping("127.0.3.70");
    let device = Device::open("127.0.3.170".parse().unwrap()).unwrap();
    for wait in [WaitMode::Adaptive, WaitMode::Spin, WaitMode::Block] {
        let config = SessionConfig { wait, ..SessionConfig::default() };
        let mut all = sessions::<4>(&model, &device, &config);
        assert!(matches!(wait_any(&mut all, None), Ok(Any::NoCall)));
        // In the second pass of this loop, the call of the first session ends first. The device must still make
        // progress afterwards, so that the calls of the other sessions end, too.
        for (times, order) in [([300, 100, 200], [1, 2, 0]), ([50, 100, 150], [0, 1, 2])] {
            // The array has three durations for four sessions, so `zip` leaves the last session without a call.
            for (session, ms) in all.iter_mut().zip(times) {
                session.invoke(F, user(ms)).unwrap();
            }
            let start = Instant::now();
            for expected in order {
                let Ok(Any::Ended(number, Ok(_))) = wait_any(&mut all, None) else { panic!("{wait:?}") };
                assert_eq!(number, expected, "{wait:?}");
            }
            assert!(start.elapsed() < Duration::from_secs(1), "{wait:?}: {:?}", start.elapsed());
        }
        assert!(matches!(wait_any(&mut all, None), Ok(Any::NoCall)));
        assert!(matches!(wait_any(&mut [] as &mut [Session], None), Ok(Any::NoCall)));
    }
}

#[test]
fn a_deadline_leaves_all_running() {
    let model = sleeping("127.0.3.71");
    let device = Device::open("127.0.3.171".parse().unwrap()).unwrap();
    let mut all = sessions::<2>(&model, &device, &SessionConfig::default());
    all.iter_mut().for_each(|session| session.invoke(F, user(400)).unwrap());
    let start = Instant::now();
    for deadline in [start, start + Duration::from_millis(50)] {
        assert!(matches!(wait_any(&mut all, Some(deadline)), Ok(Any::Running)));
        assert!(Instant::now() >= deadline);
    }
    assert!(all.iter().all(Session::is_in_call) && start.elapsed() < Duration::from_millis(300));
    for _ in 0..2 {
        assert!(matches!(wait_any(&mut all, None), Ok(Any::Ended(_, Ok(_)))));
    }
}

#[test]
fn the_death_of_one_accelerator_is_told_while_others_work() {
    let (model, other) = (sleeping("127.0.3.72"), sleeping("127.0.3.73"));
    let device = Device::open("127.0.3.172".parse().unwrap()).unwrap();
    let config = SessionConfig {
        ack_timeout: 12,
        probe_interval: Some(Duration::from_millis(100)),
        ..SessionConfig::default()
    };
    let [dying] = sessions(&model, &device, &config);
    let [working] = sessions(&other, &device, &config);
    let mut all = [dying, working];
    all[0].invoke(F, user(0xffffff)).unwrap();
    all[1].invoke(F, user(8000)).unwrap();
    let start = Instant::now();
    let Ok(Any::Ended(0, Err(error))) = wait_any(&mut all, None) else { panic!() };
    assert!(matches!(error, Error::PeerGone { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    assert!(all[1].is_in_call());
}
