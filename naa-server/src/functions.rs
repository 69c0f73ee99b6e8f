//! Built-in functions.
//!
//! The modules of most built-in functions also have public Rust functions that do the same computations, for example
//! [`sha256::compute`]. A host can call [`sha256::compute`] to check a digest that an accelerator computed.

mod blocks;
pub mod bounds;
pub mod catalogue;
pub mod crc32c;
pub mod dgemm;
pub mod fft;
mod frame_sequence;
pub mod histogram;
pub mod lz4;
pub mod naaice;
mod output;
mod pieces;
pub mod sha256;
pub mod sort;
pub mod vector_add;
pub mod zstd;

use mrsp::{
    FunctionCode, builtin,
    catalogue::{Direction, ParamInfo, ParamKind},
};

use crate::{
    call::CallFailure,
    function::{FunctionInfo, Handler, Registry, RegistryError},
};
use blocks::{Builtin, Compute};

/// Argument blocks, status blocks and the numbers in regions are little-endian. Built-in functions compute on the
/// numbers in regions without converting the byte order.
#[cfg(target_endian = "big")]
compile_error!("the functions compute on little-endian data in place and need a little-endian machine");

/// Returns a registry with all built-in functions and the function that returns the catalogue.
///
/// # Errors
/// Fails if the descriptions of the functions cannot be encoded as a catalogue, which is a defect of this crate.
pub fn builtins() -> Result<Registry, RegistryError> {
    registry(None::<Handler>)
}

/// Returns a registry with all built-in functions, the handlers `others`, and the function that returns the catalogue.
///
/// # Errors
/// Fails if one of `others` has the function code of another function, or a description that cannot be encoded in the
/// catalogue.
pub fn registry(others: impl IntoIterator<Item: Into<Handler>>) -> Result<Registry, RegistryError> {
    complete(without_catalogue()?, others)
}

/// Returns a registry with the handlers `others` and the function that returns the catalogue. The registry has no
/// built-in functions, and is for a server that offers only services.
///
/// # Errors
/// Fails for the same reasons as [`registry`].
pub fn services(others: impl IntoIterator<Item: Into<Handler>>) -> Result<Registry, RegistryError> {
    complete(Registry::default(), others)
}

fn complete(
    mut registry: Registry,
    others: impl IntoIterator<Item: Into<Handler>>,
) -> Result<Registry, RegistryError> {
    for handler in others {
        registry.register(handler)?;
    }
    catalogue::register(&mut registry)?;
    Ok(registry)
}

