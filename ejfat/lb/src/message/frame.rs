//! Messages in regions of memory: their length in front, so that what follows them does no harm.

use prost::{DecodeError, Message};

/// Why a region holds no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("it does not begin with a message's length, a varint of at most 10 bytes")]
    NoLength,
    #[error("a message of {claimed} bytes does not fit into the {held} bytes that follow its length")]
    Longer { claimed: usize, held: usize },
    #[error("the message is not of its kind: {0}")]
    Message(#[from] DecodeError),
}

/// A varint of its length, then the message.
pub fn encode(message: &impl Message) -> Vec<u8> {
    message.encode_length_delimited_to_vec()
}

/// Bytes behind the message are not looked at.
pub fn decode<M: Message + Default>(region: &[u8]) -> Result<M, FrameError> {
    let mut rest = region;
    let claimed = prost::decode_length_delimiter(&mut rest).map_err(|_| FrameError::NoLength)?;
    let message = rest.get(..claimed).ok_or(FrameError::Longer { claimed, held: rest.len() })?;
    Ok(M::decode(message)?)
}
