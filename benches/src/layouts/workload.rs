//! How much a workload moves, and its name.

use std::fmt;

use mrsp::{Layout, RegionFlags};

use super::point::{Direction, Sizes, Workload};

impl Workload {
    /// Bytes of all parameters.
    pub(crate) fn total(&self) -> u64 {
        u64::from(self.params) * self.bytes
    }

    /// The flags of each parameter.
    pub(crate) fn flags(&self) -> RegionFlags {
        match self.direction {
            Direction::In => RegionFlags::INPUT,
            Direction::Out => RegionFlags::OUTPUT,
            Direction::Both => RegionFlags::INPUT | RegionFlags::OUTPUT,
        }
    }

    /// How many of its parameters, of these sizes, a layout copies.
    pub(crate) fn copied(&self, layout: Layout, sizes: &[u64]) -> usize {
        let copies = |&&bytes: &&u64| bytes.try_into().is_ok_and(|bytes| layout.copies(self.flags(), bytes));
        sizes.iter().filter(copies).count()
    }

    /// Bytes of payload that a call moves in both directions.
    pub(crate) fn moved(&self) -> u64 {
        self.total() * if self.direction == Direction::Both { 2 } else { 1 }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, wait, params, .. } = self;
        let sizes = match self.sizes {
            Sizes::Equal => "",
            Sizes::Mixed => " mixed",
        };
        let direction = match self.direction {
            Direction::In => "in",
            Direction::Out => "out",
            Direction::Both => "in and out",
        };
        write!(f, "{provider}, {wait}: {params} x {}{sizes} {direction}", bytes(self.bytes))
    }
}

/// A number of bytes as text, in the largest unit of which it is a multiple.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    whole.map_or_else(|| format!("{bytes} B"), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(params: u16, bytes: u64, sizes: Sizes) -> Workload {
        let (provider, wait, direction) = ("embedded".into(), "spin".into(), Direction::Both);
        Workload { provider, wait, sizes, params, bytes, direction }
    }

    #[test]
    fn names_are_short() {
        assert_eq!(workload(31, 64, Sizes::Equal).to_string(), "embedded, spin: 31 x 64 B in and out");
        let out = Workload { direction: Direction::Out, ..workload(4, 1 << 20, Sizes::Mixed) };
        assert_eq!(out.to_string(), "embedded, spin: 4 x 1 MiB mixed out");
        assert_eq!(
            (out.total(), out.moved(), workload(4, 64, Sizes::Equal).moved()),
            (4 << 20, 4 << 20, 512)
        );
        assert_eq!([1984, 4096, 3 << 30].map(bytes), ["1984 B", "4 KiB", "3 GiB"]);
    }
}
