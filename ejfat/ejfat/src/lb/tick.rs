//! Prefixes of ticks ([`TickPrefix`]), and the division of a range of ticks into prefixes ([`prefixes`]).

use std::ops::{Bound, RangeBounds};

use super::RuleError;

const BITS: u32 = u64::BITS;

/// A prefix of ticks: leading bits, which stand for all ticks that begin with these bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TickPrefix {
    // The order of the fields decides how prefixes are sorted: by their first tick, then by their length, with the
    // shortest prefix first.
    value: u64,
    length: u8,
}

impl TickPrefix {
    /// The prefix of no bits, which contains all ticks.
    pub const ALL: Self = Self { value: 0, length: 0 };

    /// Creates a prefix from the `length` leading bits of `value`. The bits of `value` behind the `length` leading bits
    /// must be 0.
    ///
    /// # Errors
    /// Fails with [`RuleError::PrefixLength`] if `length` is above 64, and with [`RuleError::PrefixBits`] if a bit
    /// behind the `length` leading bits is not 0.
    pub fn new(value: u64, length: u8) -> Result<Self, RuleError> {
        let free = BITS.checked_sub(u32::from(length)).ok_or(RuleError::PrefixLength(length))?;
        if value & low_bits(free) != 0 {
            return Err(RuleError::PrefixBits { value, length });
        }
        Ok(Self { value, length })
    }

    /// Returns the number of leading bits that are the same in all ticks of the prefix, from 0 to 64.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns the lowest tick of the prefix.
    pub fn first(self) -> u64 {
        self.value
    }

    /// Returns the highest tick of the prefix.
    pub fn last(self) -> u64 {
        self.value | low_bits(BITS - u32::from(self.length))
    }
}

fn low_bits(bits: u32) -> u64 {
    u64::MAX.checked_shr(BITS - bits).unwrap_or(0)
}

/// Returns the fewest disjoint prefixes that together make up a range of ticks, in ascending order. A range has at most
/// 126 prefixes. Each epoch rule has one prefix, so a range of ticks needs an epoch rule for each of its prefixes.
pub fn prefixes(ticks: impl RangeBounds<u64>) -> Vec<TickPrefix> {
    // The bounds have 128 bits, because the end of the range of all ticks, 2^64, does not fit into 64 bits.
    let mut from = match ticks.start_bound() {
        Bound::Included(&tick) => u128::from(tick),
        Bound::Excluded(&tick) => u128::from(tick) + 1,
        Bound::Unbounded => 0,
    };
    let end = match ticks.end_bound() {
        Bound::Included(&tick) => u128::from(tick) + 1,
        Bound::Excluded(&tick) => u128::from(tick),
        Bound::Unbounded => 1 << BITS,
    };
    let mut prefixes = Vec::new();
    while from < end {
        let bits = (end - from).ilog2().min(from.trailing_zeros());
        prefixes.push(TickPrefix { value: from as u64, length: (BITS - bits) as u8 });
        from += 1 << bits;
    }
    prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_knows_its_length_and_its_ends() {
        for length in 0..=64 {
            let prefix = TickPrefix::new(0, length).unwrap();
            assert_eq!((prefix.length(), prefix.first()), (length, 0));
            assert_eq!(prefix.last(), u64::MAX.checked_shr(length.into()).unwrap_or(0));
        }
        assert!(TickPrefix::new(0, 65).is_err() && TickPrefix::new(1, 63).is_err());
    }
}
