//! Decides whether the accelerator can grant the regions and layout entries that a host requests.

use crate::{
    codec::RegionRequests,
    layout::{
        ALIGNMENT, LayoutEntry,
        block::{self, LayoutEntries},
    },
    message::ErrorCode,
    region::{MAX_REGION_BYTES, RegionFlags, RegionRequest, SERVER_MAX_REGIONS},
};

/// The limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// The maximum number of regions in an AAR, including internal regions.
    pub max_regions: u8,
    /// The maximum size of one region in bytes. If the value is above 2 GiB, the limit is 2 GiB.
    pub max_region_bytes: u64,
    /// The maximum size in bytes of all regions together, including internal regions. The limit applies to the sum of
    /// the requested sizes, although an allocator may round each size up.
    pub max_session_bytes: u64,
    /// The maximum number of parameters in a layout block. The value 0 means that the accelerator refuses layout
    /// blocks.
    pub max_slots: u8,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_regions: SERVER_MAX_REGIONS,
            max_region_bytes: MAX_REGION_BYTES,
            max_session_bytes: 4 * MAX_REGION_BYTES,
            max_slots: u8::MAX,
        }
    }
}

/// The reason why regions are not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionRefusal {
    /// The AAR has more regions than [`SessionLimits::max_regions`].
    #[error("the host asks for {asked} regions; {limit} are allowed")]
    TooManyRegions {
        /// The number of regions in the AAR.
        asked: usize,
        /// The value of [`SessionLimits::max_regions`].
        limit: u8,
    },
    /// The AAR describes no host memory to which the accelerator could write a response: all its regions are internal,
    /// or its layout block has no layout entries.
    #[error("the host announces no region of its own that an answer could go to")]
    NoParameters,
    /// An internal region has the flag INPUT, OUTPUT or SINGLE_SEND, which an internal region must not have.
    #[error("the host contradicts itself: region {region} is internal and has the flags {flags:?}")]
    Contradiction {
        /// The number of the internal region, counted from 0 in the order of the AAR.
        region: usize,
        /// The flags of the internal region.
        flags: RegionFlags,
    },
    /// A region is larger than the maximum size of one region.
    #[error("the host asks for {bytes} bytes in region {region}; {limit} are allowed")]
    RegionTooLarge {
        /// The number of the region that is too large, counted from 0 in the order of the AAR.
        region: usize,
        /// The requested size of the region that is too large, in bytes.
        bytes: u32,
        /// The maximum size of one region in bytes: [`SessionLimits::max_region_bytes`], but at most 2 GiB.
        limit: u64,
    },
    /// The requested sizes of all regions together are above [`SessionLimits::max_session_bytes`].
    #[error("the host asks for more than the {limit} bytes a session may have")]
    SessionTooLarge {
        /// The value of [`SessionLimits::max_session_bytes`].
        limit: u64,
    },
    /// A region does not end inside the accelerator's 56-bit address space.
    #[error("region {region} of the host ends beyond the accelerator's 56-bit addresses")]
    NaaAddressWraps {
        /// The number of the region that does not end inside the accelerator's address space, counted from 0 in the
        /// order of the AAR.
        region: usize,
    },
    /// The layout block has more layout entries than [`SessionLimits::max_slots`].
    #[error("the host's layout has {asked} parameters; {limit} are allowed")]
    TooManyLayoutEntries {
        /// The number of layout entries in the layout block.
        asked: usize,
        /// The value of [`SessionLimits::max_slots`].
        limit: u8,
    },
    /// The AAR has a layout block, although [`SessionLimits::max_slots`] is 0.
    #[error("the host sent a layout, and this accelerator knows none")]
    NoLayouts,
    /// A layout entry breaks a rule of [`layout::block`](crate::layout::block).
    #[error("the host's layout is contradictory: parameter {entry} {what}")]
    LayoutEntry {
        /// The number of the layout entry, counted from 0.
        entry: usize,
        /// The broken rule, for the text of the error.
        what: &'static str,
    },
    /// The host's memory for a parameter does not end inside the host's 64-bit address space.
    #[error("region {region} of the host ends beyond the host's 64-bit addresses")]
    HostAddressWraps {
        /// The number of the parameter's region, counted from 0 in the order of the AAR.
        region: usize,
    },
}

