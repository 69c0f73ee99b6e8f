//! The abilities of a side, which are part of the private data in the CM messages that set up a connection.
//! Abilities are this project's extension of MRSP. Programs that do not know abilities send none, and ignore
//! the abilities that they receive.
//!
//! ```text
//! "naa" 0 | version u8 = 1 | slots u8 | zero u16
//! ```
//!
//! In the private data, the bytes after the abilities are reserved for later versions. The CM pads private data with
//! zeros, so the receiver gets more bytes than the sender passed to the CM.

const MARK: [u8; 4] = *b"naa\0";
const VERSION: u8 = 1;

/// The abilities of a side that go beyond MRSP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// The maximum number of layout entries that the side accepts in a [layout block](crate::layout::block). The value
    /// 0 means that the side accepts no layout blocks.
    pub slots: u8,
}

impl Abilities {
    /// Returns the 8 bytes of the abilities, with which private data begins.
    pub fn encode(self) -> [u8; 8] {
        let [a, b, c, d] = MARK;
        [a, b, c, d, VERSION, self.slots, 0, 0]
    }

    /// Decodes the abilities in `private_data`. If `private_data` contains no abilities, all fields of the result are
    /// 0. Abilities of a later version are decoded like abilities of version 1, because later versions must keep the
    /// fields of version 1.
    pub fn decode(private_data: &[u8]) -> Self {
        match private_data.split_first_chunk() {
            Some((&MARK, &[version, slots, ..])) if version >= VERSION => Self { slots },
            _ => Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_says_so_has_abilities() {
        let some = Abilities { slots: 40 };
        assert_eq!(some.encode(), *b"naa\0\x01\x28\0\0");
        for abilities in [some, Abilities::default()] {
            let padded = [&abilities.encode()[..], &[0; 188]].concat();
            assert_eq!(Abilities::decode(&padded), abilities);
        }
        let none: [&[u8]; 5] = [b"", b"naa", b"naa\0\x01", b"naa\0\0\x01\0\0", &[0xff; 196]];
        assert!(none.iter().all(|bytes| Abilities::decode(bytes).slots == 0));
        assert_eq!(Abilities::decode(b"naa\0\x02\x03").slots, 3);
    }
}
