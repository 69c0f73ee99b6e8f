//! Encodes a catalogue.

use super::{Catalogue, FunctionInfo, HEADER_BYTES, MAGIC, POOLED, ParamInfo, VERSION, is_printable};
use crate::immediate::FunctionCode;

/// The error for a catalogue that cannot be encoded, because the data of a function or the order of the
/// functions is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A name, a description or a list of parameters is longer than its length field can express.
    #[error("{what} of function {code} has {len} bytes or elements, more than {limit}")]
    TooLong {
        /// Says what is too long, for example "the name".
        what: &'static str,
        /// The code of the function whose entry is invalid.
        code: FunctionCode,
        /// The length of the name or description in bytes, or the number of parameters in the list of parameters.
        len: usize,
        /// The maximum value of `len`.
        limit: usize,
    },
    /// A name or a description contains a control character.
    #[error("a text of function {code} has control characters: {text:?}")]
    ControlCharacter {
        /// The code of the function whose entry is invalid.
        code: FunctionCode,
        /// The name or description that contains the control character.
        text: String,
    },
    /// A function's code is not higher than the code of the function before it.
    #[error("functions {former} and {code} are not in ascending order")]
    Order {
        /// The code of the function that is directly before the function `code` in the catalogue.
        former: FunctionCode,
        /// The code of the function that is out of order, because this code is not higher than the code `former`.
        code: FunctionCode,
    },
}

impl Catalogue {
    /// Encodes the catalogue with its header.
    ///
    /// # Errors
    /// Returns an error if a text or a list of parameters is too long, if a text is not printable, or if the functions
    /// are not in the order of their codes.
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        for pair in self.functions.windows(2) {
            if let [FunctionInfo { code: former, .. }, FunctionInfo { code, .. }] = *pair
                && former >= code
            {
                return Err(EncodeError::Order { former, code });
            }
        }
        let mut out = vec![0; HEADER_BYTES];
        for function in &self.functions {
            function.encode(&mut out)?;
        }
        // A catalogue has at most 127 functions with at most 255 parameters each. So the number of functions fits into
        // 16 bits, and the size of the catalogue fits into 32 bits.
        let (count, total) = (self.functions.len() as u16, out.len() as u32);
        let header = [&MAGIC[..], &VERSION.to_le_bytes(), &count.to_le_bytes(), &total.to_le_bytes()];
        for (slot, byte) in out.iter_mut().zip(header.into_iter().flatten()) {
            *slot = *byte;
        }
        Ok(out)
    }
}

impl FunctionInfo {
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let code = self.code;
        let parameters = length("the list of parameters", code, self.parameters.len(), u8::MAX.into())?;
        let name = text("the name", code, &self.name, u8::MAX.into())?;
        let description = text("the description", code, &self.description, u16::MAX)?;
        let flags = if self.pooled { POOLED } else { 0 };
        out.extend([code.get(), flags, parameters as u8, name as u8]);
        out.extend(description.to_le_bytes());
        out.extend([0, 0]);
        out.extend(self.name.bytes());
        out.extend(self.description.bytes());
        self.parameters.iter().try_for_each(|parameter| parameter.encode(code, out))
    }
}

impl ParamInfo {
    fn encode(&self, code: FunctionCode, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let name = text("a parameter's name", code, &self.name, u8::MAX.into())?;
        let description = text("a parameter's description", code, &self.description, u8::MAX.into())?;
        out.extend([self.direction as u8, self.kind as u8, name as u8, description as u8]);
        out.extend(self.name.bytes());
        out.extend(self.description.bytes());
        Ok(())
    }
}

fn text(what: &'static str, code: FunctionCode, text: &str, limit: u16) -> Result<u16, EncodeError> {
    if !is_printable(text) {
        return Err(EncodeError::ControlCharacter { code, text: text.to_owned() });
    }
    length(what, code, text.len(), limit)
}

fn length(what: &'static str, code: FunctionCode, len: usize, limit: u16) -> Result<u16, EncodeError> {
    let fits = u16::try_from(len).ok().filter(|&len| len <= limit);
    fits.ok_or(EncodeError::TooLong { what, code, len, limit: limit.into() })
}
