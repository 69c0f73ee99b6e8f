//! Local computations for comparison, with the libraries that the accelerator uses, on one core. Input and output are
//! in memory, and tables are made only once.

use anyhow::bail;
use mrsp::builtin::{Arguments, FftDirection};
use naa_server::functions::{crc32c, dgemm, fft, histogram, lz4, naaice, sha256, sort, vector_add, zstd};
use rustfft::num_complex::Complex64;

use crate::demo::prepare::{Prepared, Task};

/// A function that computes once.
pub(super) type LocalFunction = Box<dyn FnMut() -> anyhow::Result<()>>;

pub(super) fn local(prepared: &Prepared) -> anyhow::Result<LocalFunction> {
    let inputs = &prepared.inputs;
    let [first, rest @ ..] = inputs.as_slice() else { bail!("there is nothing to compute") };
    let room = prepared.room;
    match prepared.task {
        Task::InOut => {
            let mut data = first.clone();
            Ok(Box::new(move || {
                naaice::increment(1, std::hint::black_box(&mut data));
                Ok(())
            }))
        }
        Task::Builtin(arguments) => match (arguments, rest) {
            (Arguments::Dgemm { m, n, k }, [b]) => product([m, n, k], first, b, room),
            (Arguments::Fft { direction, .. }, _) => Ok(transform(direction, first)),
            (Arguments::VectorAdd { .. }, [b]) => of_arrays(arguments, &[first, b], room),
            (Arguments::Histogram { .. } | Arguments::Sort { .. }, _) => of_arrays(arguments, &[first], room),
            _ => Ok(of_bytes(arguments, first.clone(), room)),
        },
        Task::Out => bail!("there is nothing to compute"),
    }
}

fn of_bytes(arguments: Arguments, input: Vec<u8>, room: usize) -> LocalFunction {
    let mut out = vec![0; room];
    Box::new(move || {
        let input = std::hint::black_box(&input[..]);
        match arguments {
            Arguments::Sha256 { .. } => out.copy_from_slice(&sha256::compute(input)),
            Arguments::Crc32c { .. } => out.copy_from_slice(&crc32c::compute(input).to_le_bytes()),
            Arguments::Lz4Compress { .. } => drop(lz4::compress(input, &mut out)?),
            Arguments::Lz4Decompress { .. } => drop(lz4::decompress(input, &mut out)?),
            Arguments::ZstdCompress { level, .. } => drop(zstd::compress(level, input, &mut out)?),
            Arguments::ZstdDecompress { .. } => drop(zstd::decompress(input, &mut out)?),
            other => bail!("function {} does not take bytes", other.function()),
        }
        std::hint::black_box(&out);
        Ok(())
    })
}

/// Bytes with the alignment of a region, which is enough for any type of number.
struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    fn zeroed(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }

    fn holding(bytes: &[u8]) -> Self {
        let mut aligned = Self::zeroed(bytes.len());
        aligned.bytes_mut().copy_from_slice(bytes);
        aligned
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

fn of_arrays(arguments: Arguments, inputs: &[&[u8]], room: usize) -> anyhow::Result<LocalFunction> {
    let inputs: Vec<_> = inputs.iter().map(|input| Aligned::holding(input)).collect();
    let mut out = Aligned::zeroed(room);
    Ok(Box::new(move || {
        let first = std::hint::black_box(inputs[0].bytes());
        match arguments {
            Arguments::VectorAdd { element, .. } => {
                vector_add::compute(element, first, inputs[1].bytes(), out.bytes_mut())?;
            }
            Arguments::Histogram { element, bins, lo, hi, .. } => {
                let bins =
                    histogram::Bins::new(usize::try_from(bins)?, f64::from_bits(lo), f64::from_bits(hi))?;
                histogram::compute(element, bins, first, &mut out.words)?;
            }
            Arguments::Sort { element, order, .. } => {
                // The input must not change, as on the accelerator.
                out.bytes_mut().copy_from_slice(first);
                sort::compute(element, order, out.bytes_mut())?;
            }
            other => bail!("function {} does not take arrays", other.function()),
        }
        std::hint::black_box(out.bytes());
        Ok(())
    }))
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().copied().map(f64::from_le_bytes).collect()
}

fn product(shape: [u64; 3], a: &[u8], b: &[u8], room: usize) -> anyhow::Result<LocalFunction> {
    let (a, b, mut c) = (numbers(a), numbers(b), vec![0.0; room / 8]);
    let [m, n, k] = shape;
    let shape = [usize::try_from(m)?, usize::try_from(n)?, usize::try_from(k)?];
    Ok(Box::new(move || {
        dgemm::compute(shape, std::hint::black_box(&a), &b, &mut c)?;
        std::hint::black_box(&c);
        Ok(())
    }))
}

fn transform(direction: FftDirection, signal: &[u8]) -> LocalFunction {
    let parts = numbers(signal);
    let signal: Vec<_> = parts.as_chunks().0.iter().map(|&[re, im]| Complex64 { re, im }).collect();
    let way = match direction {
        FftDirection::Forward => rustfft::FftDirection::Forward,
        FftDirection::Inverse => rustfft::FftDirection::Inverse,
    };
    let plan = fft::plan(signal.len(), way);
    let mut scratch = vec![Complex64::default(); plan.get_inplace_scratch_len()];
    let mut out = signal.clone();
    Box::new(move || {
        out.copy_from_slice(std::hint::black_box(&signal));
        plan.process_with_scratch(&mut out, &mut scratch);
        std::hint::black_box(&out);
        Ok(())
    })
}
