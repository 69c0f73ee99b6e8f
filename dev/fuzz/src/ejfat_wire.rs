//! EJFAT's headers: what is read can be written and read again.

use ejfat::wire::{LbHeader, ReHeader, Select, SyncHeader, Versions};

pub fn run(data: &[u8]) {
    if let Ok((header, rest)) = LbHeader::decode(data) {
        let mut expected = data[..LbHeader::LEN].to_vec();
        if let Select::V2 { .. } = header.select {
            expected[4..6].fill(0);
        }
        assert_eq!(header.encode()[..], expected);
        assert_eq!(rest.len() + LbHeader::LEN, data.len());
    }
    if let Ok((header, payload)) = ReHeader::decode(data, Versions::default()) {
        let again = [&header.encode()[..], payload].concat();
        assert_eq!(again[2..], data[2..]);
        assert_eq!(ReHeader::decode(&again, Versions::ONE), Ok((header, payload)));
    }
    if let Ok(header) = SyncHeader::decode(data) {
        let mut expected = data.to_vec();
        expected[3] = 0;
        assert_eq!(header.encode()[..], expected);
    }
}
