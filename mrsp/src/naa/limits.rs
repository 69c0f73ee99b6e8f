//! Whether what a host asks for can be granted.

use crate::{
    codec::RegionRequests,
    message::ErrorCode,
    region::{MAX_REGION_BYTES, RegionFlags, RegionRequest, SERVER_MAX_REGIONS},
};

/// How much one session may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_regions: u8,
    /// At most 2 GiB, whatever is set here.
    pub max_region_bytes: u64,
    /// Sum over all regions, internal ones included, as asked for (an allocator may round up).
    pub max_session_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_regions: SERVER_MAX_REGIONS,
            max_region_bytes: MAX_REGION_BYTES,
            max_session_bytes: 4 * MAX_REGION_BYTES,
        }
    }
}

/// Why regions are not granted. Regions are counted from 0 in the order of the AAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the host asks for {asked} regions; {limit} are allowed")]
    TooManyRegions { asked: usize, limit: u8 },
    #[error("the host announces no region of its own that an answer could go to")]
    NoParameters,
    #[error("the host contradicts itself: region {region} is internal and has the flags {flags:?}")]
    Contradiction { region: usize, flags: RegionFlags },
    #[error("the host asks for {bytes} bytes in region {region}; {limit} are allowed")]
    RegionTooLarge { region: usize, bytes: u32, limit: u64 },
    #[error("the host asks for more than the {limit} bytes a session may have")]
    SessionTooLarge { limit: u64 },
    #[error("region {region} of the host ends beyond the accelerator's 56-bit addresses")]
    NaaAddressWraps { region: usize },
    #[error("region {region} of the host ends beyond the host's 64-bit addresses")]
    HostAddressWraps { region: usize },
}

impl Refusal {
    /// How MRSP puts it. It has three words only: whatever is wrong with a description is an address error,
    /// whatever is wrong with the number of regions is too many.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::TooManyRegions { .. } | Self::NoParameters => ErrorCode::TooManyRegions,
            Self::RegionTooLarge { .. } | Self::SessionTooLarge { .. } | Self::NaaAddressWraps { .. } => {
                ErrorCode::Memory
            }
            Self::Contradiction { .. } | Self::HostAddressWraps { .. } => ErrorCode::Address,
        }
    }
}

/// INTERNAL regions have no other side to be sent to or from.
const NOT_INTERNAL: RegionFlags =
    RegionFlags::INPUT.union(RegionFlags::OUTPUT).union(RegionFlags::SINGLE_SEND);

/// What is granted, in the order of the AAR, which may mix parameters and internal regions.
pub(super) fn grant(limits: &Limits, asked: &RegionRequests<'_>) -> Result<Vec<RegionRequest>, Refusal> {
    if asked.len() > usize::from(limits.max_regions) {
        return Err(Refusal::TooManyRegions { asked: asked.len(), limit: limits.max_regions });
    }
    if asked.iter().all(|request| request.is_internal()) {
        return Err(Refusal::NoParameters);
    }
    let mut total = 0_u64;
    for (region, request) in asked.iter().enumerate() {
        check(limits, region, &request)?;
        total = total.saturating_add(request.host.size.into());
    }
    if total > limits.max_session_bytes {
        return Err(Refusal::SessionTooLarge { limit: limits.max_session_bytes });
    }
    Ok(asked.iter().collect())
}

fn check(limits: &Limits, region: usize, request: &RegionRequest) -> Result<(), Refusal> {
    let limit = limits.max_region_bytes.min(MAX_REGION_BYTES);
    let (flags, bytes) = (request.flags, request.host.size);
    if request.is_internal() && flags.intersects(NOT_INTERNAL) {
        Err(Refusal::Contradiction { region, flags })
    } else if u64::from(bytes) > limit {
        Err(Refusal::RegionTooLarge { region, bytes, limit })
    } else if !request.naa_addr.holds(bytes.into()) {
        Err(Refusal::NaaAddressWraps { region })
    } else if !request.is_internal() && !request.host.fits_address_space() {
        Err(Refusal::HostAddressWraps { region })
    } else {
        Ok(())
    }
}
