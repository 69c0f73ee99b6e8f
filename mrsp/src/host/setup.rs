//! Converts a program's parameters to the region requests of an AAR.

use crate::{
    address::{AddressPlan, OutOfAddresses},
    immediate::Dialect,
    layout::{LayoutEntry, ParamLocation, Placed, Unplaceable, block::MAX_ENTRIES},
    region::{HOST_MAX_REGIONS, MAX_REGION_BYTES, NaaAddress, RegionFlags, RegionRequest, RemoteRegion},
};

/// The settings of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// The lowest accelerator address that the session requests.
    pub address_start: NaaAddress,
    /// The maximum number of parameters and internal regions together. Servers of NAAICE's C library crash if a session
    /// has more than 31 regions.
    pub max_regions: u8,
    /// The dialect by which the session decodes response immediates.
    pub dialect: Dialect,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self { address_start: NaaAddress::ZERO, max_regions: HOST_MAX_REGIONS, dialect: Dialect::default() }
    }
}

/// A parameter, which has memory on the host and on the accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedParam {
    /// The flags of the parameter. Only INPUT, OUTPUT and SINGLE_SEND are permitted. A parameter with SINGLE_SEND is an
    /// input even if INPUT is not set.
    pub flags: RegionFlags,
    /// The virtual address of the parameter's first byte on the host.
    pub addr: u64,
    /// The RKey of the host's memory region, with which the accelerator writes the parameter if it is an output.
    pub rkey: u32,
    /// The size of the parameter in bytes, from 0 to 2 GiB.
    pub size: u64,
}

