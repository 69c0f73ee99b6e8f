//! Makes the inputs of a case and its expected result, which is computed here by the functions themselves.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use mrsp::{
    FunctionCode,
    builtin::{self, Arguments, FftDirection},
};
use naa_server::functions::{self, crc32c, dgemm, fft, lz4, naaice, sha256, zstd};
use rustfft::num_complex::Complex64;

use super::{
    cases::{Case, Input},
    data,
};

/// The default level of zstd.
const LEVEL: i32 = 3;

/// The kind of call that a case makes.
#[derive(Debug)]
pub(crate) enum Task {
    /// A function without arguments that works on one in-out region.
    InOut,
    /// A function with argument and status blocks.
    Builtin(Arguments),
    /// A function that has only an output.
    Out,
}

#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) function: FunctionCode,
    pub(crate) task: Task,
    pub(crate) inputs: Vec<Vec<u8>>,
    /// The length of the output region in bytes.
    pub(crate) room: usize,
    pub(crate) expected: Vec<u8>,
    /// The time that computing `expected` took.
    pub(crate) local: Duration,
}

pub(crate) fn timed<T>(compute: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = compute();
    (result, start.elapsed())
}

pub(crate) fn prepare(case: Case) -> anyhow::Result<Prepared> {
    match case.input {
        Input::Nothing => table(case.function),
        Input::Generated(bytes) => of_bytes(case.function, data::bytes(bytes)),
        Input::Executable(most) => {
            let mut file =
                std::fs::read(super::children::EXECUTABLE).context("cannot read this executable")?;
            file.truncate(most);
            of_bytes(case.function, file)
        }
        Input::Matrices(n) => product(n),
        Input::Signal(n, direction) => transform(n, direction),
        Input::Numbers(n, element) => super::arrays::prepare(case.function, n, element),
    }
}

fn table(function: FunctionCode) -> anyhow::Result<Prepared> {
    let (expected, local) = timed(|| anyhow::Ok(functions::builtins()?.catalogue().encode()?));
    let room = mrsp::catalogue::USUAL_BYTES;
    Ok(Prepared { function, task: Task::Out, inputs: Vec::new(), room, expected: expected?, local })
}

fn of_bytes(function: FunctionCode, input: Vec<u8>) -> anyhow::Result<Prepared> {
    let bytes = input.len() as u64;
    match function {
        builtin::INCREMENT => Ok(in_out(function, 1, input)),
        builtin::INCREMENT_BY_TWO => Ok(in_out(function, 2, input)),
        builtin::NOTHING => Ok(in_out(function, 0, input)),
        builtin::SHA256 => {
            let (digest, local) = timed(|| sha256::compute(&input));
            Ok(built_in(Arguments::Sha256 { bytes }, vec![input], 32, digest.into(), local))
        }
        builtin::CRC32C => {
            let (checksum, local) = timed(|| crc32c::compute(&input));
            let expected = checksum.to_le_bytes().into();
            Ok(built_in(Arguments::Crc32c { bytes }, vec![input], 4, expected, local))
        }
        builtin::LZ4_COMPRESS => {
            let (frame, local) = lz4_frame(&input)?;
            let room = naa_batch::room::for_lz4(input.len());
            Ok(built_in(Arguments::Lz4Compress { bytes }, vec![input], room, frame, local))
        }
        builtin::ZSTD_COMPRESS => {
            let (frame, local) = zstd_frame(&input)?;
            let room = naa_batch::room::for_zstd(input.len());
            Ok(built_in(Arguments::ZstdCompress { bytes, level: LEVEL }, vec![input], room, frame, local))
        }
        builtin::LZ4_DECOMPRESS => {
            let (frame, _) = lz4_frame(&input)?;
            let arguments = Arguments::Lz4Decompress { bytes: frame.len() as u64 };
            original(arguments, frame, input, lz4::decompress)
        }
        builtin::ZSTD_DECOMPRESS => {
            let (frame, _) = zstd_frame(&input)?;
            let arguments = Arguments::ZstdDecompress { bytes: frame.len() as u64 };
            original(arguments, frame, input, zstd::decompress)
        }
        other => bail!("function {other} does not take bytes"),
    }
}

fn in_out(function: FunctionCode, amount: u8, input: Vec<u8>) -> Prepared {
    let (room, mut expected) = (input.len(), input.clone());
    let change = || {
        if amount != 0 {
            naaice::increment(amount, &mut expected);
        }
    };
    let ((), local) = timed(change);
    Prepared { function, task: Task::InOut, inputs: vec![input], room, expected, local }
}

pub(crate) fn built_in(
    arguments: Arguments,
    inputs: Vec<Vec<u8>>,
    room: usize,
    expected: Vec<u8>,
    local: Duration,
) -> Prepared {
    let function = arguments.function();
    Prepared { function, task: Task::Builtin(arguments), inputs, room, expected, local }
}

fn lz4_frame(input: &[u8]) -> anyhow::Result<(Vec<u8>, Duration)> {
    let mut frame = vec![0; naa_batch::room::for_lz4(input.len())];
    let (len, local) = timed(|| lz4::compress(input, &mut frame));
    frame.truncate(len?);
    Ok((frame, local))
}

fn zstd_frame(input: &[u8]) -> anyhow::Result<(Vec<u8>, Duration)> {
    let mut frame = vec![0; naa_batch::room::for_zstd(input.len())];
    let (len, local) = timed(|| zstd::compress(LEVEL, input, &mut frame));
    frame.truncate(len?);
    Ok((frame, local))
}

/// Prepares a decompression, whose expected result is the original.
fn original(
    arguments: Arguments,
    frame: Vec<u8>,
    original: Vec<u8>,
    decompress: fn(&[u8], &mut [u8]) -> Result<usize, naa_server::call::CallFailure>,
) -> anyhow::Result<Prepared> {
    let mut here = vec![0; original.len()];
    let (len, local) = timed(|| decompress(&frame, &mut here));
    ensure!(len? == original.len() && here == original, "decompressing here does not give the original");
    let room = original.len();
    Ok(built_in(arguments, vec![frame], room, original, local))
}

fn product(n: usize) -> anyhow::Result<Prepared> {
    let [a, b] = [1, 2].map(|seed| data::numbers(n * n, seed));
    let mut c = vec![0.0; n * n];
    let (computed, local) = timed(|| dgemm::compute([n, n, n], &a, &b, &mut c));
    computed?;
    let expected = data::to_bytes(c);
    let inputs = [a, b].map(data::to_bytes).into();
    let rows = n as u64;
    let arguments = Arguments::Dgemm { m: rows, n: rows, k: rows };
    Ok(built_in(arguments, inputs, expected.len(), expected, local))
}

fn transform(n: usize, direction: FftDirection) -> anyhow::Result<Prepared> {
    let parts = data::numbers(2 * n, 3);
    let mut signal: Vec<_> = parts.as_chunks().0.iter().map(|&[re, im]| Complex64 { re, im }).collect();
    let way = match direction {
        FftDirection::Forward => rustfft::FftDirection::Forward,
        FftDirection::Inverse => rustfft::FftDirection::Inverse,
    };
    let (computed, local) = timed(|| fft::compute(way, &mut signal));
    computed?;
    let expected = data::to_bytes(signal.iter().flat_map(|z| [z.re, z.im]));
    let arguments = Arguments::Fft { n: n as u64, direction };
    Ok(built_in(arguments, vec![data::to_bytes(parts)], expected.len(), expected, local))
}
