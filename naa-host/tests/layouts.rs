//! Tests of layouts, with accelerators that support layouts, do not support layouts, or claim abilities that they do
//! not have.

mod model;

use std::time::Duration;

use model::{AcceleratorModel, Action, ModelRegion, increment};
use mrsp::{
    Abilities, ErrorCode,
    accelerator::SessionLimits,
    host::{PeerError, SetupError},
    immediate::CallRequest,
};
use naa_host::{
    Buffer, Device, Error, FunctionCode, Layout, LayoutChoice, LayoutRule, Param, Part, Session,
    SessionConfig, U24,
};

const F: FunctionCode = FunctionCode::constant(1);
const SMALL: Layout = Layout::Packed { threshold: 1000 };
const LARGE: Layout = Layout::Packed { threshold: 1 << 24 };
const ALL: [Layout; 4] = [Layout::Asymmetric, Layout::Gathered, SMALL, LARGE];

fn device(ip: &str) -> Device {
    Device::open(ip.parse().unwrap()).unwrap()
}

fn with(layout: Layout) -> SessionConfig {
    SessionConfig { layout: LayoutChoice::Fixed(layout), ..SessionConfig::default() }
}

/// Starts an accelerator that supports layouts of up to `slots` parameters.
fn knowing(
    ip: &str,
    slots: u8,
    behaviour: impl FnMut(&[ModelRegion], CallRequest) -> Action + Send + 'static,
) -> AcceleratorModel {
    AcceleratorModel::start_with_abilities(ip, Some(Abilities { slots }), SessionLimits::default(), behaviour)
}

fn buffers(contents: &[&[u8]]) -> Vec<Buffer> {
    let buffer = |content: &&[u8]| {
        let mut buffer = Buffer::new(content.len()).unwrap();
        buffer.as_mut_slice().unwrap().copy_from_slice(content);
        buffer
    };
    contents.iter().map(buffer).collect()
}

#[test]
fn who_says_nothing_gets_regions_for_each() {
    let model = AcceleratorModel::start("127.0.3.80", |regions, request| {
        let sizes: Vec<_> = regions.iter().map(|region| region.bytes().len()).collect();
        assert_eq!(sizes, [5, 2000, 0, 70, 64]);
        increment(regions, request)
    });
    let device = device("127.0.3.180");
    let params =
        [Param::in_out(5), Param::in_out(2000), Param::output(0), Param::in_out(70), Param::internal(64)];
    let given: [&[u8]; 4] = [&[7; 5], &[8; 2000], &[], &[9; 70]];
    for layout in ALL {
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        assert_eq!(session.layout(), Layout::Symmetric);
        session.write(3, 0, &[20; 70]).unwrap();
        session.call(F).unwrap();
        assert_eq!(session.slice(3).unwrap(), [21; 70], "{layout}");
        assert!(session.slice(1).unwrap().iter().all(|&byte| byte == 1), "{layout}");

        let buffers = buffers(&given);
        let mut session =
            Session::connect_with(&device, model.address, &params, buffers, &with(layout)).unwrap();
        session.call(F).unwrap();
        session.write(0, 1, &[99]).unwrap();
        let buffers = session.into_buffers().unwrap();
        assert_eq!(buffers[0].as_slice().unwrap(), [8, 99, 8, 8, 8], "{layout}");
        assert_eq!(buffers[3].as_slice().unwrap(), [10; 70], "{layout}");
    }
}

#[test]
fn too_many_for_the_accelerator() {
    let model = knowing("127.0.3.81", 3, increment);
    let device = device("127.0.3.181");
    for layout in ALL {
        for (count, expected) in [(3, layout), (4, Layout::Symmetric)] {
            let params = vec![Param::output(100); count];
            let session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
            assert_eq!(session.layout(), expected);
        }
        let params = [Param::in_out(1); 40];
        let error = Session::connect(&device, model.address, &params, &with(layout)).unwrap_err();
        let expected = SetupError::TooManyRegions { asked: 40, limit: 31 };
        assert!(matches!(&error, Error::Setup(found) if *found == expected), "{error}");
        assert!(error.to_string().contains("40 regions are more than the 31 allowed"), "{error}");
    }
}

#[test]
fn who_says_what_is_not_so_is_named() {
    let limits = SessionLimits { max_slots: 0, ..SessionLimits::default() };
    let abilities = Some(Abilities { slots: 255 });
    let model = AcceleratorModel::start_with_abilities("127.0.3.82", abilities, limits, increment);
    for layout in ALL {
        let device = device("127.0.3.182");
        let error = Session::connect(&device, model.address, &[Param::in_out(9)], &with(layout)).unwrap_err();
        let refused = PeerError::Refused(ErrorCode::Address);
        assert!(matches!(&error, Error::Peer { source, .. } if *source == refused), "{error}");
    }
}

