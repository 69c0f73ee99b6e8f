//! Tests of calls that do not end. The host notices a dead accelerator, reports an accelerator that does not respond,
//! and gives a call up after a time-out.

mod model;

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use model::{AcceleratorModel, Action};
use naa_host::{
    Any, CallTimeout, Device, Error, FunctionCode, Gone, Param, Party, Session, SessionConfig, U24, wait_any,
};

const F: FunctionCode = FunctionCode::constant(77);
const MS: Duration = Duration::from_millis(1);
/// A time that is much longer than the run time of these tests on a busy machine.
const LONG: Duration = Duration::from_secs(3600);

/// Starts an accelerator that does not respond to calls while a test runs, but does not end the connection either.
fn mute(ip: &str) -> AcceleratorModel {
    AcceleratorModel::start(ip, |_, _| Action::Later(LONG, Ok(Vec::new())))
}

/// Connects a session and begins a call that does not end.
fn calling(local: &str, model: &AcceleratorModel, params: &[Param<'_>], config: &SessionConfig) -> Session {
    let device = Device::open(local.parse().unwrap()).unwrap();
    let mut session = Session::connect(&device, model.address, params, config).unwrap();
    session.invoke(F, U24::ZERO).unwrap();
    session
}

/// The log lines of one thread, as bytes.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Runs `f` and returns the warnings that were logged while `f` ran. Each element is one line of the log.
    fn of(f: impl FnOnce()) -> Vec<String> {
        let log = Self::default();
        let lines = log.clone();
        let logger = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish();
        tracing::subscriber::with_default(logger, f);
        let bytes = log.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }
}

