//! The text beside a recording of packets: where it comes from, and what of it differs by nature.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The JSON file of a recording of packets.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    /// The wire: the file's name without its number.
    pub(super) wire: String,
    /// The version and the commit that it was recorded with.
    pub(super) recorded_from: String,
    /// What the host does, for people.
    pub(super) what: String,
    /// Bytes of the server's messages that another run has other values for.
    pub(super) free: Vec<Free>,
    /// The message that is a catalogue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) catalogue: Option<MessageIndex>,
    /// What a server that speaks a later version of the wire answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) instead: Option<Instead>,
}

/// A message of the server. Connections and their messages count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MessageIndex {
    pub(super) connection: usize,
    pub(super) message: usize,
}

/// Bytes of a message's payload that are not compared.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Free {
    pub(super) connection: usize,
    pub(super) message: usize,
    /// The first byte, and the one behind the last.
    pub(super) bytes: Range<usize>,
    /// What they are, for people.
    pub(super) what: String,
}

/// The documented answer, at the place of a recorded message. All that the recording has before it stays as it is, and
/// after it the host disconnects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Instead {
    pub(super) connection: usize,
    pub(super) message: usize,
    /// The version of the project since which the answer is another one.
    pub(super) since: String,
    /// What the answer means, in words.
    pub(super) what: String,
    /// The immediate of the message, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) immediate: Option<u32>,
    /// The payload, in hexadecimal digits.
    #[serde(with = "crate::hex")]
    pub(super) payload: Vec<u8>,
}

impl Instead {
    pub(super) fn leave(&self) -> MessageIndex {
        MessageIndex { connection: self.connection, message: self.message }
    }
}

impl Description {
    /// What is not compared of a message.
    pub(super) fn free_in(&self, place: MessageIndex) -> impl Iterator<Item = &Free> {
        self.free
            .iter()
            .filter(move |free| (free.connection, free.message) == (place.connection, place.message))
    }
}
