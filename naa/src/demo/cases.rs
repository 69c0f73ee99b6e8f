//! What the demonstration offloads.

use mrsp::{
    FunctionCode,
    builtin::{self, Element, FftDirection},
};

/// How long the demonstration may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Takes a few seconds.
    Quick,
    /// Takes at most a minute.
    Usual,
    /// Every function up to the largest size.
    Full,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) function: FunctionCode,
    pub(crate) input: Input,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Nothing,
    /// So many bytes, half of them hard to compress.
    Generated(usize),
    /// This number of bytes of this program's executable file, or all of them if it is smaller.
    Executable(usize),
    /// Two square matrices of so many rows.
    Matrices(usize),
    /// So many complex numbers, to be transformed in this direction.
    Signal(usize, FftDirection),
    /// So many numbers of any bits.
    Numbers(usize, Element),
}

impl Input {
    /// A description of the input for the table.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Nothing => "-".into(),
            Self::Generated(_) => "generated".into(),
            Self::Executable(_) => "this executable".into(),
            Self::Matrices(n) => format!("{n}x{n}"),
            Self::Signal(n, FftDirection::Forward) => format!("{n} forward"),
            Self::Signal(n, FftDirection::Inverse) => format!("{n} inverse"),
            Self::Numbers(n, element) => format!("{n} {}", element.name()),
        }
    }
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const LARGEST: usize = 256 * MIB;

/// Functions of bytes.
const OF_BYTES: &[FunctionCode] = &[
    builtin::INCREMENT,
    builtin::INCREMENT_BY_TWO,
    builtin::NOTHING,
    builtin::SHA256,
    builtin::CRC32C,
    builtin::LZ4_COMPRESS,
    builtin::LZ4_DECOMPRESS,
    builtin::ZSTD_COMPRESS,
    builtin::ZSTD_DECOMPRESS,
];

/// Functions of arrays, and of what.
const OF_ARRAYS: &[(FunctionCode, &[Element])] = &[
    (builtin::VECTOR_ADD, &[Element::I32, Element::F64]),
    (builtin::HISTOGRAM, &[Element::U8, Element::F64]),
    (builtin::SORT, &[Element::U8, Element::U32, Element::F64]),
];

impl Extent {
    fn sizes(self) -> &'static [usize] {
        match self {
            Self::Quick => &[KIB, MIB],
            Self::Usual => &[KIB, 64 * KIB, MIB, 16 * MIB, LARGEST],
            Self::Full => {
                &[KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, LARGEST]
            }
        }
    }

    fn executable(self) -> usize {
        match self {
            Self::Quick => MIB,
            Self::Usual => 32 * MIB,
            Self::Full => LARGEST,
        }
    }

    /// Rows of matrices.
    fn matrices(self) -> &'static [usize] {
        match self {
            Self::Quick => &[16, 128],
            Self::Usual | Self::Full => &[16, 128, 512, 1024, 2048],
        }
    }

    /// Complex numbers. 1000 is no power of two, 10007 is a prime.
    fn signals(self) -> &'static [usize] {
        match self {
            Self::Quick => &[64, 1000],
            Self::Usual | Self::Full => &[64, 1000, 10_007, 1 << 16, 1 << 20, 1 << 24],
        }
    }

    /// Lengths of arrays.
    fn arrays(self) -> &'static [usize] {
        match self {
            Self::Quick => &[1000],
            Self::Usual => &[1000, 1 << 20, 1 << 22],
            Self::Full => &[1000, 1 << 16, 1 << 20, 1 << 22, 1 << 24],
        }
    }

    /// All cases, in the order of the table.
    pub(crate) fn cases(self) -> Vec<Case> {
        let mut cases = vec![Case { function: builtin::CATALOGUE, input: Input::Nothing }];
        for &function in OF_BYTES {
            let sizes = self.sizes().iter().copied();
            cases.extend(sizes.map(|bytes| Case { function, input: Input::Generated(bytes) }));
            cases.push(Case { function, input: Input::Executable(self.executable()) });
        }
        for &n in self.matrices() {
            cases.push(Case { function: builtin::DGEMM, input: Input::Matrices(n) });
        }
        for &n in self.signals() {
            for direction in [FftDirection::Forward, FftDirection::Inverse] {
                cases.push(Case { function: builtin::FFT, input: Input::Signal(n, direction) });
            }
        }
        for (function, elements) in OF_ARRAYS {
            for &n in self.arrays() {
                let all = elements.iter().map(|&element| Input::Numbers(n, element));
                cases.extend(all.map(|input| Case { function: *function, input }));
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_with_a_fixed_number_is_there() {
        for extent in [Extent::Quick, Extent::Usual, Extent::Full] {
            let cases = extent.cases();
            for (code, name) in builtin::NAMES {
                assert!(cases.iter().any(|case| case.function == *code), "{extent:?} lacks {name}");
            }
        }
    }
}
