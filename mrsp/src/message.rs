//! The three messages of MRSP.

use std::fmt;

use crate::{
    codec::{RegionRequests, RemoteRegions},
    layout::block::LayoutEntries,
};

/// The reason why an accelerator refuses a host's regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// Code 1: the accelerator has too little memory, or a region reaches beyond the accelerator's memory.
    Memory,
    /// Code 2: an address, or another part of a region's description, is invalid.
    Address,
    /// Code 3: the number of regions is not supported.
    TooManyRegions,
    /// An error code that MRSP does not define.
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

/// A decoded MRSP message. The length of the message was checked, but not the values in its regions and layout
/// entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// The message ERR, type 0, which both sides may send.
    Error(ErrorCode),
    /// The message AAR, type 1, from host to accelerator.
    AdvertiseAndRequest(RegionRequests<'a>),
    /// An AAR with a layout block, which is an extension of MRSP.
    Arranged(RegionRequests<'a>, LayoutEntries<'a>),
    /// The message A, type 2, from accelerator to host, with the requested regions that are not INTERNAL, in the order
    /// of the AAR.
    Advertisement(RemoteRegions<'a>),
}

impl Message<'_> {
    /// Returns the name of the message's type, for use in the texts of errors.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Error(_) => "an error",
            Self::AdvertiseAndRequest(_) => "an advertisement and request",
            Self::Arranged(..) => "an advertisement and request with a layout",
            Self::Advertisement(_) => "an advertisement",
        }
    }
}
