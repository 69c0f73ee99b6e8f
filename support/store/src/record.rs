//! What is in a row: a version, a checksum over key and value, the revision of the last change, the value.
//!
//! SQLite checks its structure but not the bytes of keys and values. The checksum of each row finds those that changed,
//! and [`State`], which counts the rows and sums their checksums, finds rows that are missing or came back from an earlier time.

use crate::{Revision, Term};

/// The version of both formats.
const VERSION: u8 = 1;

/// Why a row is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRecord {
    /// The row has this number of bytes, which is too few or too many.
    #[error("it has {0} bytes, which is too few or too many")]
    Length(usize),
    /// The row has this version number, which this program does not know.
    #[error("it has version {0}, which is unknown")]
    Version(u8),
    /// The checksum in the row differs from the checksum of its key and its bytes.
    #[error("its checksum is wrong")]
    Checksum,
}

/// A value as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The revision of the batch that stored it.
    pub revision: Revision,
    /// The value as the writer appended it.
    pub value: &'a [u8],
    /// The checksum over version, key, revision and value.
    pub checksum: u32,
}

impl<'a> Record<'a> {
    /// The bytes of the row of `key`, and their checksum.
    pub fn encode(key: &[u8], revision: Revision, value: &[u8]) -> (Vec<u8>, u32) {
        row(key, &revision.0.to_be_bytes(), value)
    }

    /// Reads the row of `key`.
    ///
    /// # Errors
    /// Fails with the first fault of the row: a wrong length, an unknown version or a wrong checksum.
    pub fn decode(key: &[u8], bytes: &'a [u8]) -> Result<Self, InvalidRecord> {
        let (stored, rest) = checked(key, bytes)?;
        let (revision, value) = rest.split_first_chunk().ok_or(InvalidRecord::Length(bytes.len()))?;
        Ok(Self { revision: Revision(u64::from_be_bytes(*revision)), value, checksum: stored })
    }
}

/// What is known of all rows together. It is stored with each batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The newest claimed term.
    pub term: Term,
    /// The revision of the newest batch.
    pub revision: Revision,
    /// The number of rows.
    pub rows: u64,
    /// The sum of the checksums of all rows, modulo 2^64.
    pub sum: u64,
}

impl State {
    /// Returns the bytes in which the state is stored: a version, a checksum and the four numbers.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.term.0, self.revision.0, self.rows, self.sum].map(u64::to_be_bytes);
        row(&[], numbers.as_flattened(), &[]).0
    }

    /// Reads the state from `bytes`.
    ///
    /// # Errors
    /// Fails with the first fault of `bytes`: a wrong length, an unknown version or a wrong checksum.
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidRecord> {
        let (_, rest) = checked(&[], bytes)?;
        let (numbers, []) = rest.as_chunks::<8>() else { return Err(InvalidRecord::Length(bytes.len())) };
        let [term, revision, rows, sum] = numbers else { return Err(InvalidRecord::Length(bytes.len())) };
        let [term, revision, rows, sum] = [term, revision, rows, sum].map(|n| u64::from_be_bytes(*n));
        Ok(Self { term: Term(term), revision: Revision(revision), rows, sum })
    }

    pub(crate) fn add(&mut self, checksum: u32) {
        self.rows += 1;
        self.sum = self.sum.wrapping_add(checksum.into());
    }

    /// Takes a row out of the counts; false if there is none left to take out.
    pub(crate) fn remove(&mut self, checksum: u32) -> bool {
        let Some(rows) = self.rows.checked_sub(1) else { return false };
        self.rows = rows;
        self.sum = self.sum.wrapping_sub(checksum.into());
        true
    }
}

/// A version, a checksum and what follows these. Returns the checksum, too.
fn row(key: &[u8], head: &[u8], value: &[u8]) -> (Vec<u8>, u32) {
    let mut bytes = [&[VERSION, 0, 0, 0, 0][..], head, value].concat();
    let checksum = checksum(key, &bytes);
    bytes[1..5].copy_from_slice(&checksum.to_be_bytes());
    (bytes, checksum)
}

/// The stored checksum, if it and the version are right, and what follows it.
fn checked<'a>(key: &[u8], bytes: &'a [u8]) -> Result<(u32, &'a [u8]), InvalidRecord> {
    let (&version, rest) = bytes.split_first().ok_or(InvalidRecord::Length(0))?;
    if version != VERSION {
        return Err(InvalidRecord::Version(version));
    }
    let (stored, rest) = rest.split_first_chunk().ok_or(InvalidRecord::Length(bytes.len()))?;
    let stored = u32::from_be_bytes(*stored);
    if stored == checksum(key, bytes) { Ok((stored, rest)) } else { Err(InvalidRecord::Checksum) }
}

/// CRC-32 over the length of the key, the key, the version, and everything behind the checksum.
fn checksum(key: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_be_bytes());
    hasher.update(key);
    hasher.update(&bytes[..1]);
    hasher.update(&bytes[5..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for value in [&b""[..], b"x", &[7; 1000]] {
            let (bytes, checksum) = Record::encode(b"key", Revision(9), value);
            assert_eq!(Record::decode(b"key", &bytes), Ok(Record { revision: Revision(9), value, checksum }));
        }
        let state = State { term: Term(1), revision: Revision(2), rows: 3, sum: u64::MAX };
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }

    #[test]
    fn each_changed_bit_is_found() {
        let (record, _) = Record::encode(b"key", Revision(9), b"value");
        let state = State { term: Term(1), revision: Revision(2), rows: 3, sum: 4 }.encode();
        for bit in 0..record.len() * 8 {
            let mut changed = record.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::decode(b"key", &changed).is_err(), "bit {bit}");
        }
        for bit in 0..state.len() * 8 {
            let mut changed = state.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(State::decode(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_row_under_another_key_or_cut_short_is_refused() {
        let (record, _) = Record::encode(b"key", Revision(9), b"value");
        assert_eq!(Record::decode(b"kez", &record), Err(InvalidRecord::Checksum));
        for len in 0..record.len() {
            assert!(Record::decode(b"key", &record[..len]).is_err(), "{len} bytes");
        }
        let state = State::default().encode();
        for len in 0..state.len() {
            assert!(State::decode(&state[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let (mut record, _) = Record::encode(b"key", Revision(9), b"value");
        record[0] = 2;
        assert_eq!(Record::decode(b"key", &record), Err(InvalidRecord::Version(2)));
    }
}
