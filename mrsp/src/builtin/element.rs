//! The element types of arrays, for functions that support several types.

/// The type of an array's numbers, which are little-endian. The discriminant of a variant is the number that selects
/// this element type in the argument of a built-in function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Element {
    /// Unsigned integers of 8 bits.
    U8 = 0,
    /// Unsigned integers of 32 bits.
    U32 = 1,
    /// Signed integers of 32 bits.
    I32 = 2,
    /// Unsigned integers of 64 bits.
    U64 = 3,
    /// Signed integers of 64 bits.
    I64 = 4,
    /// Floating-point numbers of 32 bits.
    F32 = 5,
    /// Floating-point numbers of 64 bits.
    F64 = 6,
}

impl Element {
    /// All element types in the order of their discriminants.
    pub const ALL: [Self; 7] = [Self::U8, Self::U32, Self::I32, Self::U64, Self::I64, Self::F32, Self::F64];

    /// Returns the size of one number in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns the type's name in Rust.
    pub const fn name(self) -> &'static str {
        ["u8", "u32", "i32", "u64", "i64", "f32", "f64"][self as usize]
    }

    pub(super) fn from_word(word: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.word() == word)
    }

    pub(super) const fn word(self) -> u64 {
        self as u64
    }
}
