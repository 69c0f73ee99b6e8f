//! From the command line to parameters and arguments.

use std::path::PathBuf;

use mrsp::{
    FunctionCode,
    builtin::{self, Arguments, FftDirection, Group},
    region::MAX_REGION_BYTES,
};

use super::{Args, files::Source};
use crate::{Usage, room};

/// What a function's regions are.
#[derive(Debug)]
pub(super) enum Plan {
    /// Argument block, inputs; status block, one output of so many bytes.
    Builtin { arguments: Arguments, room: usize },
    /// Every region goes both ways.
    InOut,
    /// Inputs, then outputs of so many bytes.
    Raw { rooms: Vec<usize> },
}

/// Whether the result is printed unless a file is named.
pub(super) fn is_checksum(function: FunctionCode) -> bool {
    [builtin::SHA256, builtin::CRC32C].contains(&function)
}

/// Inputs of one call of `function`; `None`: any number.
pub(super) fn inputs_of(function: FunctionCode) -> Option<usize> {
    match function {
        builtin::DGEMM => Some(2),
        builtin::SHA256
        | builtin::CRC32C
        | builtin::FFT
        | builtin::LZ4_COMPRESS
        | builtin::LZ4_DECOMPRESS
        | builtin::ZSTD_COMPRESS
        | builtin::ZSTD_DECOMPRESS => Some(1),
        _ => None,
    }
}

/// Whether the size of the output cannot be known before.
pub(super) fn may_grow(args: &Args, function: FunctionCode) -> bool {
    args.out_size.is_empty() && [builtin::LZ4_DECOMPRESS, builtin::ZSTD_DECOMPRESS].contains(&function)
}

impl Plan {
    pub(super) fn new(args: &Args, function: FunctionCode, inputs: &[Source]) -> anyhow::Result<Self> {
        if Group::of(function) == Group::Naaice {
            return Self::in_out(args, inputs);
        }
        let Some(count) = inputs_of(function) else { return Self::raw(args) };
        let [first, ..] = inputs else { return Err(missing_inputs(count)) };
        if is_checksum(function) && inputs.len() > 1 {
            return Err(Usage::error("with --out, give one input"));
        }
        if inputs.len() != count {
            return Err(missing_inputs(count));
        }
        if args.out.len() > 1 || (args.out.is_empty() && !is_checksum(function)) {
            return Err(Usage::error("name one file for the result: --out FILE"));
        }
        let len = first.len();
        let bytes = len as u64;
        let (arguments, room) = match function {
            builtin::SHA256 => (Arguments::Sha256 { bytes }, 32),
            builtin::CRC32C => (Arguments::Crc32c { bytes }, 4),
            builtin::LZ4_COMPRESS => (Arguments::Lz4Compress { bytes }, room::for_lz4(len)),
            builtin::ZSTD_COMPRESS => {
                (Arguments::ZstdCompress { bytes, level: args.level }, room::for_zstd(len))
            }
            builtin::LZ4_DECOMPRESS => (Arguments::Lz4Decompress { bytes }, first_guess(len)),
            builtin::ZSTD_DECOMPRESS => (Arguments::ZstdDecompress { bytes }, first_guess(len)),
            builtin::FFT => (transform(args, first)?, len),
            _ => product(args, inputs)?,
        };
        let room = args.out_size.first().copied().unwrap_or(room).min(MAX_REGION_BYTES as usize);
        Ok(Self::Builtin { arguments, room })
    }

    fn in_out(args: &Args, inputs: &[Source]) -> anyhow::Result<Self> {
        if inputs.is_empty() {
            return Err(Usage::error("name the data: --in FILE"));
        }
        if args.out.len() != inputs.len() {
            let (ins, outs) = (inputs.len(), args.out.len());
            let text = format!("each --in needs an --out: there are {ins} inputs and {outs} outputs");
            return Err(Usage::error(text));
        }
        Ok(Self::InOut)
    }

    fn raw(args: &Args) -> anyhow::Result<Self> {
        if args.out.len() != args.out_size.len() {
            let (files, sizes) = (args.out.len(), args.out_size.len());
            let text = format!(
                "this function is not built in, so each --out needs an --out-size: there are {files} files and \
                 {sizes} sizes"
            );
            return Err(Usage::error(text));
        }
        Ok(Self::Raw { rooms: args.out_size.clone() })
    }

