//! The memory of a session, and the locations of its parameters.

use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
};

use mrsp::{AcceleratorSession, RegionFlags, layout::ParamLocation};
use smallvec::SmallVec;
use verbs::Sge;

use crate::{
    call::{RegionRef, direction},
    memory_budget::{Allocation, Quota, Reservation},
};

/// A region of a session, which a call may use.
#[derive(Debug)]
pub struct SessionRegion {
    /// The use of the region as the host described it: input, output, single-send or internal.
    pub flags: RegionFlags,
    /// The memory of the region.
    pub allocation: Allocation,
}

/// The use, location and length of a parameter or an internal region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The use of the parameter as the host described it: input, output, single-send or internal.
    pub flags: RegionFlags,
    /// The index of the region in which this parameter lies.
    pub region: usize,
    /// The offset of the parameter's first byte in the region.
    pub offset: usize,
    /// The length of the parameter in bytes.
    pub len: usize,
}

/// The parameters and internal regions of a session whose host sent a layout block.
#[derive(Debug)]
struct Views {
    /// The parameters, followed by the internal regions.
    all: Vec<View>,
    /// The indexes of the elements of `all`, sorted by the region and the offset of the element.
    order: Vec<usize>,
}

/// The regions that a session lends to a call, the quota for scratch memory, and the variable in which the call stores
/// its number of status bytes.
pub(crate) struct Lent<'a> {
    /// The parameters and internal regions as slices.
    pub(crate) regions: Vec<RegionRef<'a>>,
    /// The quota for the call's scratch memory. If there is no quota, scratch memory is not limited.
    pub(crate) quota: Option<&'a Quota>,
    /// The variable in which the call stores its number of status bytes. After the call,
    /// [`SessionRegions::take_status_bytes`] returns this number.
    pub(crate) status_bytes: &'a mut u32,
}

/// The regions of a session in the order of the host's MRSP message. If the message has no layout block, each
/// region is a parameter or an internal region.
#[derive(Debug, Default)]
pub struct SessionRegions {
    regions: Vec<SessionRegion>,
    views: Option<Arc<Views>>,
    /// The quota for scratch memory of calls. If there is no quota, scratch memory is not limited.
    quota: Option<Quota>,
    /// The number of status bytes that the host gets if the call on these regions fails. The status bytes are the first
    /// bytes of the first output.
    status_bytes: u32,
    /// The charge for the files that the server opens for the process that runs the session's kernels. The charge ends
    /// when the regions are dropped.
    _process_files: Option<Reservation>,
}

impl From<Vec<SessionRegion>> for SessionRegions {
    fn from(regions: Vec<SessionRegion>) -> Self {
        Self { regions, ..Self::default() }
    }
}

impl FromIterator<SessionRegion> for SessionRegions {
    fn from_iter<T: IntoIterator<Item = SessionRegion>>(regions: T) -> Self {
        Vec::from_iter(regions).into()
    }
}

impl IntoIterator for SessionRegions {
    type Item = SessionRegion;
    type IntoIter = std::vec::IntoIter<SessionRegion>;

    fn into_iter(self) -> Self::IntoIter {
        self.regions.into_iter()
    }
}

impl Deref for SessionRegions {
    type Target = [SessionRegion];

    fn deref(&self) -> &[SessionRegion] {
        &self.regions
    }
}

impl DerefMut for SessionRegions {
    fn deref_mut(&mut self) -> &mut [SessionRegion] {
        &mut self.regions
    }
}

impl SessionRegions {
    /// Makes the regions of a session. If the host sent a layout block, [`Self::views`] returns the parameters at the
    /// locations that the layout block describes.
    pub(crate) fn of(regions: Vec<SessionRegion>, machine: &AcceleratorSession) -> Self {
        let views = machine.places().map(|places| {
            let params =
                places.zip(machine.regions()).map(|(ParamLocation { region, offset }, param)| View {
                    flags: param.flags,
                    region: region.into(),
                    offset: offset as usize,
                    len: param.host.size as usize,
                });
            let numbered = regions.iter().enumerate();
            let internals = numbered.filter(|(_, region)| region.flags.contains(RegionFlags::INTERNAL));
            let all: Vec<_> = params.chain(internals.map(|(at, region)| whole(at, region))).collect();
            let mut order: Vec<_> = (0..all.len()).collect();
            order.sort_by_key(|&at| (all[at].region, all[at].offset, all[at].len));
            Arc::new(Views { all, order })
        });
        Self { regions, views, ..Self::default() }
    }

    /// Sets the quota for scratch memory of calls on these regions.
    #[must_use]
    pub fn with_quota(self, quota: Quota) -> Self {
        Self { quota: Some(quota), ..self }
    }

