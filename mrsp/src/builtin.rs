//! Function codes, and the argument and status blocks of built-in functions.
//!
//! | codes | functions |
//! |---|---|
//! | 1-15 | functions of NAAICE, which work on every byte of every parameter and have no blocks |
//! | 16-63 | built-in functions; input 0 is an [`ArgumentBlock`], output 0 a [`StatusBlock`] |
//! | 64-95 | [services](SERVICES) |
//! | 96-126 | kernels |
//! | 127 | the [`catalogue`](crate::catalogue); no arguments, output 0 is the catalogue |
//!
//! Input i is the parameter with index i among the parameters that have the flag INPUT. Output i is the parameter with
//! index i among the parameters that have the flag OUTPUT. The region of an input or output may be larger than its
//! data. The arguments say which part of an input the function uses, and the status block says how many bytes of each
//! output the function produced.
//!
//! | function | arguments | inputs from 1 | output 1 |
//! |---|---|---|---|
//! | sha256 | bytes | data | digest, 32 bytes |
//! | crc32c | bytes | data | checksum, u32 |
//! | dgemm | m, n, k | A, m·k f64; B, k·n f64 | C = A·B, m·n f64, all row-major |
//! | fft | n, direction | n complex f64 | n complex f64 |
//! | lz4-compress, lz4-decompress | bytes | data | data |
//! | zstd-compress | bytes, level | data | one frame |
//! | zstd-decompress | bytes | frames | data |
//! | vector-add | n, [`Element`] | a, n numbers; b, n numbers | a + b; integers wrap |
//! | histogram | n, [`Element`], bins, lo, hi (f64s) | n numbers | bins + 3 u64, see [`Arguments::Histogram`] |
//! | sort | n, [`Element`], order | n numbers | the same numbers in order; floats in the total order of IEEE 754 |

mod arguments;
mod block;
mod element;
mod status;

use crate::immediate::FunctionCode;

pub use arguments::{ArgumentBlock, Arguments, FftDirection, SortOrder};
pub use block::{BLOCK_BYTES, BlockError};
pub use element::Element;
pub use status::StatusBlock;

/// The function that adds 1 to every byte of every parameter.
pub const INCREMENT: FunctionCode = FunctionCode::constant(1);
/// The function that adds 2 to every byte of every parameter.
pub const INCREMENT_BY_TWO: FunctionCode = FunctionCode::constant(2);
pub const NOTHING: FunctionCode = FunctionCode::constant(3);
pub const SHA256: FunctionCode = FunctionCode::constant(16);
pub const CRC32C: FunctionCode = FunctionCode::constant(17);
pub const DGEMM: FunctionCode = FunctionCode::constant(18);
pub const FFT: FunctionCode = FunctionCode::constant(19);
pub const LZ4_COMPRESS: FunctionCode = FunctionCode::constant(20);
pub const LZ4_DECOMPRESS: FunctionCode = FunctionCode::constant(21);
pub const ZSTD_COMPRESS: FunctionCode = FunctionCode::constant(22);
pub const ZSTD_DECOMPRESS: FunctionCode = FunctionCode::constant(23);
pub const VECTOR_ADD: FunctionCode = FunctionCode::constant(24);
pub const HISTOGRAM: FunctionCode = FunctionCode::constant(25);
pub const SORT: FunctionCode = FunctionCode::constant(26);
pub const LB_LOAD: FunctionCode = FunctionCode::constant(64);
pub const LB_EDIT: FunctionCode = FunctionCode::constant(65);
pub const LB_TABLES: FunctionCode = FunctionCode::constant(66);
pub const LB_COUNTERS: FunctionCode = FunctionCode::constant(67);
pub const REASSEMBLY_COUNTERS: FunctionCode = FunctionCode::constant(72);
/// The code of the service `subscribe`, whose parameters the module `ring` of the crate `ejfat` describes.
pub const SUBSCRIBE: FunctionCode = FunctionCode::constant(80);
pub const BRIDGE_STATUS: FunctionCode = FunctionCode::constant(81);
pub const BRIDGE_TRACE: FunctionCode = FunctionCode::constant(82);
pub const CATALOGUE: FunctionCode = FunctionCode::constant(127);

/// The names of all functions that every server has.
pub const NAMES: &[(FunctionCode, &str)] = &[
    (INCREMENT, "increment"),
    (INCREMENT_BY_TWO, "increment-by-two"),
    (NOTHING, "nothing"),
    (SHA256, "sha256"),
    (CRC32C, "crc32c"),
    (DGEMM, "dgemm"),
    (FFT, "fft"),
    (LZ4_COMPRESS, "lz4-compress"),
    (LZ4_DECOMPRESS, "lz4-decompress"),
    (ZSTD_COMPRESS, "zstd-compress"),
    (ZSTD_DECOMPRESS, "zstd-decompress"),
    (VECTOR_ADD, "vector-add"),
    (HISTOGRAM, "histogram"),
    (SORT, "sort"),
    (CATALOGUE, "catalogue"),
];

/// The services that a server may have. Except for `subscribe`, input 0 of a service is a request and output 0 is a
/// reply. Each request and each reply is a message of the crate `proto`, and its length comes before the message as a
/// varint.
pub const SERVICES: &[(FunctionCode, &str)] = &[
    (LB_LOAD, "lb-load"),
    (LB_EDIT, "lb-edit"),
    (LB_TABLES, "lb-tables"),
    (LB_COUNTERS, "lb-counters"),
    (REASSEMBLY_COUNTERS, "reassembly-counters"),
    (SUBSCRIBE, "subscribe"),
    (BRIDGE_STATUS, "bridge-status"),
    (BRIDGE_TRACE, "bridge-trace"),
];

fn all() -> impl Iterator<Item = &'static (FunctionCode, &'static str)> {
    NAMES.iter().chain(SERVICES)
}

/// Returns the code of the function `name`, or `None` if no function has this name.
pub fn by_name(name: &str) -> Option<FunctionCode> {
    all().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

/// Returns the name of the function `code`, if the code has a fixed name.
pub fn name(code: FunctionCode) -> Option<&'static str> {
    all().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// The group to which a function belongs, according to its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Naaice,
    BuiltIn,
    Service,
    PlugIn,
    Catalogue,
}

impl Group {
    pub const fn of(code: FunctionCode) -> Self {
        match code.get() {
            ..=15 => Self::Naaice,
            16..=63 => Self::BuiltIn,
            64..=95 => Self::Service,
            96..=126 => Self::PlugIn,
            127.. => Self::Catalogue,
        }
    }
}
