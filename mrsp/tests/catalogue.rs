//! Tests of the catalogue of an accelerator's functions.

mod common;

use common::{Random, code};
use mrsp::catalogue::{
    Catalogue, CatalogueError, Direction, EncodeError, FunctionInfo, HEADER_BYTES, Header, ParamInfo,
    ParamKind,
};

fn parameter(direction: Direction, kind: ParamKind, name: &str, description: &str) -> ParamInfo {
    ParamInfo { direction, kind, name: name.into(), description: description.into() }
}

fn example() -> Catalogue {
    let nothing = FunctionInfo {
        code: code(3),
        name: "nothing".into(),
        description: String::new(),
        pooled: false,
        parameters: Vec::new(),
    };
    let sha256 = FunctionInfo {
        code: code(16),
        name: "sha256".into(),
        description: "SHA-256 (FIPS 180-4) – of input 1".into(),
        pooled: true,
        parameters: vec![
            parameter(Direction::Input, ParamKind::Arguments, "arguments", "bytes"),
            parameter(Direction::Input, ParamKind::Bytes, "data", ""),
            parameter(Direction::Output, ParamKind::Status, "status", ""),
            parameter(Direction::Internal, ParamKind::ComplexF64, "π", "scratch"),
        ],
    };
    Catalogue { functions: vec![nothing, sha256] }
}

#[test]
fn layout() {
    let bytes = Catalogue { functions: example().functions[..1].to_vec() }.encode().unwrap();
    let mut expected = b"NAAC\x01\0\x01\0\x1f\0\0\0\0\0\0\0".to_vec();
    expected.extend(b"\x03\0\0\x07\0\0\0\0nothing");
    assert_eq!(bytes, expected);
}

#[test]
fn kinds_have_names() {
    use ParamKind::{Arguments, Bytes, ComplexF64, F32, F64, Status, U32, U64};
    let names = [Bytes, Arguments, Status, U32, U64, F32, F64, ComplexF64].map(ParamKind::name);
    assert_eq!(names, ["bytes", "arguments", "status", "u32", "u64", "f32", "f64", "complex-f64"]);
}

#[test]
fn round_trips() {
    let catalogue = example();
    let mut bytes = catalogue.encode().unwrap();
    let header = Header::decode(&bytes[..HEADER_BYTES]).unwrap();
    assert_eq!((header.functions, header.bytes as usize), (2, bytes.len()));
    assert_eq!(Catalogue::decode(&bytes).as_ref(), Ok(&catalogue));
    // If the region is larger than the catalogue, the decoder ignores the bytes after the catalogue.
    bytes.extend([0xff; 100]);
    assert_eq!(Catalogue::decode(&bytes), Ok(catalogue));
    assert_eq!(Catalogue::decode(&Catalogue::default().encode().unwrap()), Ok(Catalogue::default()));
}

#[test]
fn the_header_alone_says_how_much_is_needed() {
    let bytes = example().encode().unwrap();
    let error = Catalogue::decode(&bytes[..HEADER_BYTES]).unwrap_err();
    let needed = bytes.len() as u32;
    assert_eq!(error, CatalogueError::RegionTooSmall { needed, actual: HEADER_BYTES });
}

#[test]
fn random_catalogues_round_trip() {
    let mut random = Random::seeded(0x5eed_0005);
    for _ in 0..200 {
        let mut functions = Vec::new();
        for number in 1..=127 {
            if random.chance(10) {
                functions.push(random_function(&mut random, number));
            }
        }
        let catalogue = Catalogue { functions };
        assert_eq!(Catalogue::decode(&catalogue.encode().unwrap()), Ok(catalogue));
    }
}

fn random_function(random: &mut Random, number: u8) -> FunctionInfo {
    let directions = [Direction::Input, Direction::Output, Direction::InOut, Direction::Internal];
    let kinds = [
        ParamKind::Bytes,
        ParamKind::Arguments,
        ParamKind::U32,
        ParamKind::U64,
        ParamKind::F32,
        ParamKind::F64,
        ParamKind::ComplexF64,
    ];
    let mut text = |limit| "aé∑x".chars().cycle().take(random.below(limit) as usize / 4).collect::<String>();
    let (name, description) = (text(256), text(3000));
    let parameters = (0..random.below(20))
        .map(|_| ParamInfo {
            direction: directions[random.below(4) as usize],
            kind: kinds[random.below(7) as usize],
            name: "p".repeat(random.below(256) as usize),
            description: "d".repeat(random.below(256) as usize),
        })
        .collect();
    FunctionInfo { code: code(number), name, description, pooled: random.chance(2), parameters }
}

#[test]
fn encode_refuses_what_does_not_fit() {
    let with = |change: fn(&mut Catalogue)| {
        let mut catalogue = example();
        change(&mut catalogue);
        catalogue.encode().unwrap_err()
    };
    let too_long = |error| matches!(error, EncodeError::TooLong { .. });
    assert!(too_long(with(|c| c.functions[0].name = "x".repeat(256))));
    assert!(too_long(with(|c| c.functions[0].description = "x".repeat(65536))));
    assert!(too_long(with(|c| c.functions[1].parameters[0].name = "x".repeat(256))));
    assert!(too_long(with(|c| {
        let parameter = c.functions[1].parameters[0].clone();
        c.functions[1].parameters = vec![parameter; 256];
    })));
    let control = with(|c| c.functions[0].name = "two\nlines".into());
    assert!(matches!(control, EncodeError::ControlCharacter { .. }));
    assert!(matches!(with(|c| c.functions.reverse()), EncodeError::Order { .. }));
    assert!(matches!(with(|c| c.functions[0].code = c.functions[1].code), EncodeError::Order { .. }));
}

#[test]
fn decode_refuses_what_version_1_does_not_say() {
    let with = |at: usize, byte: u8| {
        let mut bytes = example().encode().unwrap();
        bytes[at] = byte;
        Catalogue::decode(&bytes).unwrap_err()
    };
    let value = |error| matches!(error, CatalogueError::Value { .. });
    assert_eq!(with(0, 0), CatalogueError::Magic);
    assert_eq!(with(4, 2), CatalogueError::Version(2));
    assert_eq!(with(6, 3), CatalogueError::Truncated);
    assert!(matches!(with(6, 1), CatalogueError::Trailing(_)));
    assert!(matches!(with(11, 1), CatalogueError::RegionTooSmall { .. }));
    assert!(value(with(12, 1)) && value(with(16, 0)) && value(with(16, 128)));
    assert!(value(with(17, 2)) && value(with(22, 1)));
    assert_eq!(with(16, 16), CatalogueError::Order(code(16)));
    // The decoder refuses a text with an escape character, and a text that is not UTF-8.
    assert_eq!(with(24, 0x1b), CatalogueError::Text);
    assert_eq!(with(24, 0xff), CatalogueError::Text);
    assert_eq!(Catalogue::decode(&[]), Err(CatalogueError::Magic));
}
