//! Batches of changes, and their limits.

use std::{collections::BTreeSet, fmt};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// The most changes of one batch. When a reservation ends, all that depends on it ends too, so one request may change some thousands of
/// records, and they are stored together or not at all. A batch takes less than 6 MiB of memory, by [`MAX_BATCH_BYTES`].
///
/// A change is an operation of a transaction. A store in etcd, which takes 128 of them unless told otherwise, has to be started
/// with `--max-txn-ops` above this.
pub const MAX_CHANGES: usize = 8192;

/// The most bytes of all keys and values of one batch. A store in etcd takes requests of 1.5 MiB unless told otherwise, so it has to be
/// started with `--max-request-bytes` above this.
pub const MAX_BATCH_BYTES: usize = 5 << 20;

/// The number of a writer's turn: each writer claims a higher term than its predecessor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

/// The number of a batch in a store. Revisions rise from batch to batch, not necessarily by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What becomes of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key, which has 1 to [`MAX_KEY_BYTES`] bytes.
    pub key: Vec<u8>,
    /// The new value; without one the key is removed, if it is there.
    pub value: Option<Vec<u8>>,
}

/// Changes that are stored together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The term of the writer.
    pub term: Term,
    /// From one to [`MAX_CHANGES`], each of another key.
    pub changes: Vec<Change>,
}

/// A batch that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The revision that the store gave to the batch.
    pub revision: Revision,
    /// The batch as its writer appended it.
    pub batch: Batch,
}

/// Why a batch breaks a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBatch {
    /// The batch has no changes.
    #[error("it has no changes")]
    Empty,
    /// The batch has this number of changes, which is more than [`MAX_CHANGES`].
    #[error("it has {0} changes, more than {MAX_CHANGES}: split it")]
    TooManyChanges(usize),
    /// The keys and values of the batch have this number of bytes, which is more than [`MAX_BATCH_BYTES`].
    #[error("it has {0} bytes, more than {MAX_BATCH_BYTES}: split it")]
    TooLarge(usize),
    /// The change with this index has a key of 0 bytes.
    #[error("change {0} has a key without bytes")]
    EmptyKey(usize),
    /// The key of a change has more than [`MAX_KEY_BYTES`] bytes.
    #[error("the key of change {index} has {bytes} bytes, more than {MAX_KEY_BYTES}")]
    KeyTooLong {
        /// The index of the change in the batch.
        index: usize,
        /// The length of the key in bytes.
        bytes: usize,
    },
    /// The value of a change has more than [`MAX_VALUE_BYTES`] bytes.
    #[error("the value of change {index} has {bytes} bytes, more than {MAX_VALUE_BYTES}")]
    ValueTooLong {
        /// The index of the change in the batch.
        index: usize,
        /// The length of the value in bytes.
        bytes: usize,
    },
    /// The change with this index has the key of an earlier change of the batch.
    #[error("change {0} has the key of an earlier one")]
    RepeatedKey(usize),
}

impl Batch {
    /// Checks the limits and gives the number of bytes of all keys and values.
    ///
    /// # Errors
    /// Fails with the first limit that the batch breaks.
    pub fn check(&self) -> Result<usize, InvalidBatch> {
        if self.changes.is_empty() {
            return Err(InvalidBatch::Empty);
        }
        if self.changes.len() > MAX_CHANGES {
            return Err(InvalidBatch::TooManyChanges(self.changes.len()));
        }
        let mut keys = BTreeSet::new();
        for (index, Change { key, value }) in self.changes.iter().enumerate() {
            let value = value.as_ref().map_or(0, Vec::len);
            if key.is_empty() {
                return Err(InvalidBatch::EmptyKey(index));
            }
            if key.len() > MAX_KEY_BYTES {
                return Err(InvalidBatch::KeyTooLong { index, bytes: key.len() });
            }
            if value > MAX_VALUE_BYTES {
                return Err(InvalidBatch::ValueTooLong { index, bytes: value });
            }
            if !keys.insert(key) {
                return Err(InvalidBatch::RepeatedKey(index));
            }
        }
        let bytes = self.bytes();
        if bytes > MAX_BATCH_BYTES { Err(InvalidBatch::TooLarge(bytes)) } else { Ok(bytes) }
    }

    /// Bytes of memory: those of keys and values, and what each change takes beside them.
    pub(crate) fn memory(&self) -> usize {
        self.bytes() + self.changes.len() * size_of::<Change>()
    }

    /// Bytes of all keys and values.
    fn bytes(&self) -> usize {
        self.changes.iter().map(|c| c.key.len() + c.value.as_ref().map_or(0, Vec::len)).sum()
    }
}
