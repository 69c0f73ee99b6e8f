//! Internet checksums that follow a change of what they cover.

use std::ops::Add;

/// What a change adds to a one's complement sum.
///
/// # Source
/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change(u32);

impl Change {
    /// Bytes that go. Like all bytes here an even number, at an even offset of what the checksum covers.
    pub(super) fn removed(bytes: &[u8]) -> Self {
        Self(words(bytes).map(|word| u32::from(!word)).sum())
    }

    fn added(bytes: &[u8]) -> Self {
        Self(words(bytes).map(u32::from).sum())
    }

    pub(super) fn apply(self, checksum: u16) -> u16 {
        let mut sum = self.0 + u32::from(!checksum);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }
}

impl Add for Change {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Overwrites bytes of a header.
pub(super) fn put(header: &mut [u8], at: usize, new: &[u8]) -> Change {
    let old = &mut header[at..at + new.len()];
    let change = Change::removed(old) + Change::added(new);
    old.copy_from_slice(new);
    change
}