#[test]
fn a_program_that_tests_now_and_then_notices_a_dead_accelerator_in_the_promised_time() {
    let model = AcceleratorModel::start("127.0.3.80", |_, _| Action::Vanish);
    // The ACK time-out is 17 ms, so with 7 retries the accelerator has about 140 ms to acknowledge a probe.
    let config =
        SessionConfig { probe_interval: Some(100 * MS), ack_timeout: 12, ..SessionConfig::default() };
    let mut session = calling("127.0.3.180", &model, &[Param::in_out(8)], &config);
    let start = Instant::now();
    let error = loop {
        match session.test() {
            Ok(None) => sleep(500 * MS),
            Ok(Some(outcome)) => panic!("{outcome:?}"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::PeerGone { why: Gone::Silent, .. }), "{error}");
    // The loop calls `test` every half second: the second call of `test` sends a probe, and the third call of `test`
    // returns the error that the accelerator is gone.
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}

#[test]
fn a_call_that_is_never_answered_is_reported_once() {
    let model = mute("127.0.3.81");
    let config = SessionConfig {
        report_after: Some(1000 * MS),
        probe_interval: Some(100 * MS),
        ..SessionConfig::default()
    };
    let mut session = calling("127.0.3.181", &model, &[Param::in_out(8)], &config);
    let said = Log::of(|| assert!(session.wait_timeout(250 * MS).unwrap().is_none()));
    assert_eq!(said, [""; 0], "it has its time");
    let said = Log::of(|| assert!(session.wait_timeout(1800 * MS).unwrap().is_none()));
    let [line] = &said[..] else { panic!("{said:?}") };
    for part in [&*model.address.to_string(), "function 77", "answers probes", "NAA_TIMEOUT=SECONDS"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("without outputs"), "{line}");
    let said = Log::of(|| assert!(session.wait_timeout(500 * MS).unwrap().is_none()));
    assert_eq!(said, [""; 0], "once is enough");
}

#[test]
fn each_way_of_waiting_reports() {
    let model = mute("127.0.3.82");
    let config = SessionConfig { report_after: Some(100 * MS), ..SessionConfig::default() };
    let mut first = calling("127.0.3.182", &model, &[Param::input(8)], &config);
    let mut second = calling("127.0.3.182", &model, &[Param::input(8)], &config);
    let testing = Log::of(|| {
        for _ in 0..10 {
            assert!(first.test().unwrap().is_none());
            sleep(50 * MS);
        }
    });
    let both = Log::of(|| {
        let deadline = Some(Instant::now() + 500 * MS);
        let any = wait_any(&mut [&mut first, &mut second], deadline).unwrap();
        assert!(matches!(any, Any::Running));
    });
    for said in [testing, both] {
        let [line] = &said[..] else { panic!("{said:?}") };
        assert!(line.contains("without outputs"), "{line}");
    }
}

#[test]
fn a_report_says_if_probes_are_not_answered_or_not_sent() {
    let said = |ip: &str, local: &str, action: fn() -> Action, probe_interval| {
        let model = AcceleratorModel::start(ip, move |_, _| action());
        let report_after = Some(100 * MS);
        let config = SessionConfig { report_after, probe_interval, ..SessionConfig::default() };
        let mut session = calling(local, &model, &[Param::in_out(8)], &config);
        let said = Log::of(|| assert!(session.wait_timeout(1800 * MS).unwrap().is_none()));
        said.concat()
    };
    // The probe interval `LONG` is one hour, so no regular probe is due during the test. The host sends one probe
    // before it reports the overdue call, so that the report can say whether the accelerator answers.
    let gone = said("127.0.3.83", "127.0.3.183", || Action::Vanish, Some(LONG));
    assert!(gone.contains("has not answered the probe of 1."), "{gone}");
    let mute = || Action::Later(LONG, Ok(Vec::new()));
    let silent = said("127.0.3.84", "127.0.3.183", mute, Some(LONG));
    assert!(silent.contains("still answers probes"), "{silent}");
    let unknown = said("127.0.3.85", "127.0.3.183", mute, None);
    assert!(unknown.contains("probes are off"), "{unknown}");
}

#[test]
fn a_call_is_given_up_after_its_time_however_it_is_waited_for() {
    type Wait = fn(&mut Session) -> Result<(), Error>;
    let waits: [(&str, Wait); 4] = [
        ("wait", |session| session.wait().map(drop)),
        ("test", |session| {
            while session.test()?.is_none() {}
            Ok(())
        }),
        ("wait_timeout", |session| {
            while session.wait_timeout(30 * MS)?.is_none() {}
            Ok(())
        }),
        ("wait_any", |session| match wait_any(&mut [session], None)? {
            Any::Ended(0, ended) => ended.map(drop),
            other => panic!("{other:?}"),
        }),
    ];
    let model = mute("127.0.3.86");
    let limit = 200 * MS;
    let config = SessionConfig { call_timeout: CallTimeout::After(limit), ..SessionConfig::default() };
    for (name, wait) in waits {
        let start = Instant::now();
        let mut session = calling("127.0.3.186", &model, &[Param::in_out(8)], &config);
        let error = wait(&mut session).unwrap_err();
        assert!(matches!(error, Error::CallTimedOut { .. }), "{name}: {error}");
        assert_eq!(error.party(), Party::Accelerator);
        let text = error.to_string();
        assert!(text.contains("function 77") && text.contains("NAA_TIMEOUT"), "{name}: {text}");
        let took = start.elapsed();
        // The host may give up the call up to 10 ms too early, because the Linux kernel's coarse clock advances in
        // steps of up to 10 ms.
        assert!(took > limit - 11 * MS && took < limit + 2000 * MS, "{name}: {took:?}");
        assert!(session.is_over() && !session.is_in_call());
        assert_eq!(session.slice(0).unwrap(), [0; 8], "the regions are the program's again");
    }
}

#[test]
fn a_time_for_calls_is_for_each_of_them_and_can_be_changed() {
    let model = AcceleratorModel::start("127.0.3.87", |_, _| Action::Later(120 * MS, Ok(Vec::new())));
    let device = Device::open("127.0.3.187".parse().unwrap()).unwrap();
    let config = SessionConfig { call_timeout: CallTimeout::After(LONG), ..SessionConfig::default() };
    let mut session = Session::connect(&device, model.address, &[Param::in_out(8)], &config).unwrap();
    session.set_call_timeout(Some(Duration::from_secs(3)));
    for _ in 0..3 {
        session.call(F).unwrap();
    }
    session.invoke(F, U24::ZERO).unwrap();
    session.set_call_timeout(Some(10 * MS));
    assert!(matches!(session.wait(), Err(Error::CallTimedOut { .. })));
}
