//! Tests of argument blocks, status blocks and the catalogue.

mod model;

use model::{AcceleratorModel, Action};
use mrsp::{
    builtin::{CATALOGUE, SHA256, StatusBlock, ZSTD_DECOMPRESS},
    catalogue::{FunctionInfo, HEADER_BYTES},
};
use naa_host::{
    Catalogue, Device, Dialect, Error, Part, ReturnCode, SessionConfig,
    builtin::{self, Arguments, BuiltinSession},
    functions,
};

fn device(ip: &str) -> Device {
    Device::open(ip.parse().unwrap()).unwrap()
}

#[test]
fn a_function_is_called_with_blocks() {
    let model = AcceleratorModel::start("127.0.3.60", |regions, _| {
        assert_eq!(Arguments::decode(&regions[0].bytes()).unwrap(), Arguments::Sha256 { bytes: 5 });
        assert_eq!(regions[1].bytes(), b"hello");
        regions[3].write(b"digest");
        let produced = [64, 6, 0, 0, 0, 0];
        regions[2].write(&StatusBlock { function: SHA256, code: None, detail: 0, produced }.encode());
        Action::Respond(Ok(Vec::new()))
    });
    let (device, arguments) = (device("127.0.3.160"), Arguments::Sha256 { bytes: 5 });
    let produced = builtin::call(&device, model.address, &arguments, &[b"hello"], &[32]).unwrap();
    assert_eq!(produced, [b"digest"]);
}

#[test]
fn its_failure_says_how_much_room_is_needed() {
    let model = AcceleratorModel::start("127.0.3.61", |regions, _| {
        let code = ReturnCode::OUTPUT_TOO_SMALL;
        let (function, produced) = (ZSTD_DECOMPRESS, [64, 0, 0, 0, 0, 0]);
        let status = StatusBlock { function, code: Some(code), detail: 4321, produced };
        regions[2].write(&status.encode());
        Action::Fail(code, 64)
    });
    let device = device("127.0.3.161");
    let config = SessionConfig::default();
    let mut session = BuiltinSession::connect(&device, model.address, &[8], &[10], &config).unwrap();
    session.input(0).unwrap().fill(1);
    let error = session.run(&Arguments::ZstdDecompress { bytes: 8 }).unwrap_err();
    assert!(matches!(error, Error::Function { detail: 4321, .. }), "{error}");
    assert!(error.to_string().contains("4321 bytes are needed"), "{error}");
    assert!(session.output(0).unwrap().is_empty());
    assert!(matches!(session.input(1), Err(Error::NoSuchParam { .. })));
    assert!(matches!(session.output(1), Err(Error::NoSuchParam { .. })));
}

#[test]
fn a_failure_in_the_dialect_next_is_an_error() {
    let code = ReturnCode::OUTPUT_TOO_SMALL;
    let model = AcceleratorModel::start("127.0.3.66", move |regions, _| {
        let produced = [64, 0, 0, 0, 0, 0];
        let status = StatusBlock { function: ZSTD_DECOMPRESS, code: Some(code), detail: 4321, produced };
        regions[2].write(&status.encode());
        Action::Fail(code, 64)
    });
    let device = device("127.0.3.166");
    for dialect in [Dialect::Main, Dialect::Next] {
        let config = SessionConfig { dialect, ..SessionConfig::default() };
        let mut session = BuiltinSession::connect(&device, model.address, &[8], &[10], &config).unwrap();
        let error = session.run(&Arguments::ZstdDecompress { bytes: 8 }).unwrap_err();
        assert!(matches!(error, Error::Function { function: ZSTD_DECOMPRESS, detail: 4321, .. }), "{error}");
        assert_eq!(error.return_code(), Some(code), "{dialect:?}");
    }
}

#[test]
fn a_status_is_not_believed() {
    let model = AcceleratorModel::start("127.0.3.62", |regions, _| {
        let produced = [64, 11, 0, 0, 0, 0];
        regions[2].write(&StatusBlock { function: SHA256, code: None, detail: 0, produced }.encode());
        Action::Respond(Ok(Vec::new()))
    });
    let (device, arguments) = (device("127.0.3.162"), Arguments::Sha256 { bytes: 0 });
    let error = builtin::call(&device, model.address, &arguments, &[b""], &[10]).unwrap_err();
    assert!(matches!(error, Error::Produced { produced: 11, size: 10, .. }), "{error}");
}

#[test]
fn a_catalogue_is_read_whatever_its_size() {
    let function = |code, text: &str| FunctionInfo {
        code,
        name: "name".into(),
        description: text.into(),
        pooled: false,
        parameters: Vec::new(),
    };
    let catalogue = Catalogue {
        functions: vec![function(SHA256, &"x".repeat(65_000)), function(CATALOGUE, &"y".repeat(999))],
    };
    let bytes = catalogue.encode().unwrap();
    let model = AcceleratorModel::start("127.0.3.63", move |regions, request| {
        assert_eq!(request.function, Some(CATALOGUE));
        let room = regions[0].bytes().len();
        if room < bytes.len() {
            regions[0].write(&bytes[..HEADER_BYTES]);
            let code = ReturnCode::OUTPUT_TOO_SMALL;
            return Action::Fail(code, HEADER_BYTES as u32);
        }
        regions[0].write(&bytes);
        Action::Respond(Ok(vec![Some(Part::prefix(bytes.len() as u64))]))
    });
    assert_eq!(functions(&device("127.0.3.163"), model.address).unwrap(), catalogue);
}

#[test]
fn an_accelerator_without_a_catalogue_says_so() {
    let model =
        AcceleratorModel::start("127.0.3.64", |_, _| Action::Respond(Err(ReturnCode::UNKNOWN_FUNCTION)));
    let error = functions(&device("127.0.3.164"), model.address).unwrap_err();
    assert_eq!(error.return_code(), Some(ReturnCode::UNKNOWN_FUNCTION));
    let silent = AcceleratorModel::start("127.0.3.65", |_, _| Action::Respond(Ok(Vec::new())));
    let error = functions(&device("127.0.3.164"), silent.address).unwrap_err();
    assert!(matches!(error, Error::Catalogue { .. }), "{error}");
}