    /// Keeps `process_files`, the charge for the files of the session's process, until these regions are dropped.
    pub(crate) fn with_process(self, process_files: Option<Reservation>) -> Self {
        Self { _process_files: process_files, ..self }
    }

    /// Returns the parameters and internal regions in the order in which functions get them.
    pub fn views(&self) -> impl ExactSizeIterator<Item = View> {
        let count = self.views.as_ref().map_or(self.regions.len(), |views| views.all.len());
        (0..count).map(|at| match &self.views {
            Some(views) => views.all[at],
            None => whole(at, &self.regions[at]),
        })
    }

    /// Lends the regions to a call. Returns `None` while a peer has access to a region.
    pub(crate) fn lend(&mut self) -> Option<Lent<'_>> {
        let Self { regions, views, quota, status_bytes, .. } = self;
        Some(Lent { regions: slices(regions, views.as_deref())?, quota: quota.as_ref(), status_bytes })
    }

    /// Returns the number of status bytes that the host gets if the call failed, and sets this number to 0 for the next
    /// call. The status bytes are the first bytes of the first output. The server calls this method before the response
    /// to each call, even to a call that succeeded. There is one exception. If the call timed out and its function
    /// still runs, the function still has the regions, so the server responds without calling this method.
    pub fn take_status_bytes(&mut self) -> u32 {
        std::mem::take(&mut self.status_bytes)
    }

    /// Copies the results of a call from working copies to the memory from which the results are sent. This method is
    /// called after a call that used [`lend`](Self::lend).
    pub(crate) fn settle(&mut self) {
        let shared = self.views.is_some();
        for region in &mut self.regions {
            // If the host sent a layout block, inputs and outputs can lie in the same region, so all regions are
            // copied. If the host sent no layout block, each parameter has a region of its own, and only the regions of
            // outputs are copied.
            if shared || region.flags.contains(RegionFlags::OUTPUT) {
                region.allocation.settle();
            }
        }
    }

    /// Returns the parameters, with the region and the offset at which each of them starts.
    pub(crate) fn params(&self) -> Params<'_> {
        let starts = match &self.views {
            Some(_) => SmallVec::new(),
            None => {
                let numbered = self.regions.iter().enumerate();
                numbered.filter(|(_, r)| !r.flags.contains(RegionFlags::INTERNAL)).map(|(at, _)| at).collect()
            }
        };
        Params { regions: self, shared: starts }
    }
}

/// Returns parameters and internal regions as slices. Returns `None` while a peer has access to a region.
fn slices<'a>(regions: &'a mut [SessionRegion], views: Option<&Views>) -> Option<Vec<RegionRef<'a>>> {
    let Some(views) = views else {
        let slices = regions.iter_mut().map(|region| {
            Some(RegionRef { direction: direction(region.flags), bytes: region.allocation.bytes_mut()? })
        });
        return slices.collect();
    };
    let mut slices: Vec<_> = views.all.iter().map(|_| None).collect();
    let mut order = views.order.iter().map(|&at| (at, views.all[at])).peekable();
    for (number, region) in regions.iter_mut().enumerate() {
        let (mut rest, mut passed) = (region.allocation.bytes_mut()?, 0);
        while let Some((at, view)) = order.next_if(|(_, view)| view.region == number) {
            // Both splits succeed, because the layout entries were checked: each parameter lies inside its region, and
            // no two parameters overlap.
            let (_, from_here) = rest.split_at_mut_checked(view.offset.checked_sub(passed)?)?;
            let (bytes, behind) = from_here.split_at_mut_checked(view.len)?;
            slices[at] = Some(RegionRef { direction: direction(view.flags), bytes });
            (rest, passed) = (behind, view.offset + view.len);
        }
    }
    slices.into_iter().collect()
}

fn whole(region: usize, of: &SessionRegion) -> View {
    View { flags: of.flags, region, offset: 0, len: of.allocation.len() }
}

/// The parameters of a session, from which the server's WRITEs take their bytes.
pub(crate) struct Params<'a> {
    regions: &'a SessionRegions,
    /// For each parameter, the index of the parameter's region in `regions`. If the host sent a layout block, the list
    /// is empty, because `SessionRegions::views` says where the parameters lie.
    shared: SmallVec<[usize; 8]>,
}

impl Params<'_> {
    /// Returns a scatter-gather element of `length` bytes that starts at `offset` in the parameter with the index
    /// `param`. The element can extend beyond the end of the parameter, because one WRITE can take the bytes of several
    /// parameters in a region.
    pub(crate) fn sge(&self, param: usize, offset: u64, length: u32) -> Option<Sge> {
        let (region, start) = match &self.regions.views {
            Some(views) => views.all.get(param).map(|view| (view.region, view.offset))?,
            None => (*self.shared.get(param)?, 0),
        };
        self.regions.get(region)?.allocation.sge(offset.checked_add(start as u64)?, length)
    }
}
