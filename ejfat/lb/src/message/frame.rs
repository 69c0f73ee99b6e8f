//! Messages in regions of memory: their length in front, so that what follows them does no harm.

use prost::{DecodeError, Message};

/// Why a region holds no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The region does not begin with a varint of at most 10 bytes.
    #[error("it does not begin with a message's length, a varint of at most 10 bytes")]
    NoLength,
    /// The message is longer than the rest of the region.
    #[error("a message of {claimed} bytes does not fit into the {held} bytes that follow its length")]
    Longer {
        /// The length of the message in bytes, by the varint.
        claimed: usize,
        /// The number of bytes that follow the varint in the region.
        held: usize,
    },
    /// The bytes are not a valid message of the expected type.
    #[error("the message is not of its kind: {0}")]
    Message(#[from] DecodeError),
}

/// A varint of its length, then the message.
pub fn encode(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

/// Reads the message in a region. The bytes behind the message are ignored.
///
/// # Errors
/// Fails if the region does not begin with a length, if the message is longer than the rest of the region, or if the
/// message is not of type `M`.
pub fn decode<M: Message + Default>(region: &[u8]) -> Result<M, FrameError> {
    let mut rest = region;
    let claimed = prost::decode_length_delimiter(&mut rest).map_err(|_| FrameError::NoLength)?;
    let message = rest.get(..claimed).ok_or(FrameError::Longer { claimed, held: rest.len() })?;
    Ok(M::decode(message)?)
}
