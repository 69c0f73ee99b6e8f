//! Tests of memory to which an accelerator can write at any time, because the host's device does not revoke access
//! rights.

#[path = "../tests/model/mod.rs"]
mod model;

use std::borrow::Cow;

use model::{AcceleratorModel, Action, ModelRegion, increment};
use mrsp::{
    Abilities,
    accelerator::SessionLimits,
    builtin::{Arguments, SHA256, StatusBlock},
    immediate::CallRequest,
    layout::Layout,
};

use crate::{
    Buffer, Device, Error, FunctionCode, LayoutChoice, Param, Session, SessionConfig, builtin::BuiltinSession,
};

const F: FunctionCode = FunctionCode::constant(1);

/// Adds 1 to every byte of every region. Each byte is incremented once, even if several parameters lie in the same
/// region.
fn increment_all(regions: &[ModelRegion], _: CallRequest) -> Action {
    for region in regions {
        let bytes: Vec<_> = region.bytes().into_iter().map(|byte| byte.wrapping_add(1)).collect();
        region.write(&bytes);
    }
    Action::Respond(Ok(Vec::new()))
}

fn device(ip: &str) -> Device {
    Device::that_keeps_access(ip.parse().unwrap())
}

#[test]
fn outputs_in_an_accelerators_reach_are_no_slices_but_inputs_are() {
    let slots = Some(Abilities { slots: 8 });
    let limits = SessionLimits::default();
    let model = AcceleratorModel::start_with_abilities("127.0.3.90", slots, limits, increment_all);
    let device = device("127.0.3.190");
    let params = [Param::data(&[1, 2, 3]), Param::output(3), Param::in_out(4).holding(&[7; 4])];
    for layout in [Layout::Symmetric, Layout::Packed { threshold: 1000 }, Layout::Gathered] {
        let config = SessionConfig { layout: LayoutChoice::Fixed(layout), ..SessionConfig::default() };
        let mut session = Session::connect(&device, model.address, &params, &config).unwrap();
        session.slice_mut(0).unwrap()[0] = 9;
        session.write(2, 1, &[8]).unwrap();
        session.call(F).unwrap();
        assert_eq!(session.slice(0).unwrap(), [9, 2, 3], "{layout}");
        assert!(matches!(session.bytes(0, 1..).unwrap(), Cow::Borrowed([2, 3])), "{layout}");
        for output in [1, 2] {
            assert!(matches!(session.slice(output), Err(Error::InReach)), "{layout}");
            let error = session.slice_mut(output).unwrap_err();
            assert!(error.to_string().contains("`bytes`, `read` or `to_vec`"), "{error}");
        }
        let copy = session.bytes(2, ..).unwrap();
        assert!(matches!(copy, Cow::Owned(_)) && *copy == [8, 9, 8, 8], "{layout}: {copy:?}");
        assert_eq!((session.to_vec(2).unwrap(), session.param_len(2).unwrap()), (vec![8, 9, 8, 8], 4));
        let mut part = [0; 2];
        session.read(2, 1, &mut part).unwrap();
        assert_eq!(part, [9, 8], "{layout}");
        for wrong in [session.bytes(2, 3..5).err(), session.read(2, 3, &mut part).err()] {
            assert!(matches!(wrong, Some(Error::OutOfBounds { index: 2, offset: 3, len: 2, size: 4 })));
        }
    }
}

#[test]
fn a_buffer_that_was_an_output_stays_in_reach_also_as_an_input() {
    let model = AcceleratorModel::start("127.0.3.92", increment);
    let device = device("127.0.3.192");
    let mut buffers = vec![Buffer::new(4).unwrap(), Buffer::new(4).unwrap()];
    buffers[0].as_mut_slice().unwrap().fill(3);
    let config = SessionConfig::default();
    let params = [Param::input(4), Param::output(4)];
    let mut session = Session::connect_with(&device, model.address, &params, buffers, &config).unwrap();
    session.call(F).unwrap();
    let mut buffers = session.into_buffers().unwrap();
    assert_eq!(buffers[0].as_slice().unwrap(), [3; 4]);
    assert!(matches!(buffers[1].as_slice(), Err(Error::InReach)));
    assert!(matches!(buffers[1].as_mut_slice(), Err(Error::InReach)));
    buffers[1].write(1, &[6]);
    let mut part = [0; 2];
    buffers[1].read(1, &mut part);
    assert_eq!((buffers[1].to_vec()[1], part[0]), (6, 6));
    buffers.swap(0, 1);
    let mut session = Session::connect_with(&device, model.address, &params, buffers, &config).unwrap();
    assert!(matches!(session.slice_mut(0), Err(Error::InReach)), "a kept registration may be written");
    session.write(0, 0, &[1; 4]).unwrap();
    session.call(F).unwrap();
}

#[test]
fn built_in_functions_work_where_access_is_kept() {
    let model = AcceleratorModel::start("127.0.3.93", |regions, _| {
        let produced = [64, 32, 0, 0, 0, 0];
        regions[2].write(&StatusBlock { function: SHA256, code: None, detail: 0, produced }.encode());
        regions[3].write(&[regions[1].bytes()[0]; 32]);
        Action::Respond(Ok(Vec::new()))
    });
    let config = SessionConfig::default();
    let device = device("127.0.3.193");
    let mut session = BuiltinSession::connect(&device, model.address, &[5], &[32], &config).unwrap();
    session.input(0).unwrap().copy_from_slice(b"hello");
    session.run(&Arguments::Sha256 { bytes: 5 }).unwrap();
    assert_eq!(*session.output(0).unwrap(), [b'h'; 32]);
}
