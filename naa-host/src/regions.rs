//! The regions of a session: one for each parameter, and the staging region of the parameters that are copied.

use mrsp::{
    RegionFlags,
    layout::{Layout, ParamLocation, Placed},
};
use verbs::Pd;

use crate::{Buffer, Error, Param, buffer::HostRegion};

/// The staging region, and the parameters that are copied to and from it.
#[derive(Debug)]
struct Staging {
    region: HostRegion,
    /// The index of each parameter that is copied, and its offset in the staging region.
    copies: Vec<(usize, usize)>,
}

#[derive(Debug)]
pub(crate) struct HostRegions {
    params: Vec<HostRegion>,
    staging: Option<Staging>,
}

impl HostRegions {
    /// Makes the regions of the symmetric layout, in which each parameter has its own registration.
    pub(crate) fn symmetric(
        pd: &Pd,
        params: &[&Param<'_>],
        buffers: Option<Vec<Buffer>>,
    ) -> Result<Self, Error> {
        let buffers = buffers.map_or_else(|| made(params), Ok)?;
        let regions =
            buffers.into_iter().zip(params).map(|(buffer, param)| HostRegion::new(pd, param.flags, buffer));
        Self { params: regions.collect::<Result<_, _>>()?, staging: None }.filled(params)
    }

    /// Makes regions with the layout that `placed` describes.
    pub(crate) fn arranged(
        pd: &Pd,
        params: &[&Param<'_>],
        buffers: Option<Vec<Buffer>>,
        placed: &Placed,
    ) -> Result<Self, Error> {
        let regions = match buffers {
            None if placed.layout == Layout::Gathered && placed.regions.len() == 1 => {
                gathered(pd, params, placed)?
            }
            buffers => {
                let buffers = buffers.map_or_else(|| made(params), Ok)?;
                let all = buffers.into_iter().zip(params).zip(&placed.places);
                let region = |((buffer, param), place): ((Buffer, &&Param<'_>), &ParamLocation)| {
                    if is_staged(placed, place, param) {
                        Ok(HostRegion::copied(pd, param.flags, buffer))
                    } else {
                        HostRegion::new(pd, param.flags, buffer)
                    }
                };
                all.map(region).collect::<Result<_, _>>()?
            }
        };
        Self { params: regions, staging: staging(pd, params, placed)? }.filled(params)
    }

    fn filled(mut self, params: &[&Param<'_>]) -> Result<Self, Error> {
        self.fill(params.iter().copied())?;
        Ok(self)
    }

    /// Fills the parameters with the content of `params`. Internal regions in `params` are ignored.
    pub(crate) fn fill<'a>(&mut self, params: impl IntoIterator<Item = &'a Param<'a>>) -> Result<(), Error> {
        let params = params.into_iter().filter(|param| !param.is_internal());
        for (index, (region, param)) in self.params.iter_mut().zip(params).enumerate() {
            let (size, len) = (param.len, param.content.len());
            if len > region.len() {
                return Err(Error::OutOfBounds { index, offset: 0, len, size });
            }
            // If a parameter has no initial content, its buffer is not written, because another session may be using
            // the same memory in a call.
            if len > 0 {
                region.write(0, param.content)?;
            }
        }
        Ok(())
    }

    /// Changes the regions to the symmetric layout, for an accelerator that does not support the chosen layout:
    /// registers the parameters that have no registration yet, and drops the staging region.
    pub(crate) fn make_symmetric(&mut self, pd: &Pd) -> Result<(), Error> {
        self.staging = None;
        self.params.iter_mut().try_for_each(|region| region.register(pd))
    }

    /// Returns the descriptions with which the parameters are announced to the accelerator. If a parameter is copied,
    /// its announced address lies in the staging region.
    pub(crate) fn announced(&self) -> Vec<mrsp::AnnouncedParam> {
        let mut announced: Vec<_> = self.params.iter().map(HostRegion::announced).collect();
        if let Some(Staging { region, copies }) = &self.staging {
            let mrsp::AnnouncedParam { addr, rkey, .. } = region.announced();
            for &(param, at) in copies {
                (announced[param].addr, announced[param].rkey) = (addr + at as u64, rkey);
            }
        }
        announced
    }

    /// Copies parameters to the staging region if the layout requires it, and then lends all regions to a call.
    pub(crate) fn lend(&mut self) -> Result<(), verbs::Error> {
        if let Some(Staging { region, copies }) = &mut self.staging {
            for &(param, at) in &*copies {
                self.params[param].stage(region, at);
            }
            region.lend()?;
        }
        self.params.iter_mut().try_for_each(HostRegion::lend)
    }

    /// Gives all regions back to the program and copies results from the staging region to their parameters. Before
    /// this method is called, the conditions of [`HostRegion::take_back`] must hold.
    pub(crate) fn take_back(&mut self) -> Result<(), verbs::Error> {
        self.params.iter_mut().try_for_each(HostRegion::take_back)?;
        let Some(Staging { region, copies }) = &mut self.staging else { return Ok(()) };
        // If the staging region is not lent, the results of the last call were copied to the parameters already. The
        // program may have changed the parameters since then, so the results are not copied again.
        if !region.is_lent() {
            return Ok(());
        }
        region.take_back()?;
        for &(param, at) in &*copies {
            if self.params[param].flags().contains(RegionFlags::OUTPUT) {
                self.params[param].unstage(region, at);
            }
        }
        Ok(())
    }

    /// Calls [`take_back`](Self::take_back). If this fails, gives those regions back to the program that can be given
    /// back. The program gets no access to the other regions. If [`take_back`](Self::take_back) fails, the results in
    /// the staging region are not copied to their parameters.
    pub(crate) fn take_back_what_goes(&mut self) {
        if self.take_back().is_err() {
            for region in &mut self.params {
                let _ = region.take_back();
            }
        }
    }

    /// Returns the region from which a WRITE takes the bytes of the parameter `param`. If `param` equals the number of
    /// parameters, the result is the staging region.
    pub(crate) fn source(&self, param: usize) -> Option<&HostRegion> {
        let staging = self.staging.as_ref().filter(|_| param == self.params.len());
        self.params.get(param).or(staging.map(|staging| &staging.region))
    }

    pub(crate) fn params(&self) -> &[HostRegion] {
        &self.params
    }

    pub(crate) fn params_mut(&mut self) -> &mut [HostRegion] {
        &mut self.params
    }

    pub(crate) fn into_params(self) -> Vec<HostRegion> {
        self.params
    }

    pub(crate) fn registered_bytes(&self) -> u64 {
        let staging = self.staging.as_ref().map(|staging| &staging.region);
        self.params.iter().chain(staging).map(|region| region.registered_bytes() as u64).sum()
    }
}

fn made(params: &[&Param<'_>]) -> Result<Vec<Buffer>, Error> {
    params.iter().map(|param| Buffer::new(param.len)).collect()
}

fn is_staged(placed: &Placed, place: &ParamLocation, param: &Param<'_>) -> bool {
    placed.is_staged(*place, param.len as u32)
}

/// Makes the regions of the gathered layout. The outputs have the same distances from each other as on the accelerator,
/// so that one WRITE of the accelerator transfers all outputs.
fn gathered(pd: &Pd, params: &[&Param<'_>], placed: &Placed) -> Result<Vec<HostRegion>, Error> {
    let is_output = |param: &Param<'_>| param.flags.contains(RegionFlags::OUTPUT);
    let with_places = || params.iter().zip(&placed.places).filter(|(param, _)| is_output(param));
    let first = with_places().map(|(_, place)| place.offset).min().unwrap_or(0);
    let outputs: Vec<_> = with_places()
        .map(|(param, place)| (param.flags, (place.offset - first) as usize, param.len))
        .collect();
    let mut outputs = HostRegion::side_by_side(pd, &outputs)?.into_iter();
    let region = |param: &&Param<'_>| match is_output(param).then(|| outputs.next()).flatten() {
        Some(region) => Ok(region),
        None => HostRegion::new(pd, param.flags, Buffer::new(param.len)?),
    };
    params.iter().map(region).collect()
}

fn staging(pd: &Pd, params: &[&Param<'_>], placed: &Placed) -> Result<Option<Staging>, Error> {
    let bytes = placed.staging_bytes() as usize;
    if bytes == 0 {
        return Ok(None);
    }
    let all = || params.iter().zip(&placed.places).enumerate();
    let staged = || all().filter(|(_, (param, place))| is_staged(placed, place, param));
    let copies = staged().map(|(index, (_, place))| (index, place.offset as usize)).collect();
    let flags = staged().fold(RegionFlags::INPUT, |flags, (_, (param, _))| flags | param.flags);
    Ok(Some(Staging { region: HostRegion::new(pd, flags, Buffer::new(bytes)?)?, copies }))
}
