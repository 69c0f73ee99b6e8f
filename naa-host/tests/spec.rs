//! Tests of the environment variable `NAA_SPEC`.

mod model;

use model::{AcceleratorModel, increment};
use naa_host::{Error, FunctionCode, Param, SessionConfig, Spec, SpecEntry, SpecError};

fn parse(text: &str) -> Result<Spec, SpecError> {
    text.parse()
}

#[test]
fn entries_are_read() {
    let spec = parse("10.0.0.1:17:1:2, 10.0.0.2::127:0 ,[fe80::1]::16:3").unwrap();
    let entry = |peer: &str, function, inputs| {
        let function = FunctionCode::constant(function);
        SpecEntry { peer: peer.parse().unwrap(), function, inputs }
    };
    let expected =
        [entry("10.0.0.1:17", 1, 2), entry("10.0.0.2:12345", 127, 0), entry("[fe80::1]:12345", 16, 3)];
    assert_eq!(spec.entries(), expected);
}

#[test]
fn errors_name_entry_and_field() {
    for (text, entry, field) in [
        ("host:1:1:1", 1, "the address"),
        ("1.1.1.1:1:1:1,[1.1.1.1]:1:1:1", 2, "the address"),
        ("1.1.1.1:0:1:1", 1, "the port"),
        ("1.1.1.1:65536:1:1", 1, "the port"),
        ("1.1.1.1::0:1", 1, "the function code"),
        ("1.1.1.1::128:1", 1, "the function code"),
        ("1.1.1.1::-1:1", 1, "the function code"),
        ("1.1.1.1::1:256", 1, "the number of inputs"),
        ("1.1.1.1::1:", 1, "the number of inputs"),
    ] {
        match parse(text) {
            Err(SpecError::Field { entry: found, field: named, .. }) => {
                assert_eq!((found, named), (entry, field), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    for (text, entry, fields) in
        [("", 1, 1), ("1.1.1.1:1:1", 1, 3), ("1.1.1.1:1:1:1,", 2, 1), ("1.1.1.1:1:1:1:1", 1, 5)]
    {
        match parse(text) {
            Err(SpecError::Fields { entry: found, fields: counted, .. }) => {
                assert_eq!((found, counted), (entry, fields), "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn an_entry_serves_one_session_at_a_time() {
    let model = AcceleratorModel::start("127.0.3.40", increment);
    let spec = parse(&format!("{}:1:1", model.address)).unwrap();
    let (one, two) = (FunctionCode::constant(1), FunctionCode::constant(2));
    let params = [Param::in_out(1), Param::output(1)];
    let config = SessionConfig::default();
    let mut session = spec.connect(one, &params, &config).unwrap();
    session.call(one).unwrap();
    let refused = |function, params: &[Param<'_>]| match spec.connect(function, params, &config) {
        Err(Error::Spec(error)) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refused(one, &params), SpecError::InUse { entries: 1, .. }));
    assert!(matches!(refused(two, &params), SpecError::NoEntry { .. }));
    assert!(matches!(refused(one, &[Param::output(1)]), SpecError::NoEntry { .. }));
    session.finalize().unwrap();
    spec.connect(one, &params, &config).unwrap().call(one).unwrap();
}
