//! The argument block has the following format, in which integers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | "NA" |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | function code |
//! | 4 | 4 | zero |
//! | 8 | 6·8 | arguments; zero for each argument that the function does not have |
//! | 56 | 8 | zero |

use super::{
    CRC32C, DGEMM, Element, FFT, HISTOGRAM, LZ4_COMPRESS, LZ4_DECOMPRESS, SHA256, SORT, VECTOR_ADD,
    ZSTD_COMPRESS, ZSTD_DECOMPRESS,
    block::{BLOCK_BYTES, Block, BlockError},
};
use crate::immediate::FunctionCode;

const MAGIC: [u8; 2] = *b"NA";

/// The argument block of any function, with the arguments as six numbers. The type [`Arguments`] has a named field for
/// each argument of a built-in function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentBlock {
    /// The function to which the arguments belong.
    pub function: FunctionCode,
    /// The arguments in the order in which they are in the block. If the function has fewer than six arguments, the
    /// remaining words are 0.
    pub words: [u64; 6],
}

impl ArgumentBlock {
    /// Returns the 64 bytes of the argument block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let [a, b, c, d, e, f] = self.words;
        Block { function: self.function, info: 0, words: [a, b, c, d, e, f, 0] }.encode(MAGIC)
    }

    /// Decodes the argument block in the first 64 bytes of a region.
    ///
    /// # Errors
    /// Returns an error if the bytes are not an argument block of version 1.
    pub fn decode(region: &[u8]) -> Result<Self, BlockError> {
        let Block { function, info, words } = Block::decode(region, MAGIC, "an argument block (\"NA\")")?;
        let [a, b, c, d, e, f, reserved] = words;
        if info != 0 || reserved != 0 {
            return Err(BlockError::Reserved);
        }
        Ok(Self { function, words: [a, b, c, d, e, f] })
    }
}

/// The direction of a Fourier transform. The function `fft` scales the result in neither direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FftDirection {
    /// The forward transform, for which the argument has the value 0.
    Forward = 0,
    /// The inverse transform, for which the argument has the value 1.
    Inverse = 1,
}

/// The order in which the function `sort` arranges numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortOrder {
    /// The ascending order, for which the argument has the value 0.
    Ascending = 0,
    /// The descending order, for which the argument has the value 1.
    Descending = 1,
}

/// The arguments of the built-in functions. In each variant that has a field `bytes`, this field is the number of bytes
/// of input 1 that the function uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments {
    /// The arguments of [`SHA256`].
    Sha256 {
        /// The number of bytes of input 1 that are hashed.
        bytes: u64,
    },
    /// The arguments of [`CRC32C`].
    Crc32c {
        /// The number of bytes of input 1 over which the checksum is computed.
        bytes: u64,
    },
    /// The arguments of [`DGEMM`], which multiplies the matrix A by the matrix B. The product is the matrix C. The
    /// matrix A has m rows of k numbers, the matrix B has k rows of n numbers, and the matrix C has m rows of n
    /// numbers.
    Dgemm {
        /// The number of rows of A and C.
        m: u64,
        /// The number of columns of B and C.
        n: u64,
        /// The number of columns of A, which is also the number of rows of B.
        k: u64,
    },
    /// The arguments of [`FFT`].
    Fft {
        /// The number of complex numbers in input 1.
        n: u64,
        /// The direction of the transform.
        direction: FftDirection,
    },
    /// The arguments of [`LZ4_COMPRESS`].
    Lz4Compress {
        /// The number of bytes of input 1 that are compressed.
        bytes: u64,
    },
    /// The arguments of [`LZ4_DECOMPRESS`].
    Lz4Decompress {
        /// The length in bytes of the compressed data in input 1.
        bytes: u64,
    },
    /// The arguments of [`ZSTD_COMPRESS`]. The field `level` is zstd's compression level, where 0 means zstd's default.
    /// The argument block contains `level` sign-extended to 64 bits.
    ZstdCompress {
        /// The number of bytes of input 1 that are compressed.
        bytes: u64,
        /// The compression level.
        level: i32,
    },
    /// The arguments of [`ZSTD_DECOMPRESS`].
    ZstdDecompress {
        /// The length in bytes of the zstd frames in input 1.
        bytes: u64,
    },
    /// The arguments of [`VECTOR_ADD`].
    VectorAdd {
        /// The number of elements of each array.
        n: u64,
        /// The element type of the arrays.
        element: Element,
    },
    /// The arguments of [`HISTOGRAM`], which counts the numbers x with `lo` <= x < `hi` in `bins` bins of equal width.
    /// The bin of x is `floor((x - lo)·bins / (hi - lo))`, computed in f64. After the counts of the bins, output 1 has
    /// the counts of numbers below `lo`, of numbers from `hi` on, and of NaNs. The sum of all counts in output 1 is
    /// `n`. The function does not support the element types u64 and i64, because an f64 cannot represent all values of
    /// these types.
    Histogram {
        /// The number of elements in input 1.
        n: u64,
        /// The element type of input 1.
        element: Element,
        /// The number of bins, without the three additional counts in output 1.
        bins: u64,
        /// The lower bound of the first bin, as the bits of an f64.
        lo: u64,
        /// The upper bound of the last bin, as the bits of an f64.
        hi: u64,
    },
    /// The arguments of [`SORT`].
    Sort {
        /// The number of elements in input 1.
        n: u64,
        /// The element type of input 1.
        element: Element,
        /// The order of the numbers in the result.
        order: SortOrder,
    },
}

