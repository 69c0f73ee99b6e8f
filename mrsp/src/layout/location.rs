//! Places parameters in the accelerator's regions.

use super::{ALIGNMENT, Layout, block::MAX_ENTRIES};
use crate::region::{MAX_REGION_BYTES, RegionFlags};

/// The location of a parameter in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParamLocation {
    /// The number of the region in the order of the AAR, counted from 0.
    pub region: u8,
    /// The offset in bytes of the parameter's first byte in the region, a multiple of [`ALIGNMENT`].
    pub offset: u32,
}

/// The locations of all parameters of a session in the accelerator's regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The layout for which the locations were computed.
    pub layout: Layout,
    /// The size of each region in bytes.
    pub regions: Vec<u32>,
    /// The location of each parameter, in the order of the parameters.
    pub places: Vec<ParamLocation>,
    /// The parameters that the host copies through its staging region lie at the start of region 0. `staged` is the
    /// size of this part of region 0 in bytes.
    pub staged: u32,
}

impl Placed {
    /// Returns the size in bytes of the staging region, which the host has in addition to the regions of its
    /// parameters. The parameters that the host copies through the staging region lie there at the same
    /// offsets as in the accelerator's region 0. The end of the staging region contains zeros, which the host
    /// sends for the gaps between parameters.
    pub fn staging_bytes(&self) -> u32 {
        match self.layout {
            Layout::Packed { .. } | Layout::Gathered => self.zeros() + ALIGNMENT,
            Layout::Symmetric | Layout::Asymmetric => 0,
        }
    }

    /// Returns the offset in the staging region of the zero bytes that the host sends for the gaps between parameters.
    pub fn zeros(&self) -> u32 {
        self.staged.next_multiple_of(ALIGNMENT)
    }

    /// Returns true if the host copies the parameter of `bytes` bytes at `place` through its staging region.
    pub fn is_staged(&self, place: ParamLocation, bytes: u32) -> bool {
        place.region == 0 && u64::from(place.offset) + u64::from(bytes) <= u64::from(self.staged)
    }
}

/// The error for parameters to which [`place`] can give no locations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unplaceable {
    /// The session has more parameters than a layout block can have layout entries. The value is the number of
    /// parameters.
    #[error("{0} parameters are more than the {MAX_ENTRIES} of a layout")]
    TooMany(usize),
    /// The parameters need a region whose number is above 255, which [`ParamLocation::region`] cannot express.
    #[error("the parameters take more regions than there can be")]
    TooLarge,
}

/// Chooses the locations of a session's parameters in the accelerator's regions. `params` has the flags and the size in
/// bytes of each parameter. Each size must be at most 2 GiB.
///
/// The host copies some parameters through its staging region, as [`Layout::copies`] decides. These parameters lie
/// before all other parameters. In each region, the parameters that the host sends with every call lie side by side. In
/// each region, the outputs that the host copies through its staging region lie side by side. The other outputs of a
/// region also lie side by side.
///
/// # Errors
/// Returns an error if there are too many parameters, or if the parameters need too many regions.
pub fn place(layout: Layout, params: &[(RegionFlags, u32)]) -> Result<Placed, Unplaceable> {
    if params.len() > MAX_ENTRIES {
        return Err(Unplaceable::TooMany(params.len()));
    }
    let mut order: Vec<_> = (0..params.len()).collect();
    order.sort_by_key(|&param| {
        let (flags, bytes) = params[param];
        let copied = layout.copies(flags, bytes);
        (!copied, rank(flags, copied), param)
    });
    let places = vec![ParamLocation::default(); params.len()];
    let mut placed = Placed { layout, regions: vec![0], places, staged: 0 };
    for param in order {
        let (flags, bytes) = params[param];
        let place = next(&mut placed.regions, bytes).ok_or(Unplaceable::TooLarge)?;
        placed.places[param] = place;
        if layout.copies(flags, bytes) && place.region == 0 {
            placed.staged = place.offset + bytes;
        }
    }
    Ok(placed)
}