impl RegionRefusal {
    /// Returns the MRSP error code for the reason. MRSP has only three error codes. Code 1 (memory) stands for regions
    /// that are too large or end beyond the accelerator's addresses. Code 3 (too many regions) stands for any invalid
    /// number of regions or layout entries. Code 2 (address) stands for all other reasons.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooManyRegions { .. } | Self::TooManyLayoutEntries { .. } | Self::NoParameters => {
                ErrorCode::TooManyRegions
            }
            Self::RegionTooLarge { .. } | Self::SessionTooLarge { .. } | Self::NaaAddressWraps { .. } => {
                ErrorCode::Memory
            }
            Self::Contradiction { .. }
            | Self::HostAddressWraps { .. }
            | Self::NoLayouts
            | Self::LayoutEntry { .. } => ErrorCode::Address,
        }
    }
}

/// The flags that an INTERNAL region must not have, because the host has no memory for such a region.
const NOT_INTERNAL: RegionFlags =
    RegionFlags::INPUT.union(RegionFlags::OUTPUT).union(RegionFlags::SINGLE_SEND);

/// Checks the requested regions and returns them in the order of the AAR. An AAR may mix parameters and internal
/// regions.
pub(super) fn grant(
    limits: &SessionLimits,
    asked: &RegionRequests<'_>,
) -> Result<Vec<RegionRequest>, RegionRefusal> {
    if asked.len() > usize::from(limits.max_regions) {
        return Err(RegionRefusal::TooManyRegions { asked: asked.len(), limit: limits.max_regions });
    }
    if asked.iter().all(|request| request.is_internal()) {
        return Err(RegionRefusal::NoParameters);
    }
    let mut total = 0_u64;
    for (region, request) in asked.iter().enumerate() {
        check(limits, region, &request)?;
        total = total.saturating_add(request.host.size.into());
    }
    if total > limits.max_session_bytes {
        return Err(RegionRefusal::SessionTooLarge { limit: limits.max_session_bytes });
    }
    Ok(asked.iter().collect())
}

/// Checks the number of layout entries, and the rules that [`layout::block`](crate::layout::block) documents. `regions`
/// are the granted regions. Returns the layout entries in the order of the layout block.
pub(super) fn grant_entries(
    limits: &SessionLimits,
    regions: &[RegionRequest],
    asked: &LayoutEntries<'_>,
) -> Result<Vec<LayoutEntry>, RegionRefusal> {
    if limits.max_slots == 0 {
        return Err(RegionRefusal::NoLayouts);
    }
    if asked.len() > usize::from(limits.max_slots) {
        return Err(RegionRefusal::TooManyLayoutEntries { asked: asked.len(), limit: limits.max_slots });
    }
    if asked.is_empty() {
        return Err(RegionRefusal::NoParameters);
    }
    let entries: Vec<_> = asked.iter().collect();
    for (entry, of) in entries.iter().enumerate() {
        check_entry(regions, of).map_err(|what| RegionRefusal::LayoutEntry { entry, what })?;
    }
    for pair in block::in_order(&entries).windows(2) {
        let [before, entry] = [pair[0], pair[1]].map(|number| entries[usize::from(number)]);
        if before.region == entry.region && before.end() > entry.offset.into() {
            return Err(RegionRefusal::LayoutEntry { entry: pair[1].into(), what: "overlaps another" });
        }
    }
    Ok(entries)
}

fn check_entry(regions: &[RegionRequest], entry: &LayoutEntry) -> Result<(), &'static str> {
    let region = regions.get(usize::from(entry.region)).ok_or("lies in a region that is not there")?;
    if entry.flags.contains(RegionFlags::INTERNAL) || region.is_internal() {
        Err("is internal, or lies in an internal region")
    } else if !entry.offset.is_multiple_of(ALIGNMENT) {
        Err("is not aligned")
    } else if entry.end() > region.host.size.into() {
        Err("ends behind its region")
    } else if !entry.host.fits_address_space() {
        Err("ends beyond the host's 64-bit addresses")
    } else {
        Ok(())
    }
}

fn check(limits: &SessionLimits, region: usize, request: &RegionRequest) -> Result<(), RegionRefusal> {
    let limit = limits.max_region_bytes.min(MAX_REGION_BYTES);
    let (flags, bytes) = (request.flags, request.host.size);
    if request.is_internal() && flags.intersects(NOT_INTERNAL) {
        Err(RegionRefusal::Contradiction { region, flags })
    } else if u64::from(bytes) > limit {
        Err(RegionRefusal::RegionTooLarge { region, bytes, limit })
    } else if !request.naa_addr.holds(bytes.into()) {
        Err(RegionRefusal::NaaAddressWraps { region })
    } else if !request.is_internal() && !request.host.fits_address_space() {
        Err(RegionRefusal::HostAddressWraps { region })
    } else {
        Ok(())
    }
}
