//! Encodes and decodes MRSP messages.
//!
//! ```text
//! header   type u8 | count (ERR: code) u8 | padding u16
//! AAR      flags u8, accelerator address u56 | host address u64 | rkey u32 | size u32     24 bytes each
//! A        address u64 | rkey u32 | size u32                                              16 bytes each
//! ```
//!
//! A [layout block](crate::layout::block), which is an extension of MRSP, may follow an AAR.
//!
//! An AAR has one entry for each requested region, and an A has one entry for each granted region that is not internal.
//! A message must have exactly as many entries as the count in its header says. The C library checks only the count in
//! the header of a message, not the length of the message. A message with too few entries therefore makes the C library
//! read beyond its buffer. The decoder accepts unknown flag bits and every value of address, RKey and size. The decoder
//! accepts any bytes as padding, because the C library does not clear the padding of an ERR.

use crate::{
    layout::block::{self, LayoutEntry},
    message::{ErrorCode, Message},
    region::{MAX_REGIONS, NaaAddress, RegionFlags, RegionRequest, RemoteRegion},
};

const ERR: u8 = 0;
const AAR: u8 = 1;
const ADVERTISEMENT: u8 = 2;
const REQUEST_BYTES: usize = 24;

/// The error for bytes that are not an MRSP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message is shorter than its header of 4 bytes. The variant contains the length of the message in bytes.
    #[error("an MRSP message of {0} bytes is shorter than its header")]
    Short(usize),
    /// The message has a type that MRSP does not define. The variant contains the type of the message.
    #[error("MRSP messages of type {0} do not exist")]
    Type(u8),
    /// The length of the message is not the length that its header requires.
    #[error("the length of the MRSP message does not fit its count: {actual} bytes instead of {expected}")]
    Length {
        /// The length in bytes that the header of the message requires.
        expected: usize,
        /// The length of the message in bytes.
        actual: usize,
    },
}

/// The error for a message that would have more regions or layout entries than its 8-bit count can express. The field
/// contains the number of regions or layout entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} regions or layout entries do not fit into a message, {MAX_REGIONS} do")]
pub struct TooManyEntries(pub usize);

/// The region requests of an AAR, as received and not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionRequests<'a>(&'a [[[u8; 8]; 3]]);

impl<'a> RegionRequests<'a> {
    /// Returns the number of requested regions, including internal regions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the AAR requests no region.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator that decodes the region requests one by one, in the order of the AAR.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RegionRequest> + Clone + use<'a> {
        self.0.iter().map(|words| {
            let [info, addr, rest] = words.map(u64::from_be_bytes);
            RegionRequest {
                flags: RegionFlags::from_bits((info >> 56) as u8),
                naa_addr: NaaAddress::truncate(info),
                host: region([addr, rest]),
            }
        })
    }
}

/// The announced regions of an advertisement (A), as received and not yet decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegions<'a>(&'a [[[u8; 8]; 2]]);

impl<'a> RemoteRegions<'a> {
    /// Returns the number of announced regions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if the advertisement announces no region.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an iterator that decodes the announced regions one by one, in the order of the advertisement.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RemoteRegion> + Clone + use<'a> {
        self.0.iter().map(|words| region(words.map(u64::from_be_bytes)))
    }
}

fn region([addr, rest]: [u64; 2]) -> RemoteRegion {
    RemoteRegion { addr, rkey: (rest >> 32) as u32, size: rest as u32 }
}

fn words(region: &RemoteRegion) -> [u64; 2] {
    [region.addr, u64::from(region.rkey) << 32 | u64::from(region.size)]
}

/// Decodes a message without allocating memory.
///
/// # Errors
/// Returns an error if `bytes` is not exactly one message of a known type.
pub fn decode(bytes: &[u8]) -> Result<Message<'_>, DecodeError> {
    let Some((&[kind, count, _, _], body)) = bytes.split_first_chunk() else {
        return Err(DecodeError::Short(bytes.len()));
    };
    match kind {
        ERR => entries::<1>(0, body).map(|_| Message::Error(count.into())),
        AAR => request(count, body),
        ADVERTISEMENT => entries(count, body).map(|entries| Message::Advertisement(RemoteRegions(entries))),
        other => Err(DecodeError::Type(other)),
    }
}

/// Decodes an AAR, including its layout block if the message has one.
fn request(count: u8, body: &[u8]) -> Result<Message<'_>, DecodeError> {
    if let Some((regions, rest)) = body.split_at_checked(usize::from(count) * REQUEST_BYTES)
        && let Some(layout) = block::decode(rest)
    {
        return entries(count, regions).map(|entries| Message::Arranged(RegionRequests(entries), layout));
    }
    entries(count, body).map(|entries| Message::AdvertiseAndRequest(RegionRequests(entries)))
}

/// Splits the body of a message into `count` entries. Each entry describes one region in `WORDS` words of 64 bits.
fn entries<const WORDS: usize>(count: u8, body: &[u8]) -> Result<&[[[u8; 8]; WORDS]], DecodeError> {
    let expected = usize::from(count) * WORDS * 8;
    if body.len() != expected {
        return Err(DecodeError::Length { expected: 4 + expected, actual: body.len().saturating_add(4) });
    }
    Ok(body.as_chunks().0.as_chunks().0)
}

/// Encodes an AAR for `regions`. By convention, `regions` has the parameters before the internal regions.
///
/// # Errors
/// Returns an error if there are more than 255 regions.
pub fn encode_request(regions: &[RegionRequest]) -> Result<Vec<u8>, TooManyEntries> {
    encode(AAR, regions, |region| {
        let [addr, rest] = words(&region.host);
        [u64::from(region.flags.bits()) << 56 | region.naa_addr.get(), addr, rest]
    })
}

/// Encodes an AAR for `regions`, followed by a layout block with the layout entries `entries`.
///
/// # Errors
/// Returns an error if there are more than 255 regions or more than 255 layout entries.
pub fn encode_arranged(
    regions: &[RegionRequest],
    entries: &[LayoutEntry],
) -> Result<Vec<u8>, TooManyEntries> {
    let mut message = encode_request(regions)?;
    block::encode(entries, &mut message)?;
    Ok(message)
}

/// Encodes an advertisement (A) for `regions`.
///
/// # Errors
/// Returns an error if there are more than 255 regions.
pub fn encode_advertisement(regions: &[RemoteRegion]) -> Result<Vec<u8>, TooManyEntries> {
    encode(ADVERTISEMENT, regions, words)
}

/// Encodes an ERR.
pub fn encode_error(code: ErrorCode) -> [u8; 4] {
    [ERR, code.into(), 0, 0]
}

fn encode<T, const WORDS: usize>(
    kind: u8,
    entries: &[T],
    words: impl Fn(&T) -> [u64; WORDS],
) -> Result<Vec<u8>, TooManyEntries> {
    let count = u8::try_from(entries.len()).map_err(|_| TooManyEntries(entries.len()))?;
    let mut bytes = Vec::with_capacity(4 + entries.len() * WORDS * 8);
    bytes.extend([kind, count, 0, 0]);
    for entry in entries {
        bytes.extend(words(entry).map(u64::to_be_bytes).as_flattened());
    }
    Ok(bytes)
}
