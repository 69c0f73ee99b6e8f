//! Responses of a session whose parameters share regions of the accelerator.

use crate::{
    layout::{ALIGNMENT, LayoutEntry, ParamLocation, block},
    plan::{self, CallPlan, Part},
    region::{NaaAddress, RegionFlags, RegionRequest, RemoteRegion},
};

/// The locations of the parameters in the accelerator's regions, and the order of the outputs.
#[derive(Debug)]
pub(super) struct Arranged {
    places: Vec<ParamLocation>,
    /// The numbers of the output parameters, in the order in which the outputs lie in the regions.
    outputs: Vec<u8>,
}

/// Converts layout entries to descriptions of parameters, in which each parameter is described as if it had its own
/// region.
pub(super) fn params(regions: &[RegionRequest], entries: &[LayoutEntry]) -> Vec<RegionRequest> {
    let param = |entry: &LayoutEntry| {
        let region = regions.get(usize::from(entry.region));
        let start = region.map_or(NaaAddress::ZERO, |region| region.naa_addr);
        let naa_addr = NaaAddress::truncate(start.get() + u64::from(entry.offset));
        RegionRequest { flags: entry.flags, naa_addr, host: entry.host }
    };
    entries.iter().map(param).collect()
}

/// The part of one output that a response sends. The part has at least one byte.
#[derive(Clone, Copy)]
struct SentOutput {
    place: ParamLocation,
    /// The host's memory for the output.
    to: RemoteRegion,
    /// The offset of the part in the output, in bytes.
    start: u64,
    bytes: u32,
}

impl SentOutput {
    fn end(&self) -> u64 {
        self.start + u64::from(self.bytes)
    }

    /// Returns the length in bytes of the gap between this part and the part `next` in the accelerator's region.
    /// Returns `None` if one WRITE must not cover both parts. One WRITE may cover both parts only if they lie in the
    /// same region, and if the gap is shorter than [`ALIGNMENT`]. This part must reach to the end of its output, and
    /// `next` must begin at the start of its output. The two outputs must also have the same RKey, and their host
    /// addresses must differ by as much as their offsets in the accelerator's region.
    fn gap_to(&self, next: &Self) -> Option<u32> {
        let whole = self.end() == self.to.size.into() && next.start == 0;
        let apart = next.place.offset.checked_sub(self.place.offset)?;
        let gap = apart.checked_sub(self.to.size)?;
        let alike =
            self.to.addr.checked_add(apart.into()) == Some(next.to.addr) && self.to.rkey == next.to.rkey;
        let near = whole && self.place.region == next.place.region && alike && gap < ALIGNMENT;
        near.then_some(gap)
    }
}

impl Arranged {
    /// Returns the locations of the parameters that the granted layout entries `entries` describe. The layout entries
    /// come from a layout block, which has at most 255 of them, so the number of each parameter fits into a `u8`.
    pub(super) fn new(entries: &[LayoutEntry]) -> Self {
        let place = |entry: &LayoutEntry| ParamLocation { region: entry.region, offset: entry.offset };
        let places = entries.iter().map(place).collect();
        let mut outputs = block::in_order(entries);
        outputs.retain(|&param| entries[usize::from(param)].flags.contains(RegionFlags::OUTPUT));
        Self { places, outputs }
    }

    pub(super) fn places(&self) -> impl ExactSizeIterator<Item = ParamLocation> {
        self.places.iter().copied()
    }

    pub(super) fn plan(&self, params: &[RegionRequest], parts: &[Option<Part>], plan: &mut CallPlan) {
        let mut before: Option<SentOutput> = None;
        for &param in &self.outputs {
            let param = usize::from(param);
            let to = params[param].host;
            let (start, bytes) = plan::part(parts, param, to.size);
            if bytes == 0 {
                continue;
            }
            let next = SentOutput { place: self.places[param], to, start, bytes };
            let gap = before.and_then(|before| before.gap_to(&next));
            match gap.filter(|&gap| plan.has_room(0, u64::from(gap) + u64::from(bytes))) {
                Some(gap) => plan.extend(gap + bytes),
                None => plan.push(param, start, bytes, &to),
            }
            before = Some(next);
        }
    }
}
