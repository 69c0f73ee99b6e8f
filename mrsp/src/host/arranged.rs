//! Plans the calls of a session in which several parameters share a region of the accelerator.

use super::{AnnouncedParam, SetupError, setup};
use crate::{
    layout::{ALIGNMENT, Layout, LayoutEntry, Placed, block},
    plan::{self, CallPlan, Part, PartError, WriteElement},
    region::RemoteRegion,
};

/// The layout of a session's parameters, from which the session plans the WRITEs of its calls.
#[derive(Debug)]
pub(super) struct Arranged {
    layout: Layout,
    /// The layout entry of each parameter, in the order of the program's parameters.
    entries: Vec<LayoutEntry>,
    /// The numbers of the parameters, in the order in which the parameters lie in the accelerator's regions.
    order: Vec<u8>,
    /// The length in bytes of the first part of the accelerator's region 0. The host sends the inputs that lie in this
    /// part from the staging region.
    staged: u32,
    /// The offset in the staging region at which bytes with the value 0 begin. A gathered WRITE fills the gaps between
    /// parameters with these bytes.
    zeros: u32,
}

/// The part of one parameter that the host sends with a call.
#[derive(Clone, Copy)]
struct SentPart {
    entry: LayoutEntry,
    param: usize,
    /// The offset of the part in the parameter, in bytes.
    start: u64,
    bytes: u32,
    /// True if the bytes of the part are sent from the staging region, and not from the parameter itself.
    staged: bool,
}

impl SentPart {
    /// Returns the offset of the sent part in the accelerator's region.
    fn offset(&self) -> u64 {
        u64::from(self.entry.offset) + self.start
    }

    fn end(&self) -> u64 {
        self.offset() + u64::from(self.bytes)
    }

    /// Returns the number of bytes between this part and the part `next` in the accelerator's region. Returns `None` if
    /// one WRITE must not cover both parts.
    fn gap_to(&self, next: &Self) -> Option<u32> {
        let whole = self.end() == self.entry.end() && next.start == 0;
        let gap = next.offset().checked_sub(self.end())?;
        let near = whole && self.entry.region == next.entry.region && gap < ALIGNMENT.into();
        near.then_some(gap as u32)
    }
}

impl Arranged {
    pub(super) fn new(params: &[AnnouncedParam], placed: &Placed) -> Result<Self, SetupError> {
        let entries = setup::layout_entries(params, placed)?;
        let (order, staged, zeros) = (block::in_order(&entries), placed.staged, placed.zeros());
        Ok(Self { layout: placed.layout, entries, order, staged, zeros })
    }

    pub(super) fn entries(&self) -> &[LayoutEntry] {
        &self.entries
    }

    pub(super) fn plan(
        &self,
        peer: &[RemoteRegion],
        single_send_done: bool,
        parts: &[Option<Part>],
        plan: &mut CallPlan,
    ) -> Result<(), PartError> {
        plan::check_parts(parts, self.entries.iter().map(|entry| entry.host.size))?;
        plan.clear();
        let mut before: Option<SentPart> = None;
        for &param in &self.order {
            let param = usize::from(param);
            let entry = self.entries[param];
            let (start, bytes) = plan::part(parts, param, entry.host.size);
            if bytes == 0 || !plan::is_sent(entry.flags, single_send_done) {
                continue;
            }
            let staged = entry.region == 0 && entry.end() <= self.staged.into();
            let next = SentPart { entry, param, start, bytes, staged };
            if !before.is_some_and(|before| self.joins(&before, &next, plan)) {
                self.begin(&next, peer, plan);
            }
            before = Some(next);
        }
        Ok(())
    }

    fn begin(&self, next: &SentPart, peer: &[RemoteRegion], plan: &mut CallPlan) {
        let Some(region) = peer.get(usize::from(next.entry.region)) else { return };
        let WriteElement { param, offset, length } = self.piece(next);
        plan.push_to(param, offset, length, region.addr.wrapping_add(next.offset()), region.rkey);
    }

    /// Adds the part `next` to the plan's last WRITE, which must end with the part `before`. Returns true if the part
    /// was added. Returns false and adds nothing if one WRITE cannot cover both parts.
    fn joins(&self, before: &SentPart, next: &SentPart, plan: &mut CallPlan) -> bool {
        let Some(gap) = before.gap_to(next) else { return false };
        let bytes = u64::from(gap) + u64::from(next.bytes);
        let gathers = matches!(self.layout, Layout::Packed { .. } | Layout::Gathered);
        if before.staged && next.staged && plan.has_room(0, bytes) {
            plan.extend(gap + next.bytes);
            true
        } else if gathers && plan.has_room(if gap > 0 { 2 } else { 1 }, bytes) {
            if gap > 0 {
                plan.append(WriteElement { param: self.staging(), offset: self.zeros.into(), length: gap });
            }
            plan.append(self.piece(next));
            true
        } else {
            false
        }
    }

    /// Returns the location of the part `sent` in the host's memory.
    fn piece(&self, sent: &SentPart) -> WriteElement {
        let (param, offset) =
            if sent.staged { (self.staging(), sent.offset()) } else { (sent.param, sent.start) };
        WriteElement { param, offset, length: sent.bytes }
    }

    /// Returns the number of the staging region, which follows the numbers of the session's parameters.
    fn staging(&self) -> usize {
        self.entries.len()
    }
}
