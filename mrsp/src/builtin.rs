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
//! index i among the parameters that have the flag OUTPUT. The region of an input or output may be larger than the data
//! in the region. The arguments say which part of an input the function uses, and the status block says how many bytes
//! of each output the function produced.
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
/// The function that changes no byte of any parameter, for measurements of the time that a call takes.
pub const NOTHING: FunctionCode = FunctionCode::constant(3);
/// The function that computes the SHA-256 digest of input 1.
pub const SHA256: FunctionCode = FunctionCode::constant(16);
/// The function that computes the CRC-32C checksum of input 1.
pub const CRC32C: FunctionCode = FunctionCode::constant(17);
/// The function that multiplies two matrices of f64 numbers.
pub const DGEMM: FunctionCode = FunctionCode::constant(18);
/// The function that computes a one-dimensional Fourier transform of complex f64 numbers.
pub const FFT: FunctionCode = FunctionCode::constant(19);
/// The function that compresses input 1 with LZ4.
pub const LZ4_COMPRESS: FunctionCode = FunctionCode::constant(20);
/// The function that decompresses the LZ4 data in input 1.
pub const LZ4_DECOMPRESS: FunctionCode = FunctionCode::constant(21);
/// The function that compresses input 1 to one zstd frame.
pub const ZSTD_COMPRESS: FunctionCode = FunctionCode::constant(22);
/// The function that decompresses the zstd frames in input 1.
pub const ZSTD_DECOMPRESS: FunctionCode = FunctionCode::constant(23);
/// The function that adds two arrays element by element.
pub const VECTOR_ADD: FunctionCode = FunctionCode::constant(24);
/// The function that counts how many numbers of an array lie in each of several bins of equal width.
pub const HISTOGRAM: FunctionCode = FunctionCode::constant(25);
/// The function that sorts the numbers of an array.
pub const SORT: FunctionCode = FunctionCode::constant(26);
/// The code of the service that loads rules into the tables of a load balancer.
pub const LB_LOAD: FunctionCode = FunctionCode::constant(64);
/// The code of the service that changes rules in the tables of a load balancer.
pub const LB_EDIT: FunctionCode = FunctionCode::constant(65);
/// The code of the service that returns the rules in the tables of the load balancers.
pub const LB_TABLES: FunctionCode = FunctionCode::constant(66);
/// The code of the service that returns the counters of the load balancers.
pub const LB_COUNTERS: FunctionCode = FunctionCode::constant(67);
/// The code of the service that returns the counters of the event reassembly.
pub const REASSEMBLY_COUNTERS: FunctionCode = FunctionCode::constant(72);
/// The code of the service `subscribe`, whose parameters the module `ring` of the crate `ejfat` describes.
pub const SUBSCRIBE: FunctionCode = FunctionCode::constant(80);
/// The code of the service that returns the state of the bridge and its workers.
pub const BRIDGE_STATUS: FunctionCode = FunctionCode::constant(81);
/// The code of the service that returns the traces of recent events of the bridge.
pub const BRIDGE_TRACE: FunctionCode = FunctionCode::constant(82);
/// The function that writes the accelerator's [`catalogue`](crate::catalogue) to output 0.
pub const CATALOGUE: FunctionCode = FunctionCode::constant(127);

/// The codes and names of the functions of NAAICE, of the built-in functions, and of the function that returns the
/// catalogue. A server that offers only services has none of the functions in this list, except the function that
/// returns the catalogue.
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

/// The codes and names of the services that a server can offer. The requests and replies of each service except
/// `subscribe` are messages of the crate `naa-proto`. Output 0 is the reply, and if the service has a request, input 0
/// is the request. In front of each message, a varint states the length of the message in bytes.
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

/// Returns the code of the function `name`, or `None` if neither [`NAMES`] nor [`SERVICES`] has this name.
pub fn by_name(name: &str) -> Option<FunctionCode> {
    all().find(|(_, known)| *known == name).map(|(code, _)| *code)
}

/// Returns the name of the function `code`, or `None` if neither [`NAMES`] nor [`SERVICES`] has this code.
pub fn name(code: FunctionCode) -> Option<&'static str> {
    all().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// The group to which a function belongs, according to its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionGroup {
    /// The functions with codes from 1 to 15, which NAAICE defines.
    Naaice,
    /// The built-in functions of this project's server, with codes from 16 to 63.
    BuiltIn,
    /// The services, with codes from 64 to 95.
    Service,
    /// The kernels, with codes from 96 to 126.
    Kernel,
    /// The function with code 127, which returns the catalogue.
    Catalogue,
}

impl FunctionGroup {
    /// Returns the group to which the function `code` belongs.
    pub const fn of(code: FunctionCode) -> Self {
        match code.get() {
            ..=15 => Self::Naaice,
            16..=63 => Self::BuiltIn,
            64..=95 => Self::Service,
            96..=126 => Self::Kernel,
            127.. => Self::Catalogue,
        }
    }
}
