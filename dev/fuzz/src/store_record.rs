//! Rows of a store: what is read is written so that it is the same bytes.

use naa_store::record::{Record, State};

pub fn run(data: &[u8]) {
    if let Ok(state) = State::decode(data) {
        assert_eq!(state.encode(), data);
    }
    // The first byte says how long the key is.
    let Some((&len, rest)) = data.split_first() else { return };
    let Some((key, bytes)) = rest.split_at_checked(len.into()) else { return };
    let Ok(record) = Record::decode(key, bytes) else {
        // Random bytes hardly ever have the right checksum, so they are a value, too.
        let (written, checksum) = Record::encode(key, naa_store::Revision(number_of(bytes)), bytes);
        let read = Record::decode(key, &written).expect("what was written");
        assert_eq!((read.value, read.checksum), (bytes, checksum));
        return;
    };
    assert_eq!(Record::encode(key, record.revision, record.value), (bytes.to_vec(), record.checksum));
}

/// Some number that follows from the bytes.
fn number_of(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
}