fn without_catalogue() -> Result<Registry, RegistryError> {
    let mut registry = Registry::default();
    for function in naaice::functions() {
        registry.register(function)?;
    }
    let data = (ParamKind::Bytes, "data", "bytes");
    let [a, b, c] = [("a", "m rows of k"), ("b", "k rows of n"), ("c", "A\u{b7}B, m rows of n")]
        .map(|(name, description)| (ParamKind::F64, name, description));
    let [signal, spectrum] =
        [("signal", "n numbers; may be the output too"), ("spectrum", "n numbers, not scaled")]
            .map(|(name, description)| (ParamKind::ComplexF64, name, description));
    let digest = (ParamKind::Bytes, "digest", "32 bytes");
    let checksum = (ParamKind::U32, "checksum", "of the data");
    // The following regions contain numbers whose type is named in the argument block of each call. The catalogue is
    // the same for all calls, so it describes the regions as bytes.
    let [left, right, sum, values, sorted] = [
        ("a", "n numbers; may be the output too"),
        ("b", "n numbers"),
        ("sum", "n numbers"),
        ("values", "n numbers; of sort, may be the output too"),
        ("sorted", "n numbers"),
    ]
    .map(|(name, description)| (ParamKind::Bytes, name, description));
    let counts = (ParamKind::U64, "counts", "of the bins, below, above, NaN");
    let [lz4, zstd] = ["LZ4 frames", "zstd frames"].map(|text| (ParamKind::Bytes, "compressed", text));
    for (code, description, inputs, output, compute) in [
        (builtin::SHA256, "SHA-256 digest", &[data][..], digest, sha256::run as Compute),
        (builtin::CRC32C, "CRC-32C checksum", &[data], checksum, crc32c::run),
        (builtin::DGEMM, "product of two f64 matrices, row-major", &[a, b], c, dgemm::run),
        (
            builtin::FFT,
            "Fourier transform of complex f64; inverse unscaled, as FFTW: divide by n",
            &[signal],
            spectrum,
            fft::run,
        ),
        (builtin::LZ4_COMPRESS, "compresses into one LZ4 frame", &[data], lz4, lz4::run_compress),
        (builtin::LZ4_DECOMPRESS, "decompresses LZ4 frames", &[lz4], data, lz4::run_decompress),
        (builtin::ZSTD_COMPRESS, "compresses into one zstd frame", &[data], zstd, zstd::run_compress),
        (builtin::ZSTD_DECOMPRESS, "decompresses zstd frames", &[zstd], data, zstd::run_decompress),
        (
            builtin::VECTOR_ADD,
            "sum of two arrays of u8, u32, i32, u64, i64, f32 or f64; integers wrap",
            &[left, right],
            sum,
            vector_add::run,
        ),
        (
            builtin::HISTOGRAM,
            "counts of u8, u32, i32, f32 or f64 by bins of equal width",
            &[values],
            counts,
            histogram::run,
        ),
        (
            builtin::SORT,
            "sorts u8, u32, i32, u64, i64, f32 or f64, floats in total order",
            &[values],
            sorted,
            sort::run,
        ),
    ] {
        let info = with_blocks(code, description, inputs, output);
        registry.register(Builtin { info, compute })?;
    }
    Ok(registry)
}

type Described = (ParamKind, &'static str, &'static str);

fn parameter(direction: Direction, (kind, name, description): Described) -> ParamInfo {
    ParamInfo { direction, kind, name: name.into(), description: description.into() }
}

fn info(code: FunctionCode, description: &str, pooled: bool, parameters: Vec<ParamInfo>) -> FunctionInfo {
    let name = builtin::name(code).unwrap_or("unnamed").into();
    FunctionInfo { code, name, description: description.into(), pooled, parameters }
}

fn with_blocks(
    code: FunctionCode,
    description: &str,
    inputs: &[Described],
    output: Described,
) -> FunctionInfo {
    let mut parameters = vec![parameter(Direction::Input, (ParamKind::Arguments, "arguments", "64 bytes"))];
    parameters.extend(inputs.iter().map(|input| parameter(Direction::Input, *input)));
    parameters.push(parameter(Direction::Output, (ParamKind::Status, "status", "64 bytes")));
    parameters.push(parameter(Direction::Output, output));
    info(code, description, true, parameters)
}

/// Returns `bytes` as a slice of numbers. Fails with [`CallFailure::Internal`] if `bytes` is not aligned for `T`, or if
/// the length of `bytes` is not a multiple of the size of `T`. The start of a parameter is always aligned: a region
/// starts on a page, and the offset of a parameter in a region is a multiple of [`ALIGNMENT`](mrsp::layout::ALIGNMENT).
fn numbers<T: bytemuck::AnyBitPattern>(bytes: &[u8]) -> Result<&[T], CallFailure> {
    bytemuck::try_cast_slice(bytes).map_err(|error| CallFailure::Internal(error.to_string().into()))
}

fn numbers_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> Result<&mut [T], CallFailure> {
    bytemuck::try_cast_slice_mut(bytes).map_err(|error| CallFailure::Internal(error.to_string().into()))
}

/// Returns the length in bytes of a matrix of `rows` by `columns` elements that have `size` bytes each. Returns `None`
/// if this length does not fit in a `u64`.
fn bytes_of(rows: u64, columns: u64, size: u64) -> Option<u64> {
    rows.checked_mul(columns)?.checked_mul(size)
}