/// Each input keeps its place in the accelerator's region, and a call that sends parts of inputs changes only these
/// parts. At each call, the accelerator of the test passes the bytes of its region to the test.
#[test]
fn what_is_sent_lies_where_it_was_announced() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let model = knowing("127.0.3.83", 255, move |regions, _| {
        assert_eq!(regions.len(), 1);
        sender.send(regions[0].bytes()).unwrap();
        Action::Respond(Ok(Vec::new()))
    });
    let device = device("127.0.3.183");
    for layout in ALL {
        // A layout may place the two inputs in any order in the accelerator's region. The closure `starts` therefore
        // searches this region for the bytes of an input.
        let params = [Param::data(&[1; 64]), Param::data(&[2; 10]), Param::output(200)];
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        assert_eq!(session.layout(), layout);
        session.call(F).unwrap();
        let found = receiver.recv().unwrap();
        assert!((328..=384).contains(&found.len()), "{layout}: {}", found.len());
        assert_eq!(session.accelerator_bytes(), found.len() as u64);
        let starts = |byte: u8, len: usize| {
            let at = found.iter().position(|&found| found == byte).unwrap();
            assert_eq!((at % 64, &found[at..at + len]), (0, &vec![byte; len][..]), "{layout}");
            at
        };
        let (first, second) = (starts(1, 64), starts(2, 10));

        // The second call sends only a part of each input, so all other bytes of both inputs on the accelerator stay
        // unchanged.
        session.write(0, 0, &[3; 64]).unwrap();
        session.write(1, 0, &[4; 10]).unwrap();
        session.set_part_to_send(0, Some(Part { offset: 5, bytes: 50 })).unwrap();
        session.set_part_to_send(1, Some(Part { offset: 9, bytes: 1 })).unwrap();
        session.call(F).unwrap();
        let again = receiver.recv().unwrap();
        let sent = [&[1; 5][..], &[3; 50], &[1; 9]].concat();
        assert_eq!(again[first..first + 64], sent, "{layout}");
        assert_eq!(again[second..second + 10], [2, 2, 2, 2, 2, 2, 2, 2, 2, 4], "{layout}");
    }
}

/// Adds 1 to every byte of the accelerator's only region.
fn increment_all(regions: &[ModelRegion], _: CallRequest) -> Action {
    let bytes: Vec<_> = regions[0].bytes().into_iter().map(|byte| byte.wrapping_add(1)).collect();
    regions[0].write(&bytes);
    Action::Respond(Ok(Vec::new()))
}

#[test]
fn buffers_of_one_session_serve_several() {
    let model = knowing("127.0.3.84", 255, increment_all);
    let device = device("127.0.3.184");
    for layout in ALL {
        let params = [Param::in_out(100), Param::output(0), Param::in_out(7), Param::in_out(3000)];
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        session.call(F).unwrap();
        let buffers = session.into_buffers().unwrap();
        // In a session with the gathered layout, the outputs share one registration. Each buffer of the first session
        // becomes the only buffer of a new session, and the calls of the new sessions run at the same time.
        let begin = |buffer: Buffer| {
            let params = [Param::in_out(buffer.len())];
            let mut session =
                Session::connect_with(&device, model.address, &params, vec![buffer], &with(layout)).unwrap();
            session.invoke(F, U24::ZERO).unwrap();
            session
        };
        let mut sessions: Vec<_> = buffers.into_iter().map(begin).collect();
        for session in &mut sessions {
            let _ = session.wait().unwrap().into_result().unwrap();
            assert!(session.slice(0).unwrap().iter().all(|&byte| byte == 2), "{layout}");
        }
    }
}

#[test]
fn a_call_that_is_given_up_changes_nothing_any_more() {
    let model = knowing("127.0.3.85", 255, |regions, request| match increment_all(regions, request) {
        Action::Respond(result) => Action::Later(Duration::from_millis(100), result),
        other => other,
    });
    let device = device("127.0.3.185");
    for layout in ALL {
        let params = [Param::in_out(10).holding(&[5; 10]), Param::in_out(5000), Param::output(3)];
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        session.invoke(F, U24::ZERO).unwrap();
        assert!(matches!(session.slice(2), Err(Error::InCall)));
        let mut buffers = session.into_buffers().unwrap();
        assert_eq!(buffers[0].as_slice().unwrap(), [5; 10], "{layout}");
        buffers.iter_mut().for_each(|buffer| buffer.as_mut_slice().unwrap().fill(6));
        std::thread::sleep(Duration::from_millis(200));
        let all_six = |buffer: &Buffer| buffer.as_slice().unwrap().iter().all(|&byte| byte == 6);
        assert!(buffers.iter().all(all_six), "{layout}");
    }
}

#[test]
fn an_accelerator_that_leaves_leaves_the_regions() {
    let model = knowing("127.0.3.86", 255, |_, _| Action::Disconnect);
    let device = device("127.0.3.186");
    for layout in ALL {
        let params = [Param::in_out(10).holding(&[5; 10]), Param::output(3)];
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        session.call(F).unwrap_err();
        assert!(session.is_over());
        assert_eq!(session.slice(0).unwrap(), [5; 10], "{layout}");
        session.write(0, 0, &[6]).unwrap();
        assert_eq!(session.into_buffers().unwrap()[0].as_slice().unwrap()[..2], [6, 5], "{layout}");
    }
}

