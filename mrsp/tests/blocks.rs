//! Tests of argument blocks, status blocks, return codes, and the codes and names of functions.

mod common;

use common::{Random, code};
use mrsp::{
    FunctionCode, ReturnCode, U24,
    builtin::{
        self, ArgumentBlock, Arguments, BlockError, CRC32C, DGEMM, Element, FFT, FftDirection, FunctionGroup,
        HISTOGRAM, SHA256, SORT, SortOrder, StatusBlock, VECTOR_ADD,
    },
};

#[test]
fn layout_of_arguments() {
    let block = Arguments::Dgemm { m: 2, n: 3, k: 0x0807_0605_0403_0201 }.encode();
    assert_eq!(block[..8], [b'N', b'A', 1, 18, 0, 0, 0, 0]);
    assert_eq!(block[8..32], [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(block[32..].iter().all(|&byte| byte == 0));
}

#[test]
fn layout_of_status() {
    let produced = [64, 7, 0, 0, 0, 0x0102_0304_0506_0708];
    let code = Some(ReturnCode::OUTPUT_TOO_SMALL);
    let block = StatusBlock { function: CRC32C, code, detail: 9, produced }.encode();
    assert_eq!(block[..16], [b'N', b'S', 1, 17, 0x13, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!((block[16], block[24]), (64, 7));
    assert_eq!(block[56..], [8, 7, 6, 5, 4, 3, 2, 1]);
}

#[test]
fn element_types_have_the_names_of_rust() {
    assert_eq!(Element::ALL.map(Element::name), ["u8", "u32", "i32", "u64", "i64", "f32", "f64"]);
}

#[test]
fn arguments_round_trip() {
    let mut random = Random::seeded(0x5eed_0003);
    for _ in 0..1000 {
        let (a, b, c) = (random.any(), random.any(), random.any());
        let direction = if random.chance(2) { FftDirection::Forward } else { FftDirection::Inverse };
        let order = if random.chance(2) { SortOrder::Ascending } else { SortOrder::Descending };
        let element = Element::ALL[random.below(7) as usize];
        let all = [
            Arguments::Sha256 { bytes: a },
            Arguments::Crc32c { bytes: a },
            Arguments::Dgemm { m: a, n: b, k: c },
            Arguments::Fft { n: a, direction },
            Arguments::Lz4Compress { bytes: a },
            Arguments::Lz4Decompress { bytes: a },
            Arguments::ZstdCompress { bytes: a, level: b as i32 },
            Arguments::ZstdDecompress { bytes: a },
            Arguments::VectorAdd { n: a, element },
            Arguments::Histogram { n: a, element, bins: b, lo: c, hi: random.any() },
            Arguments::Sort { n: a, element, order },
        ];
        for arguments in all {
            let mut region = arguments.encode().to_vec();
            region.extend(random.bytes(5));
            assert_eq!(Arguments::decode(&region), Ok(arguments));
            assert_eq!(FunctionGroup::of(arguments.function()), FunctionGroup::BuiltIn);
        }
    }
}

#[test]
fn status_round_trips() {
    let mut random = Random::seeded(0x5eed_0004);
    for _ in 0..1000 {
        let status = StatusBlock {
            function: code(1 + random.below(127) as u8),
            code: ReturnCode::new(U24::new(random.any() as u32 & 0xff_ffff).unwrap()),
            detail: random.any(),
            produced: std::array::from_fn(|_| random.any()),
        };
        assert_eq!(StatusBlock::decode(&status.encode()), Ok(status));
    }
}

#[test]
fn blocks_are_strict() {
    let good = Arguments::ZstdCompress { bytes: 9, level: -5 }.encode();
    let with = |at: usize, byte: u8| {
        let mut block = good;
        block[at] = byte;
        Arguments::decode(&block).unwrap_err()
    };
    assert_eq!(with(0, b'X'), BlockError::Magic { expected: "an argument block (\"NA\")" });
    assert_eq!(with(2, 2), BlockError::Version(2));
    assert_eq!(with(3, 0), BlockError::Function(0));
    assert_eq!(with(3, 200), BlockError::Function(200));
    assert_eq!(with(3, 99), BlockError::Function(99));
    assert_eq!(with(4, 1), BlockError::Reserved);
    assert_eq!(with(63, 1), BlockError::Reserved);
    assert_eq!(with(48, 1), BlockError::Argument { index: 5, value: 1 });
    // Bytes 16 to 23 have the compression level -5, sign-extended from 32 to 64 bits, so byte 22 is 0xff. If byte 22 is
    // 0, the number in these bytes does not fit into 32 bits, and the decoder refuses it.
    assert!(matches!(with(22, 0), BlockError::Argument { index: 1, .. }));
    assert_eq!(Arguments::decode(&good[..63]), Err(BlockError::Short(63)));

    let block = ArgumentBlock { function: FFT, words: [8, 2, 0, 0, 0, 0] }.encode();
    assert_eq!(Arguments::decode(&block), Err(BlockError::Argument { index: 1, value: 2 }));
    for (function, words, index) in [
        (VECTOR_ADD, [8, 7, 0, 0, 0, 0], 1),
        (HISTOGRAM, [8, 1 << 32, 0, 0, 0, 0], 1),
        (SORT, [8, 0, 2, 0, 0, 0], 2),
    ] {
        let decoded = Arguments::decode(&ArgumentBlock { function, words }.encode());
        assert_eq!(decoded, Err(BlockError::Argument { index, value: words[index] }));
    }
    assert!(matches!(StatusBlock::decode(&good), Err(BlockError::Magic { .. })));

    let mut status = StatusBlock { function: SHA256, code: None, detail: 0, produced: [0; 6] }.encode();
    status[7] = 1;
    assert_eq!(StatusBlock::decode(&status), Err(BlockError::Code(1 << 24)));
}

#[test]
fn codes_have_texts() {
    for &(code, name, text) in ReturnCode::TABLE {
        assert_eq!(code.text(), Some(text));
        assert_eq!(format!("{code:?}"), name);
        assert!(!ReturnCode::KERNELS.contains(&code.get()));
        assert!(matches!(code.get(), 0x01..=0x02 | 0x10..=0x3f));
    }
    let mut codes: Vec<_> = ReturnCode::TABLE.iter().map(|(code, ..)| code).collect();
    codes.dedup();
    assert_eq!(codes.len(), ReturnCode::TABLE.len());
    let own = ReturnCode::new(U24::new(0x42).unwrap()).unwrap();
    assert_eq!(own.to_string(), "the function's own return code 0x42");
}

#[test]
fn numbers_and_names() {
    for pair in builtin::NAMES.windows(2) {
        assert!(pair[0].0 < pair[1].0);
    }
    for &(code, name) in builtin::NAMES {
        assert_eq!((builtin::by_name(name), builtin::name(code)), (Some(code), Some(name)));
    }
    assert_eq!((DGEMM.get(), builtin::by_name("no such")), (18, None));
    assert_eq!((FunctionCode::new(0), FunctionCode::new(128)), (None, None));
    let groups = [1, 15, 16, 63, 64, 95, 96, 126, 127].map(|number| FunctionGroup::of(code(number)));
    use FunctionGroup::*;
    assert_eq!(groups, [Naaice, Naaice, BuiltIn, BuiltIn, Service, Service, Kernel, Kernel, Catalogue]);
}