/// The error for parameters and regions with which no session can be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The session has no parameter to which the accelerator could write a response.
    #[error("a session needs at least one parameter, for its answers to go to")]
    NoParameters,
    /// The session has more regions than [`HostConfig::max_regions`].
    #[error("{asked} regions are more than the {limit} allowed; put small ones together")]
    TooManyRegions {
        /// The number of parameters and internal regions together. If parameters share regions, `asked` counts the
        /// shared regions in place of the parameters.
        asked: usize,
        /// The value of [`HostConfig::max_regions`].
        limit: u8,
    },
    /// A parameter or an internal region is larger than 2 GiB.
    #[error("region {region} has {bytes} bytes, more than the {MAX_REGION_BYTES} of a message; split it")]
    TooLarge {
        /// The number of the parameter or internal region that is too large, counted from 0. The numbers of internal
        /// regions follow the numbers of all other regions.
        region: usize,
        /// The size in bytes of the parameter or internal region.
        bytes: u64,
    },
    /// A parameter has flags other than INPUT, OUTPUT and SINGLE_SEND.
    #[error("parameter {param} cannot have the flags {flags:?}")]
    Flags {
        /// The number of the parameter, counted from 0.
        param: usize,
        /// The flags of the parameter.
        flags: RegionFlags,
    },
    /// The host's memory for a parameter does not end inside the 64-bit address space.
    #[error("parameter {param} ends beyond 64-bit addresses")]
    Wraps {
        /// The number of the parameter, counted from 0.
        param: usize,
    },
    /// The layout was computed for another number of parameters than the session has.
    #[error("{placed} parameters were placed, the session has {params}")]
    Placed {
        /// The number of parameters for which the layout was computed.
        placed: usize,
        /// The number of parameters that the session has.
        params: usize,
    },
    /// The parameters cannot share regions of the accelerator, because there are too many parameters, or because they
    /// need too many regions.
    #[error(transparent)]
    Unplaceable(#[from] Unplaceable),
    /// The regions do not fit into the accelerator's address space of 56 bits.
    #[error(transparent)]
    OutOfAddresses(#[from] OutOfAddresses),
}

const PARAM_FLAGS: RegionFlags =
    RegionFlags::INPUT.union(RegionFlags::OUTPUT).union(RegionFlags::SINGLE_SEND);

/// Returns the region requests of the AAR. Parameters come before internal regions, but internal regions have
/// the lower accelerator addresses.
pub(super) fn requests(
    config: &HostConfig,
    params: &[AnnouncedParam],
    internals: &[u64],
) -> Result<Vec<RegionRequest>, SetupError> {
    entries(config, internals, params.len(), |index| describe(index, &params[index]))
}

/// Returns the region requests of an AAR in which parameters share regions. Element i of `bytes` is the size
/// in bytes of shared region i.
pub(super) fn regions(
    config: &HostConfig,
    bytes: &[u32],
    internals: &[u64],
) -> Result<Vec<RegionRequest>, SetupError> {
    let region = |index: usize| RemoteRegion { addr: 0, rkey: 0, size: bytes[index] };
    entries(config, internals, bytes.len(), |index| Ok((RegionFlags::NONE, region(index))))
}

fn entries(
    config: &HostConfig,
    internals: &[u64],
    shared: usize,
    describe: impl Fn(usize) -> Result<(RegionFlags, RemoteRegion), SetupError>,
) -> Result<Vec<RegionRequest>, SetupError> {
    let asked = shared.saturating_add(internals.len());
    if asked > usize::from(config.max_regions) {
        return Err(SetupError::TooManyRegions { asked, limit: config.max_regions });
    }
    if shared == 0 {
        return Err(SetupError::NoParameters);
    }
    let mut addresses = AddressPlan::new(config.address_start);
    let internals: Result<Vec<_>, _> = (shared..)
        .zip(internals)
        .map(|(region, &bytes)| {
            let host = RemoteRegion { addr: 0, rkey: 0, size: size(region, bytes)? };
            request(RegionFlags::INTERNAL, host, &mut addresses)
        })
        .collect();
    let internals = internals?;
    let shared = (0..shared).map(|index| {
        let (flags, host) = describe(index)?;
        request(flags, host, &mut addresses)
    });
    shared.chain(internals.into_iter().map(Ok)).collect()
}

/// Returns the layout entries that describe the parameters.
pub(super) fn layout_entries(
    params: &[AnnouncedParam],
    placed: &Placed,
) -> Result<Vec<LayoutEntry>, SetupError> {
    if params.is_empty() {
        return Err(SetupError::NoParameters);
    }
    if params.len() > MAX_ENTRIES {
        return Err(Unplaceable::TooMany(params.len()).into());
    }
    if params.len() != placed.places.len() {
        return Err(SetupError::Placed { placed: placed.places.len(), params: params.len() });
    }
    let entry = |(index, (param, place)): (usize, (&AnnouncedParam, &ParamLocation))| {
        let (flags, host) = describe(index, param)?;
        Ok(LayoutEntry { flags, region: place.region, offset: place.offset, host })
    };
    params.iter().zip(&placed.places).enumerate().map(entry).collect()
}

/// Returns the flags of `param`, and the host's memory for `param`.
fn describe(index: usize, param: &AnnouncedParam) -> Result<(RegionFlags, RemoteRegion), SetupError> {
    let mut flags = param.flags;
    if !PARAM_FLAGS.contains(flags) {
        return Err(SetupError::Flags { param: index, flags });
    }
    if flags.contains(RegionFlags::SINGLE_SEND) {
        flags = flags | RegionFlags::INPUT;
    }
    let host = RemoteRegion { addr: param.addr, rkey: param.rkey, size: size(index, param.size)? };
    if !host.fits_address_space() {
        return Err(SetupError::Wraps { param: index });
    }
    Ok((flags, host))
}

fn request(
    flags: RegionFlags,
    host: RemoteRegion,
    addresses: &mut AddressPlan,
) -> Result<RegionRequest, SetupError> {
    Ok(RegionRequest { flags, naa_addr: addresses.place(host.size.into())?, host })
}

fn size(region: usize, bytes: u64) -> Result<u32, SetupError> {
    let fits = u32::try_from(bytes).ok().filter(|&bytes| u64::from(bytes) <= MAX_REGION_BYTES);
    fits.ok_or(SetupError::TooLarge { region, bytes })
}
