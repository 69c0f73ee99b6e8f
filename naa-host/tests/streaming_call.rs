//! Tests of streaming calls, in which the accelerator continues to send after its response.

mod model;

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use model::{AcceleratorModel, Action};
use naa_host::{
    Device, Error, FunctionCode, Gone, Param, ReturnCode, SessionConfig, StreamingCall, StreamingLimits,
    WaitMode,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::Memory;

const F: FunctionCode = FunctionCode::constant(80);
const COUNT: u32 = 200;
const PARAMS: [Param<'static>; 3] = [Param::input(64), Param::input(256), Param::output(4 * COUNT as usize)];
const ROOM: StreamingLimits = StreamingLimits { immediates: COUNT, writes: 8 };

/// Starts an accelerator that sends `count` immediates directly after its response. At each call, the accelerator also
/// sends the [`Memory`] of its region for input 1 through a channel to the returned receiver.
fn sending(ip: &str, count: u32) -> (AcceleratorModel, mpsc::Receiver<Memory>) {
    let (sender, memories) = mpsc::channel();
    let model = AcceleratorModel::start(ip, move |regions, _| {
        sender.send(regions[1].mr.memory().clone()).unwrap();
        Action::Stream(count)
    });
    (model, memories)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(10)
}

fn next(stream: &mut StreamingCall, until: Instant) -> Option<u32> {
    while Instant::now() < until {
        if let Some(number) = stream.wait(Some(until)).unwrap() {
            return Some(number);
        }
    }
    None
}

#[test]
fn what_is_sent_behind_the_answer_arrives_in_order_whenever_it_is_taken() {
    let (model, _memories) = sending("127.0.3.80", COUNT);
    let device = Device::open("127.0.3.180".parse().unwrap()).unwrap();
    for wait in [WaitMode::Adaptive, WaitMode::Spin, WaitMode::Block] {
        let config = SessionConfig { wait, ..SessionConfig::default() };
        let (mut stream, _writer) =
            StreamingCall::open(&device, model.address, &PARAMS, &config, F, ROOM).unwrap();
        // All immediates arrive while this thread sleeps, before the thread takes the first one.
        std::thread::sleep(Duration::from_millis(50));
        for number in 1..=COUNT {
            assert_eq!(next(&mut stream, soon()), Some(number));
            let word = stream.memory(2).unwrap().to_vec(4 * (number as usize - 1), 4);
            assert_eq!(word, number.to_le_bytes());
        }
        assert_eq!(next(&mut stream, Instant::now() + Duration::from_millis(5)), None);
    }
}

#[test]
fn inputs_are_written_to_as_far_as_there_is_room() {
    let (model, memories) = sending("127.0.3.81", 1);
    let device = Device::open("127.0.3.181".parse().unwrap()).unwrap();
    let config = SessionConfig::default();
    let (mut stream, mut writer) =
        StreamingCall::open(&device, model.address, &PARAMS, &config, F, ROOM).unwrap();
    let memory = memories.recv().unwrap();
    let mut done = 0_u32;
    while done < 1000 {
        let bytes = [done, done + 1, done + 2].map(u32::to_le_bytes);
        let parts: [(usize, &[u8]); 3] = [(0, &bytes[0]), (100, &bytes[1]), (252, &bytes[2])];
        let posted = writer.write(1, &parts).unwrap();
        done += 3;
        if posted < 3 {
            assert_eq!(writer.room(), 0);
            while writer.room() < 3 {
                let _ = stream.wait(Some(soon())).unwrap();
            }
            assert_eq!(writer.write(1, &parts[posted..]).unwrap(), 3 - posted);
        }
    }
    let until = soon();
    while memory.to_vec(252, 4) != (done - 1).to_le_bytes() {
        assert!(Instant::now() < until);
    }
    assert_eq!(memory.to_vec(0, 4), (done - 3).to_le_bytes());
    for (param, parts) in
        [(1, (253, &[0; 4])), (1, (usize::MAX, &[0; 4])), (2, (0, &[0; 4])), (3, (0, &[0; 4]))]
    {
        let (offset, bytes) = parts;
        assert!(writer.write(param, &[(offset, bytes)]).is_err(), "{param} {offset}");
    }
    drop(stream);
    assert!(matches!(writer.write(1, &[(0, &[0; 4])]), Err(Error::PeerGone { .. })));
}

#[test]
fn a_part_that_is_longer_than_one_write_is_refused_with_the_limit() {
    let (model, _memories) = sending("127.0.3.94", 1);
    let device = Device::open("127.0.3.194".parse().unwrap()).unwrap();
    let (config, params) =
        (SessionConfig::default(), [Param::input(1 << 20), Param::input(1), Param::output(4)]);
    let (_stream, mut writer) =
        StreamingCall::open(&device, model.address, &params, &config, F, ROOM).unwrap();
    let limit = writer.max_bytes();
    let bytes = vec![0; limit + 1];
    let error = writer.write(0, &[(0, &bytes)]).unwrap_err().to_string();
    assert!(error.contains(&format!("exceed the {limit} of one WRITE; split")), "{error}");
    let beyond = writer.write(0, &[((1 << 20) - limit, &bytes)]).unwrap_err();
    assert!(matches!(beyond, Error::OutOfBounds { .. }), "{beyond}");
    assert_eq!(writer.write(0, &[(0, &bytes[..limit])]).unwrap(), 1);
}

#[test]
fn a_program_may_write_on_after_it_has_settled() {
    let (model, memories) = sending("127.0.3.86", 1);
    let device = Device::open("127.0.3.186".parse().unwrap()).unwrap();
    let config = SessionConfig::default();
    let (mut stream, mut writer) =
        StreamingCall::open(&device, model.address, &PARAMS, &config, F, ROOM).unwrap();
    let memory = memories.recv().unwrap();
    for round in 1..=20_u8 {
        assert!(writer.room() > 0, "round {round}");
        while writer.room() > 0 {
            assert_eq!(writer.write(1, &[(0, &[round])]).unwrap(), 1);
        }
        assert!(stream.settle(Duration::from_secs(10)), "round {round}");
        assert_eq!(memory.to_vec(0, 1), [round]);
    }
}

#[test]
fn an_event_loop_sleeps_on_the_descriptor() {
    let (model, _memories) = sending("127.0.3.82", COUNT);
    let device = Device::open("127.0.3.182".parse().unwrap()).unwrap();
    let config = SessionConfig { probe_interval: None, ..SessionConfig::default() };
    let (mut stream, _writer) =
        StreamingCall::open(&device, model.address, &PARAMS, &config, F, ROOM).unwrap();
    let (mut number, until) = (0, soon());
    while number < COUNT {
        assert!(Instant::now() < until, "after {number}");
        let mut fds = [PollFd::from_borrowed_fd(stream.descriptor().unwrap(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
        while let Some(got) = stream.test().unwrap() {
            number += 1;
            assert_eq!(got, number);
        }
    }
}

#[test]
fn an_accelerator_that_refuses_or_goes_is_named() {
    let refusing =
        AcceleratorModel::start("127.0.3.83", |_, _| Action::Respond(Err(ReturnCode::UNKNOWN_FUNCTION)));
    let device = Device::open("127.0.3.183".parse().unwrap()).unwrap();
    let config = SessionConfig {
        ack_timeout: 10,
        retry_count: 1,
        setup_timeout: Duration::from_millis(500),
        probe_interval: Some(Duration::from_millis(50)),
        ..SessionConfig::default()
    };
    let refused = StreamingCall::open(&device, refusing.address, &PARAMS, &config, F, ROOM).unwrap_err();
    assert!(matches!(refused, Error::Function { code: ReturnCode::UNKNOWN_FUNCTION, .. }), "{refused}");
    drop(refusing);

    let silent =
        AcceleratorModel::start("127.0.3.84", |_, _| Action::Later(Duration::from_secs(60), Ok(Vec::new())));
    let late = StreamingCall::open(&device, silent.address, &PARAMS, &config, F, ROOM).unwrap_err();
    assert!(matches!(late, Error::AnswerTimedOut { .. }), "{late}");
    drop(silent);

    let (model, _memories) = sending("127.0.3.85", 0);
    let (mut stream, _writer) =
        StreamingCall::open(&device, model.address, &PARAMS, &config, F, ROOM).unwrap();
    drop(model);
    let until = soon();
    let gone = loop {
        assert!(Instant::now() < until);
        if let Err(gone) = stream.wait(Some(until)) {
            break gone;
        }
    };
    assert!(matches!(gone, Error::PeerGone { why: Gone::Silent | Gone::Disconnected, .. }), "{gone}");
    assert!(stream.wait(None).is_err());

    let room = StreamingLimits { immediates: 1 << 16, writes: 1 };
    let too_many =
        StreamingCall::open(&device, "127.0.3.85:1".parse().unwrap(), &PARAMS, &config, F, room).unwrap_err();
    assert!(too_many.to_string().contains("fewer slots"), "{too_many}");
}
