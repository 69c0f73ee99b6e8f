//! Updates of Internet checksums after a change of the data over which the checksums are computed.

use std::ops::Add;

/// The number that a change of bytes adds to a one's complement sum.
///
/// # Source
/// RFC 1624, equation 3, updates a checksum: HC' = ~(~HC + ~m + m'). Here HC is the old checksum, and m is the old
/// 16-bit word. HC' is the new checksum, and m' is the new word. By RFC 1071, 2 (B), a one's complement sum can be
/// computed in either byte order. By RFC 1071, 2 (C), a one's complement sum can be computed from words that are longer
/// than 16 bits. So a `Change` is the sum of ~m for the old words and m' for the new words. The words are in native
/// byte order. Each word has 32 bits, but the last word has 16 bits if the number of bytes is not a multiple of 4.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change(u64);

impl Change {
    /// Returns the change of a checksum when `bytes` are removed from the data over which the checksum is computed. A
    /// checksum is computed from 16-bit words, so the number of removed bytes must be even, and their offset in this
    /// data must be even, too.
    #[inline]
    pub(super) fn removed(bytes: &[u8]) -> Self {
        Self(sum(bytes, |word| !word, |word| !word))
    }

    #[inline]
    fn added(bytes: &[u8]) -> Self {
        Self(sum(bytes, |word| word, |word| word))
    }

    #[inline]
    pub(super) fn apply(self, checksum: [u8; 2]) -> [u8; 2] {
        let mut sum = self.0 + u64::from(!u16::from_ne_bytes(checksum));
        sum = (sum & 0xffff_ffff) + (sum >> 32);
        // Each addition in the loop adds the bits above the lowest 16 bits to the lowest 16 bits. The variable `sum`
        // has at most 33 bits before the loop, 18 bits after the first addition, 17 bits after the second addition, and
        // 16 bits after the third addition.
        for _ in 0..3 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (!(sum as u16)).to_ne_bytes()
    }
}

impl Add for Change {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

#[inline]
fn sum(bytes: &[u8], word: impl Fn(u32) -> u32, last: impl Fn(u16) -> u16) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let words: u64 = words.iter().map(|&bytes| u64::from(word(u32::from_ne_bytes(bytes)))).sum();
    match *rest {
        [high, low] => words + u64::from(last(u16::from_ne_bytes([high, low]))),
        _ => words,
    }
}

/// Overwrites bytes of a header, and returns the change for the checksum.
#[inline(always)]
pub(super) fn put<const N: usize>(header: &mut [u8], at: usize, new: [u8; N]) -> Change {
    let old = &mut header[at..at + N];
    let change = Change::removed(old) + Change::added(&new);
    old.copy_from_slice(&new);
    change
}