impl Arguments {
    /// Returns the code of the function that takes these arguments.
    pub fn function(&self) -> FunctionCode {
        match self {
            Self::Sha256 { .. } => SHA256,
            Self::Crc32c { .. } => CRC32C,
            Self::Dgemm { .. } => DGEMM,
            Self::Fft { .. } => FFT,
            Self::Lz4Compress { .. } => LZ4_COMPRESS,
            Self::Lz4Decompress { .. } => LZ4_DECOMPRESS,
            Self::ZstdCompress { .. } => ZSTD_COMPRESS,
            Self::ZstdDecompress { .. } => ZSTD_DECOMPRESS,
            Self::VectorAdd { .. } => VECTOR_ADD,
            Self::Histogram { .. } => HISTOGRAM,
            Self::Sort { .. } => SORT,
        }
    }

    /// Returns the 64 bytes of the argument block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let words = match *self {
            Self::Sha256 { bytes }
            | Self::Crc32c { bytes }
            | Self::Lz4Compress { bytes }
            | Self::Lz4Decompress { bytes }
            | Self::ZstdDecompress { bytes } => [bytes, 0, 0, 0, 0, 0],
            Self::Dgemm { m, n, k } => [m, n, k, 0, 0, 0],
            Self::Fft { n, direction } => [n, direction as u64, 0, 0, 0, 0],
            Self::ZstdCompress { bytes, level } => [bytes, i64::from(level).cast_unsigned(), 0, 0, 0, 0],
            Self::VectorAdd { n, element } => [n, element.word(), 0, 0, 0, 0],
            Self::Histogram { n, element, bins, lo, hi } => [n, element.word(), bins, lo, hi, 0],
            Self::Sort { n, element, order } => [n, element.word(), order as u64, 0, 0, 0],
        };
        ArgumentBlock { function: self.function(), words }.encode()
    }

    /// Decodes the arguments in the first 64 bytes of a region. The built-in function itself checks whether the
    /// arguments fit the regions.
    ///
    /// # Errors
    /// Returns an error if the bytes are not the arguments of a built-in function.
    pub fn decode(region: &[u8]) -> Result<Self, BlockError> {
        let ArgumentBlock { function, words } = ArgumentBlock::decode(region)?;
        let [a, b, c, d, e, _] = words;
        let wrong = |index| BlockError::Argument { index, value: words[index] };
        let element = || Element::from_word(b).ok_or(wrong(1));
        let (arguments, used) = match function {
            SHA256 => (Self::Sha256 { bytes: a }, 1),
            CRC32C => (Self::Crc32c { bytes: a }, 1),
            DGEMM => (Self::Dgemm { m: a, n: b, k: c }, 3),
            FFT => {
                let direction = choice(b, [FftDirection::Forward, FftDirection::Inverse]).ok_or(wrong(1))?;
                (Self::Fft { n: a, direction }, 2)
            }
            LZ4_COMPRESS => (Self::Lz4Compress { bytes: a }, 1),
            LZ4_DECOMPRESS => (Self::Lz4Decompress { bytes: a }, 1),
            ZSTD_COMPRESS => {
                let level = i32::try_from(b.cast_signed()).map_err(|_| wrong(1))?;
                (Self::ZstdCompress { bytes: a, level }, 2)
            }
            ZSTD_DECOMPRESS => (Self::ZstdDecompress { bytes: a }, 1),
            VECTOR_ADD => (Self::VectorAdd { n: a, element: element()? }, 2),
            HISTOGRAM => (Self::Histogram { n: a, element: element()?, bins: c, lo: d, hi: e }, 5),
            SORT => {
                let element = element()?;
                let order = choice(c, [SortOrder::Ascending, SortOrder::Descending]).ok_or(wrong(2))?;
                (Self::Sort { n: a, element, order }, 3)
            }
            other => return Err(BlockError::Function(other.get())),
        };
        match words.iter().skip(used).position(|&word| word != 0) {
            Some(index) => Err(wrong(used + index)),
            None => Ok(arguments),
        }
    }
}

/// Returns the element of `choices` with the index `word`, or `None` if `word` is no index of `choices`. The index of
/// each element must be the discriminant of the element.
fn choice<T: Copy>(word: u64, choices: [T; 2]) -> Option<T> {
    choices.get(usize::try_from(word).ok()?).copied()
}