/// Returns a key by which [`place`] sorts parameters. [`place`] first divides the parameters into two groups: the
/// parameters that the host copies through its staging region (`copied` is true), and all other parameters. Then
/// [`place`] sorts the parameters of each group by their keys, into the following order:
///
/// | parameters | order |
/// |---|---|
/// | copied | never sent, single-send inputs, outputs, single-send in-out parameters, in-out parameters, inputs |
/// | not copied | inputs, in-out parameters, single-send in-out parameters, outputs, single-send inputs, never sent |
///
/// The parameters that the host sends with every call come last in the group of copied parameters, and first in the
/// other group. [`place`] puts the group of copied parameters before the other group, so the parameters that the host
/// sends with every call lie side by side.
fn rank(flags: RegionFlags, copied: bool) -> u8 {
    let once = flags.contains(RegionFlags::SINGLE_SEND);
    let sent = flags.contains(RegionFlags::INPUT) || once;
    let rank = match (sent, flags.contains(RegionFlags::OUTPUT)) {
        (true, false) if !once => 0,
        (true, true) if !once => 1,
        (true, true) => 2,
        (false, true) => 3,
        (true, false) => 4,
        (false, false) => 5,
    };
    if copied { 5 - rank } else { rank }
}

/// Reserves `bytes` bytes for a parameter in the last region, or in a new region if the last region has too little
/// space.
fn next(regions: &mut Vec<u32>, bytes: u32) -> Option<ParamLocation> {
    let last = regions.last_mut()?;
    let offset = last.checked_next_multiple_of(ALIGNMENT)?;
    let end = u64::from(offset) + u64::from(bytes);
    if end <= MAX_REGION_BYTES {
        *last = end as u32;
    } else {
        regions.push(bytes);
    }
    let region = u8::try_from(regions.len() - 1).ok()?;
    Some(ParamLocation { region, offset: if end <= MAX_REGION_BYTES { offset } else { 0 } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN: RegionFlags = RegionFlags::INPUT;
    const OUT: RegionFlags = RegionFlags::OUTPUT;
    const BOTH: RegionFlags = IN.union(OUT);
    const ONCE: RegionFlags = IN.union(RegionFlags::SINGLE_SEND);

    fn offsets(layout: Layout, params: &[(RegionFlags, u32)]) -> Vec<u32> {
        let placed = place(layout, params).unwrap();
        assert_eq!(placed.regions.len(), 1);
        placed.places.iter().map(|place| place.offset).collect()
    }

    #[test]
    fn what_is_written_together_lies_together() {
        let params = [(OUT, 10), (BOTH, 64), (IN, 65), (ONCE, 1)];
        assert_eq!(offsets(Layout::Gathered, &params), [192, 128, 0, 256]);
        assert_eq!(offsets(Layout::Asymmetric, &params), [192, 128, 0, 256]);
        let all = Layout::Packed { threshold: 16 * 65 };
        assert_eq!(offsets(all, &params), [64, 128, 192, 0]);
    }

    #[test]
    fn parameters_have_the_order_of_the_table() {
        let both_once = BOTH.union(ONCE);
        let not_copied = [IN, BOTH, both_once, OUT, ONCE, RegionFlags::NONE];
        assert_eq!(not_copied.map(|flags| rank(flags, false)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(not_copied.map(|flags| rank(flags, true)), [5, 4, 3, 2, 1, 0]);
    }

    #[test]
    fn small_ones_are_in_front() {
        let params = [(IN, 1000), (OUT, 10), (IN, 20), (OUT, 2000)];
        let layout = Layout::Packed { threshold: 20 * 16 };
        assert_eq!(offsets(layout, &params), [128, 0, 64, 1152]);
        let placed = place(layout, &params).unwrap();
        assert_eq!((placed.staged, placed.zeros(), placed.regions[0]), (84, 128, 3152));
        let staged: Vec<_> =
            placed.places.iter().zip(&params).map(|(&at, &(_, bytes))| placed.is_staged(at, bytes)).collect();
        assert_eq!(staged, [false, true, true, false]);
        assert_eq!(place(Layout::Gathered, &params).unwrap().staged, 0);
    }

    #[test]
    fn regions_end_at_two_gib() {
        let gib = 1 << 30;
        let placed =
            place(Layout::Gathered, &[(IN, gib), (IN, gib), (IN, 0), (IN, 1), (IN, 1 << 31)]).unwrap();
        assert_eq!(placed.regions, [1 << 31, 1, 1 << 31]);
        let places: Vec<_> = placed.places.iter().map(|place| (place.region, place.offset)).collect();
        assert_eq!(places, [(0, 0), (0, gib), (0, 1 << 31), (1, 0), (2, 0)]);
    }

    #[test]
    fn too_many_are_refused() {
        let params = [(IN, 1); 256];
        assert_eq!(place(Layout::Gathered, &params), Err(Unplaceable::TooMany(256)));
        assert!(place(Layout::Gathered, &params[1..]).is_ok());
    }
}
