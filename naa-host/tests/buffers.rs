//! Tests of buffers that a program uses for several sessions.

mod model;

use std::time::Duration;

use model::{AcceleratorModel, Action, increment};
use naa_host::{Buffer, Device, Error, FunctionCode, Param, Session, SessionConfig, U24};

const F: FunctionCode = FunctionCode::constant(1);

fn device(ip: &str) -> Device {
    Device::open(ip.parse().unwrap()).unwrap()
}

fn connect(
    device: &Device,
    model: &AcceleratorModel,
    params: &[Param<'_>],
    buffers: Vec<Buffer>,
) -> Result<Session, Error> {
    Session::connect_with(device, model.address, params, buffers, &SessionConfig::default())
}

fn of(lens: &[usize]) -> Vec<Buffer> {
    lens.iter().map(|&len| Buffer::new(len).unwrap()).collect()
}

#[test]
fn buffers_go_from_session_to_session() {
    let model = AcceleratorModel::start("127.0.3.40", increment);
    let device = device("127.0.3.140");
    let params = [Param::in_out(100_000), Param::internal(64), Param::output(3), Param::in_out(0)];
    let mut buffers = of(&[100_000, 3, 0]);
    assert!(buffers[0].as_slice().unwrap().iter().all(|&byte| byte == 0) && buffers[2].is_empty());
    buffers[0].as_mut_slice().unwrap().fill(10);
    let addresses =
        |buffers: &[Buffer]| buffers.iter().map(|b| b.as_slice().unwrap().as_ptr()).collect::<Vec<_>>();
    let before = addresses(&buffers);
    for round in 1..=5 {
        let mut session = connect(&device, &model, &params, buffers).unwrap();
        // The buffers have the same bytes in this session as at the end of the previous session. The call sends the
        // bytes of the buffers, and its results are written to the buffers.
        assert!(session.slice(0).unwrap().iter().all(|&byte| byte == 9 + round));
        session.call(F).unwrap();
        buffers = session.into_buffers().unwrap();
        assert_eq!(addresses(&buffers), before);
        assert!(buffers[0].as_slice().unwrap().iter().all(|&byte| byte == 10 + round));
        assert_eq!(buffers[1].as_slice().unwrap(), [1; 3]);
    }
}

#[test]
fn a_parameter_that_starts_as_a_copy_still_does() {
    let model = AcceleratorModel::start("127.0.3.41", increment);
    let mut buffers = of(&[4]);
    buffers[0].as_mut_slice().unwrap().copy_from_slice(&[9; 4]);
    let params = [Param::in_out(4).holding(&[1, 2])];
    let mut session = connect(&device("127.0.3.141"), &model, &params, buffers).unwrap();
    session.call(F).unwrap();
    assert_eq!(session.into_buffers().unwrap()[0].as_slice().unwrap(), [2, 3, 10, 10]);
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let model = AcceleratorModel::start("127.0.3.42", increment);
    let device = device("127.0.3.142");
    let params = [Param::input(4), Param::internal(4), Param::output(8)];
    for lens in [&[][..], &[4], &[4, 4, 8]] {
        let error = connect(&device, &model, &params, of(lens)).unwrap_err();
        assert!(matches!(error, Error::Buffers { params: 2, .. }), "{error}");
    }
    let error = connect(&device, &model, &params, of(&[4, 9])).unwrap_err();
    assert!(matches!(error, Error::Buffer { index: 1, len: 9, size: 8 }), "{error}");
    assert!(error.to_string().contains("make them equal"), "{error}");
}

#[test]
fn a_call_that_is_given_up_gives_its_buffers_back() {
    let model = AcceleratorModel::start("127.0.3.43", |_, _| {
        Action::Later(Duration::from_millis(300), Ok(Vec::new()))
    });
    let device = device("127.0.3.143");
    let params = [Param::in_out(1 << 20)];
    let mut session = connect(&device, &model, &params, of(&[1 << 20])).unwrap();
    session.slice_mut(0).unwrap().fill(5);
    session.invoke(F, U24::ZERO).unwrap();
    let mut buffers = session.into_buffers().unwrap();
    // The buffers belong to the program again, so a late response of the accelerator must not change their bytes.
    buffers[0].as_mut_slice().unwrap().fill(6);
    std::thread::sleep(Duration::from_millis(500));
    assert!(buffers[0].as_slice().unwrap().iter().all(|&byte| byte == 6));
    let session = connect(&device, &model, &params, buffers).unwrap();
    session.finalize().unwrap();
}
