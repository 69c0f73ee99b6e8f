//! Encodes and decodes what argument blocks and status blocks have in common. Both kinds of block have 64 bytes, and
//! begin with magic bytes, a version and a function code.

use crate::immediate::FunctionCode;

/// The size in bytes of an argument or status block. The region that contains a block may be larger than the block.
pub const BLOCK_BYTES: usize = 64;
const VERSION: u8 = 1;

/// The error for bytes that are not a valid argument or status block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The region has fewer than [`BLOCK_BYTES`] bytes. The value is the size of the region in bytes.
    #[error("the region has {0} bytes, a block needs {BLOCK_BYTES}")]
    Short(usize),
    /// The first two bytes are not the magic bytes of the expected block.
    #[error("the region does not begin with {expected}")]
    Magic {
        /// The name and the magic bytes of the expected block, for the text of the error.
        expected: &'static str,
    },
    /// The block has a version that this crate does not support. The value is the version of the block.
    #[error("the block has version {0}, this side speaks version {VERSION}")]
    Version(u8),
    /// The function code is not from 1 to 127, or [`Arguments`](super::Arguments) has no variant for the function. The
    /// value is the function code.
    #[error("the block names function {0}, which has no such block")]
    Function(u8),
    /// An argument has a value that the function does not accept.
    #[error("argument {index} cannot be {value:#x}")]
    Argument {
        /// The number of the argument in the block, from 0 to 5.
        index: usize,
        /// The value of the argument.
        value: u64,
    },
    /// A reserved byte of an argument block is not 0.
    #[error("reserved bytes of the block are not zero")]
    Reserved,
    /// The return code of a status block has more than 24 bits. The value is the return code.
    #[error("the status block's code {0:#x} has more than 24 bits")]
    Code(u32),
}

/// The decoded numbers of an argument block or a status block.
pub(super) struct Block {
    pub(super) function: FunctionCode,
    /// The number in bytes 4 to 7 of the block. In a status block, the number is the return code. In an argument block,
    /// the number must be 0.
    pub(super) info: u32,
    /// The numbers in bytes 8 to 63 of the block.
    pub(super) words: [u64; 7],
}

impl Block {
    pub(super) fn encode(&self, [m0, m1]: [u8; 2]) -> [u8; BLOCK_BYTES] {
        let [a, b, c, d] = self.info.to_le_bytes();
        let head = [m0, m1, VERSION, self.function.get(), a, b, c, d];
        let words = [head].into_iter().chain(self.words.map(u64::to_le_bytes));
        let mut block = [0; BLOCK_BYTES];
        for (slot, word) in block.as_chunks_mut().0.iter_mut().zip(words) {
            *slot = word;
        }
        block
    }

    /// Decodes the block in the first 64 bytes of `region`. `expected` has the name and the magic bytes of the expected
    /// block, for the text of an error.
    pub(super) fn decode(region: &[u8], magic: [u8; 2], expected: &'static str) -> Result<Self, BlockError> {
        let (words, _) = region.as_chunks();
        let &[head, ref words @ ..] = words.first_chunk::<8>().ok_or(BlockError::Short(region.len()))?;
        let [m0, m1, version, function, a, b, c, d] = head;
        if [m0, m1] != magic {
            return Err(BlockError::Magic { expected });
        }
        if version != VERSION {
            return Err(BlockError::Version(version));
        }
        let function = FunctionCode::new(function).ok_or(BlockError::Function(function))?;
        Ok(Self { function, info: u32::from_le_bytes([a, b, c, d]), words: words.map(u64::from_le_bytes) })
    }
}
