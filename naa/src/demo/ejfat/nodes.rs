//! The processes of the demonstration: what they do, and how they are started and read.

mod child;
mod crowd;
mod sender;
mod worker;

pub(super) use child::{Balancer, Sender, Worker};
pub(in crate::demo) use crowd::{CROWD, CROWD_GIGABITS, Crowd};
pub(super) use sender::{Args as SenderArgs, run as send};
pub(super) use worker::{Args as WorkerArgs, run as work};

use serde::{Deserialize, Serialize};

/// An event as its sender sent it or its worker received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) bytes: u64,
    #[serde(with = "digest")]
    pub(super) sha256: [u8; 32],
}

/// An event and the tick with which it was sent. Workers do not see ticks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Ticked {
    #[serde(flatten)]
    pub(super) told: Told,
    #[serde(default)]
    pub(super) tick: u64,
}

/// The last line of a process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sums {
    pub(super) events: u64,
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// Segments that a worker dropped. 0 for senders.
    pub(super) dropped: u64,
    pub(super) incomplete: u64,
    /// Events that a worker gave up to make room for others. 0 for senders.
    #[serde(default)]
    pub(super) evicted: u64,
    /// Bytes in segments of events that are not complete.
    pub(super) placed_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Line {
    Event(Ticked),
    End(Sums),
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    naa_server::functions::sha256::compute(bytes)
}

mod digest {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(digest: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&crate::show::hex(digest))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut digest = [0; 32];
        if text.len() != 64 || !text.is_ascii() {
            return Err(D::Error::custom("64 hexadecimal digits are expected"));
        }
        for (byte, at) in digest.iter_mut().zip((0..64).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(D::Error::custom)?;
        }
        Ok(digest)
    }
}
