//! The status block has the following format, in which integers are little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | "NS" |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | function code |
//! | 4 | 4 | return code, 24 bits; 0: success |
//! | 8 | 8 | detail; for OUTPUT_TOO_SMALL the number of bytes that are needed, 0 if unknown |
//! | 16 | 6·8 | number of bytes that were produced in outputs 0 to 5; output 0 is the status block itself |

use super::block::{BLOCK_BYTES, Block, BlockError};
use crate::{
    immediate::{FunctionCode, U24},
    return_code::ReturnCode,
};

const MAGIC: [u8; 2] = *b"NS";

/// The status block of a built-in function, which says whether the call succeeded, and how many bytes the function
/// produced in each output. The accelerator sends the status block even if the function failed, provided that the first
/// output has room for it (see [`AcceleratorSession::respond`](crate::AcceleratorSession::respond)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusBlock {
    /// The function that wrote the status block.
    pub function: FunctionCode,
    /// The return code, where `None` means success. The response immediate of the call contains the same return code as
    /// the status block.
    pub code: Option<ReturnCode>,
    /// A number that explains the return code. With [`ReturnCode::OUTPUT_TOO_SMALL`], an output is too small, and
    /// `detail` is the number of bytes that this output needs. `detail` is 0 if the function does not know this number.
    /// With [`ReturnCode::OVER_LIMIT`], `detail` is the number of bytes of scratch memory that the function requested.
    pub detail: u64,
    /// The number of bytes that the function produced in each of the outputs 0 to 5. Output 0 is the status block
    /// itself.
    pub produced: [u64; 6],
}

impl StatusBlock {
    /// Returns the 64 bytes of the status block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let [a, b, c, d, e, f] = self.produced;
        let info = self.code.map_or(0, ReturnCode::get);
        Block { function: self.function, info, words: [self.detail, a, b, c, d, e, f] }.encode(MAGIC)
    }

    /// Decodes the status block in the first 64 bytes of a region. [`produced`](Self::produced) says how many
    /// bytes the function produced in each output. The caller must check that this number is at most the size of the
    /// output's region.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a status block of version 1.
    pub fn decode(region: &[u8]) -> Result<Self, BlockError> {
        let Block { function, info, words } = Block::decode(region, MAGIC, "a status block (\"NS\")")?;
        let [detail, a, b, c, d, e, f] = words;
        let code = ReturnCode::new(U24::new(info).ok_or(BlockError::Code(info))?);
        Ok(Self { function, code, detail, produced: [a, b, c, d, e, f] })
    }
}
