//! Packet sequence numbers (PSNs), which have 24 bits and are compared as serial numbers (IBTA vol. 1, 9.7.2).

/// A 24-bit packet sequence number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Psn(u32);

impl Psn {
    /// The mask of the 24 bits of a PSN.
    pub const MASK: u32 = 0xff_ffff;

    /// Makes a PSN of the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MASK)
    }

    /// Returns the PSN as a number below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN of the packet that comes `n` packets after the packet with this PSN.
    pub const fn plus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_add(n))
    }

    /// Returns the PSN of the packet that comes `n` packets before the packet with this PSN.
    pub const fn minus(self, n: u32) -> Self {
        Self::new(self.0.wrapping_sub(n))
    }

    /// Returns the distance from `earlier` to `self`: 0 to 2^23 - 1 if `self` is equal or later, and a negative number
    /// if `self` is earlier.
    pub const fn since(self, earlier: Self) -> i32 {
        // The shifts sign-extend the 24-bit difference.
        ((self.0.wrapping_sub(earlier.0) << 8) as i32) >> 8
    }
}

#[cfg(test)]
mod tests {
    use super::Psn;

    #[test]
    fn order_survives_the_wrap() {
        let last = Psn::new(0xff_ffff);
        assert_eq!(last.plus(1), Psn::new(0));
        assert_eq!(Psn::new(3).since(last), 4);
        assert_eq!(last.since(Psn::new(3)), -4);
        assert_eq!(Psn::new(2).minus(5).value(), 0xff_fffd);
    }

    #[test]
    fn half_the_space_away_counts_as_before() {
        assert_eq!(Psn::new(0x80_0000).since(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).since(Psn::new(0)), 0x7f_ffff);
    }
}
