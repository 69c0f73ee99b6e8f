//! Decodes a catalogue. The bytes of a catalogue come from an accelerator and are not trusted.

use super::{
    Catalogue, Direction, FunctionInfo, HEADER_BYTES, MAGIC, POOLED, ParamInfo, ParamKind, VERSION,
    is_printable,
};
use crate::immediate::FunctionCode;

/// The error for bytes that are not a catalogue of version 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// The region does not begin with the four bytes "NAAC".
    #[error("the region does not begin with a catalogue; the accelerator may not have one")]
    Magic,
    /// The catalogue has a version that this crate does not support. The value is the version of the
    /// catalogue.
    #[error("the accelerator's catalogue has version {0}, this side reads version {VERSION}")]
    Version(u16),
    /// The region is smaller than the catalogue.
    #[error("the catalogue has {needed} bytes, the region {actual}; map a larger one")]
    RegionTooSmall {
        /// The size in bytes of the whole catalogue, as its header says.
        needed: u32,
        /// The size in bytes of the region that contains the start of the catalogue.
        actual: usize,
    },
    /// The catalogue ends before the end of its header or of its last function.
    #[error("the accelerator's catalogue ends inside an entry")]
    Truncated,
    /// The catalogue has bytes after the data of its last function. The value is the number of these bytes.
    #[error("the accelerator's catalogue has {0} bytes after its last entry")]
    Trailing(usize),
    /// A field has a value that version 1 of the catalogue does not define.
    #[error("the accelerator's catalogue has {what} {value}, which has no meaning in version {VERSION}")]
    Value {
        /// The name of the field, for the text of the error.
        what: &'static str,
        /// The value of the field.
        value: u32,
    },
    /// The functions are not in the order of their codes. The value is the first code that is not higher than the code
    /// before it.
    #[error("the accelerator's catalogue has function {0} out of order")]
    Order(FunctionCode),
    /// A text is not valid UTF-8, or has a control character.
    #[error("a text in the accelerator's catalogue is not printable UTF-8")]
    Text,
}

/// The header, which is the first 16 bytes of a catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of functions in the catalogue.
    pub functions: u16,
    /// The size in bytes of the whole catalogue, including the header.
    pub bytes: u32,
}

impl Header {
    /// Decodes the header at the start of `region`.
    ///
    /// # Errors
    /// Returns an error if `region` does not begin with the header of a catalogue of version 1.
    pub fn decode(region: &[u8]) -> Result<Self, CatalogueError> {
        let mut reader = Reader(region);
        if reader.array() != Ok(MAGIC) {
            return Err(CatalogueError::Magic);
        }
        let version = reader.u16()?;
        if version != VERSION {
            return Err(CatalogueError::Version(version));
        }
        let functions = reader.u16()?;
        let bytes = reader.u32()?;
        match reader.u32()? {
            0 => Ok(Self { functions, bytes }),
            value => Err(CatalogueError::Value { what: "the reserved field", value }),
        }
    }
}

impl Catalogue {
    /// Decodes the catalogue at the start of `region`, which may be larger than the catalogue. The memory that decoding
    /// allocates is proportional to the number of bytes that were read, not to the lengths that the catalogue claims.
    ///
    /// # Errors
    /// Returns an error if `region` contains no catalogue, or if any part of the catalogue breaks the rules of version
    /// 1.
    pub fn decode(region: &[u8]) -> Result<Self, CatalogueError> {
        let Header { functions: count, bytes } = Header::decode(region)?;
        let whole = usize::try_from(bytes).ok().and_then(|bytes| region.get(..bytes));
        let whole = whole.ok_or(CatalogueError::RegionTooSmall { needed: bytes, actual: region.len() })?;
        let mut reader = Reader(whole.get(HEADER_BYTES..).ok_or(CatalogueError::Truncated)?);
        let mut functions: Vec<FunctionInfo> = Vec::new();
        for _ in 0..count {
            let function = FunctionInfo::decode(&mut reader)?;
            if functions.last().is_some_and(|former| former.code >= function.code) {
                return Err(CatalogueError::Order(function.code));
            }
            functions.push(function);
        }
        match reader.0.len() {
            0 => Ok(Self { functions }),
            rest => Err(CatalogueError::Trailing(rest)),
        }
    }
}

impl FunctionInfo {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, CatalogueError> {
        let [code, flags, parameters, name] = reader.array()?;
        let description = reader.u16()?;
        let reserved = reader.u16()?;
        let code = FunctionCode::new(code).ok_or(value("function code", code))?;
        if flags & !POOLED != 0 {
            return Err(value("flags", flags));
        }
        if reserved != 0 {
            return Err(value("a reserved field", reserved));
        }
        let name = text(reader, name.into())?;
        let description = text(reader, description.into())?;
        let parameters: Result<_, _> = (0..parameters).map(|_| ParamInfo::decode(reader)).collect();
        Ok(Self { code, name, description, pooled: flags & POOLED != 0, parameters: parameters? })
    }
}

impl ParamInfo {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, CatalogueError> {
        let [direction, kind, name, description] = reader.array()?;
        let known = Direction::ALL.get(usize::from(direction)).copied();
        let direction = known.ok_or(value("direction", direction))?;
        let &(kind, _) = ParamKind::ALL.get(usize::from(kind)).ok_or(value("kind", kind))?;
        Ok(Self {
            direction,
            kind,
            name: text(reader, name.into())?,
            description: text(reader, description.into())?,
        })
    }
}

fn value(what: &'static str, value: impl Into<u32>) -> CatalogueError {
    CatalogueError::Value { what, value: value.into() }
}

fn text(reader: &mut Reader<'_>, len: usize) -> Result<String, CatalogueError> {
    let text = str::from_utf8(reader.bytes(len)?).map_err(|_| CatalogueError::Text)?;
    if is_printable(text) { Ok(text.to_owned()) } else { Err(CatalogueError::Text) }
}

/// A reader of little-endian numbers. Each read returns an error if too few bytes are left.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], CatalogueError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(CatalogueError::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    fn bytes(&mut self, len: usize) -> Result<&'a [u8], CatalogueError> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(CatalogueError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, CatalogueError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, CatalogueError> {
        self.array().map(u32::from_le_bytes)
    }
}