#[test]
fn what_is_registered_is_counted_once() {
    let model = knowing("127.0.3.87", 255, increment_all);
    let device = device("127.0.3.187");
    let params = [Param::output(0), Param::output(100), Param::output(28), Param::input(1000)];
    let registered =
        |layout| Session::connect(&device, model.address, &params, &with(layout)).unwrap().registered_bytes();
    assert_eq!(registered(Layout::Symmetric), 1128);
    assert_eq!(registered(Layout::Asymmetric), 1128);
    // The outputs and the 28 bytes between them are one registration of 156 bytes. The input has 1000 bytes. The
    // staging region has only the 64 zero bytes that are sent for gaps between parameters.
    assert_eq!(registered(Layout::Gathered), 156 + 1000 + 64);
    // The staging region has 192 bytes for the copies of all outputs, and 64 zero bytes that are sent for gaps between
    // parameters. The input has 1000 bytes.
    assert_eq!(registered(SMALL), 192 + 64 + 1000);
}

#[test]
fn a_rule_chooses_for_auto() {
    let model = knowing("127.0.3.88", 255, increment_all);
    let device = device("127.0.3.188");
    let rule =
        LayoutRule { small: 1000, at_least: 2, most: LayoutRule::UNBOUNDED, otherwise: Layout::Gathered };
    let config =
        SessionConfig { layout: LayoutChoice::Auto, layout_rule: Some(rule), ..SessionConfig::default() };
    let chosen =
        |params: &[Param<'_>]| Session::connect(&device, model.address, params, &config).unwrap().layout();
    let (small, large) = (Param::output(1000), Param::output(1001));
    assert_eq!(chosen(&[small, large]), Layout::Gathered);
    assert_eq!(chosen(&[small, large, small]), Layout::Packed { threshold: 1000 });
    assert_eq!(chosen(&[small, large, Param::internal(5)]), Layout::Gathered);
}

#[test]
fn regions_with_addresses_have_none() {
    let model = knowing("127.0.3.89", 255, increment);
    let address = |n: u64| naa_host::NaaAddress::new(n).unwrap();
    let params = [Param::in_out(8).at(address(4096)), Param::in_out(8).at(address(0))];
    for layout in ALL {
        let device = device("127.0.3.189");
        let mut session = Session::connect(&device, model.address, &params, &with(layout)).unwrap();
        assert_eq!(session.layout(), Layout::Symmetric);
        session.call(F).unwrap();
        assert_eq!(session.slice(1).unwrap(), [1; 8]);
    }
}

#[test]
fn what_no_layout_holds_is_refused_here() {
    let model = knowing("127.0.3.90", 255, increment_all);
    let device = device("127.0.3.190");
    for layout in ALL {
        let refused =
            |params: &[Param<'_>]| match Session::connect(&device, model.address, params, &with(layout))
                .unwrap_err()
            {
                Error::Setup(error) => error,
                other => panic!("{layout}: {other}"),
            };
        let many = refused(&[Param::output(1); 256]).to_string();
        assert!(many.contains("256 parameters are more than the 255"), "{many}");
        // The first parameter has nearly 4 GiB, but a region can have at most 2 GiB, so session setup must fail.
        let beyond = [Param::input(0xffff_fff0), Param::input(1)];
        match Session::connect(&device, model.address, &beyond, &with(layout)).unwrap_err() {
            Error::Setup(error) => assert_eq!(error, SetupError::TooLarge { region: 0, bytes: 0xffff_fff0 }),
            // On a small machine, the memory is not enough for the buffer of the first parameter.
            Error::Memory(_) => {}
            other => panic!("{layout}: {other}"),
        }
    }
}

#[test]
fn what_one_region_does_not_hold_goes_to_another() {
    const HUGE: usize = 1 << 31;
    let model = knowing("127.0.3.91", 255, |regions, _| {
        let sizes: Vec<_> = regions.iter().map(|region| region.mr.memory().len()).collect();
        assert_eq!(sizes, [178, HUGE, 300]);
        let both = regions[0].bytes();
        assert_eq!((&both[..100], &both[128..]), (&[5; 100][..], &[6; 50][..]));
        regions[0].write(&[7; 178]);
        regions[1].mr.memory().write(HUGE - 3, &[8; 3]);
        regions[2].write(&[9; 300]);
        Action::Respond(Ok(vec![None, None, Some(Part::prefix(0)), None]))
    });
    let device = device("127.0.3.191");
    for layout in [Layout::Asymmetric, Layout::Gathered, Layout::Packed { threshold: 0 }] {
        let params = [
            Param::in_out(100).holding(&[5; 100]),
            Param::in_out(50).holding(&[6; 50]),
            Param::output(HUGE),
            Param::output(300),
        ];
        let session = Session::connect(&device, model.address, &params, &with(layout));
        if matches!(session, Err(Error::Memory(_))) {
            println!("skipped: this machine has no 2 GiB");
            return;
        }
        let mut session = session.unwrap();
        session.call(F).unwrap();
        for (index, expected) in [&[7; 100][..], &[7; 50], &[], &[9; 300]].into_iter().enumerate() {
            assert_eq!(&session.slice(index).unwrap()[..expected.len()], expected, "{layout}");
        }
    }
}