    /// Arguments of a built-in function.
    pub(super) fn arguments(&self) -> Option<&Arguments> {
        match self {
            Self::Builtin { arguments, .. } => Some(arguments),
            Self::InOut | Self::Raw { .. } => None,
        }
    }
}

/// Room for decompressed data nobody has told the size of.
fn first_guess(compressed: usize) -> usize {
    compressed.saturating_mul(4).max(1 << 20)
}

fn missing_inputs(count: usize) -> anyhow::Error {
    match count {
        1 => Usage::error("this function takes one input: --in FILE"),
        _ => Usage::error(format!("this function takes {count} inputs: --in FILE FILE")),
    }
}

/// The length of the signal is that of its file.
fn transform(args: &Args, input: &Source) -> anyhow::Result<Arguments> {
    const COMPLEX: usize = 16;
    let direction = if args.inverse { FftDirection::Inverse } else { FftDirection::Forward };
    let (whole, rest) = (input.len() / COMPLEX, input.len() % COMPLEX);
    let (file, bytes) = (input.path().display(), input.len());
    if rest != 0 {
        let text =
            format!("{file} has {bytes} bytes, which is no whole number of complex f64s of {COMPLEX} bytes");
        return Err(Usage::error(text));
    }
    let n = whole as u64;
    if let Some(asked) = args.n.filter(|&asked| asked != n) {
        return Err(Usage::error(format!("-n is {asked}, but {file} has {n} complex f64s; leave -n out")));
    }
    Ok(Arguments::Fft { n, direction })
}

/// Arguments and the bytes of C. Two of m, n, k tell the third; square matrices tell all.
fn product(args: &Args, inputs: &[Source]) -> anyhow::Result<(Arguments, usize)> {
    let lens: Vec<_> = inputs.iter().map(|input| input.len() as u64 / 8).collect();
    let &[a, b] = lens.as_slice() else { return Err(missing_inputs(2)) };
    let by = |total: u64, side: Option<u64>| side.and_then(|side| total.checked_div(side));
    let root = (a == b && args.m.is_none() && args.n.is_none()).then(|| a.isqrt());
    let k = args.k.or(by(a, args.m)).or(by(b, args.n)).or(root);
    let shape = k.and_then(|k| Some((args.m.or(by(a, Some(k)))?, args.n.or(by(b, Some(k)))?, k)));
    let fits = |(m, n, k): &(u64, u64, u64)| m.checked_mul(*k) == Some(a) && k.checked_mul(*n) == Some(b);
    let Some((m, n, k)) = shape.filter(fits) else {
        let text = format!(
            "the files have {a} and {b} f64s; give -m, -n and -k so that A has m*k and B has k*n of them"
        );
        return Err(Usage::error(text));
    };
    let room = m.checked_mul(n).and_then(|numbers| numbers.checked_mul(8)).filter(|&r| r <= MAX_REGION_BYTES);
    let room = room.and_then(|room| usize::try_from(room).ok());
    let room = room.ok_or_else(|| Usage::error("the product is larger than a region holds, 2 GiB"))?;
    Ok((Arguments::Dgemm { m, n, k }, room))
}

/// Bytes as people write them: a number, with K, M or G for binary multiples.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift));
    let bytes =
        bytes.filter(|&bytes| bytes <= MAX_REGION_BYTES).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.ok_or_else(|| "write a number of bytes up to 2G, such as 65536, 64K or 16M".into())
}

/// Paths of one call each: checksums of many files are many calls.
pub(super) fn batches(args: &Args, function: FunctionCode) -> Vec<Vec<PathBuf>> {
    if is_checksum(function) && args.input.len() > 1 && args.out.is_empty() {
        args.input.iter().map(|path| vec![path.clone()]).collect()
    } else {
        vec![args.input.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("65536"), Ok(65536));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("2G"), Ok(2 << 30));
        for bad in ["", "K", "3G", "-1", "1.5M", "99999999999999999999", "1\u{e9}"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
