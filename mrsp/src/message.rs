//! The three messages of MRSP.

use std::fmt;

use crate::{
    codec::{RegionRequests, RemoteRegions},
    layout::block::Slots,
};

/// Why an accelerator refuses the regions a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// 1: not enough memory, or address and size reach beyond it.
    Memory,
    /// 2: an address, or what else the message says of a region, is invalid.
    Address,
    /// 3: a number of regions that cannot be had.
    TooManyRegions,
    /// Any other number.
    Other(u8),
}

impl From<u8> for ErrorCode {
    fn from(code: u8) -> Self {
        match code {
            1 => Self::Memory,
            2 => Self::Address,
            3 => Self::TooManyRegions,
            other => Self::Other(other),
        }
    }
}

impl From<ErrorCode> for u8 {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Memory => 1,
            ErrorCode::Address => 2,
            ErrorCode::TooManyRegions => 3,
            ErrorCode::Other(other) => other,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("not enough memory (MRSP error 1)"),
            Self::Address => f.write_str("invalid address or region (MRSP error 2)"),
            Self::TooManyRegions => f.write_str("too many regions (MRSP error 3)"),
            Self::Other(code) => write!(f, "MRSP error {code}"),
        }
    }
}

/// A message whose length fits its count. What its entries say is not judged here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// ERR, type 0, either way.
    Error(ErrorCode),
    /// AAR, type 1, from host to accelerator.
    AdvertiseAndRequest(RegionRequests<'a>),
    /// The same with a layout block, an extension.
    Arranged(RegionRequests<'a>, Slots<'a>),
    /// A, type 2, from accelerator to host: the regions asked for that are not INTERNAL, in the same order.
    Advertisement(RemoteRegions<'a>),
}

impl Message<'_> {
    /// For error messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Error(_) => "an error",
            Self::AdvertiseAndRequest(_) => "an advertisement and request",
            Self::Arranged(..) => "an advertisement and request with a layout",
            Self::Advertisement(_) => "an advertisement",
        }
    }
}
