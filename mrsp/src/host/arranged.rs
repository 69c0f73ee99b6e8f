//! Calls of a session whose parameters share regions of the accelerator.

use super::{Param, SetupError, setup};
use crate::{
    layout::{ALIGNMENT, Layout, Placed, Slot},
    plan::{self, CallPlan, Part, PartError, Piece},
    region::RemoteRegion,
};

/// The layout of a session's parameters, from which the session plans the WRITEs of its calls.
#[derive(Debug)]
pub(super) struct Arranged {
    layout: Layout,
    /// The layout entry of each parameter, in the order of the program's parameters.
    slots: Vec<Slot>,
    /// The numbers of the parameters, in the order in which the parameters lie in the accelerator's regions.
    order: Vec<u8>,
    /// The host sends the inputs in the first `staged` bytes of the accelerator's region 0 from the staging region.
    staged: u32,
    /// The offset in the staging region at which zero bytes lie. A gathered WRITE sends zero bytes for the gaps between
    /// parameters.
    zeros: u32,
}

/// The part of one parameter that the host sends with a call.
#[derive(Clone, Copy)]
struct Sent {
    slot: Slot,
    param: usize,
    /// The offset of the part in the parameter, in bytes.
    start: u64,
    bytes: u32,
    /// True if the bytes of the part are sent from the staging region, and not from the parameter itself.
    staged: bool,
}

impl Sent {
    /// Returns the offset of the sent part in the accelerator's region.
    fn offset(&self) -> u64 {
        u64::from(self.slot.offset) + self.start
    }

    fn end(&self) -> u64 {
        self.offset() + u64::from(self.bytes)
    }

    /// Returns the number of bytes that lie between this part and the part `next` in the accelerator's region, or
    /// `None` if one WRITE must not cover both parts.
    fn gap_to(&self, next: &Self) -> Option<u32> {
        let whole = self.end() == self.slot.end() && next.start == 0;
        let gap = next.offset().checked_sub(self.end())?;
        let near = whole && self.slot.region == next.slot.region && gap < ALIGNMENT.into();
        near.then_some(gap as u32)
    }
}

impl Arranged {
    pub(super) fn new(params: &[Param], placed: &Placed) -> Result<Self, SetupError> {
        let slots = setup::slots(params, placed)?;
        // The function `place` refuses more than 255 parameters, so the number of each parameter fits into a `u8`.
        let mut order: Vec<_> = (0..=u8::MAX).take(slots.len()).collect();
        order.sort_by_key(|&param| {
            let slot = &slots[usize::from(param)];
            (slot.region, slot.offset, slot.host.size)
        });
        let (staged, zeros) = (placed.staged, placed.zeros());
        Ok(Self { layout: placed.layout, slots, order, staged, zeros })
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    pub(super) fn plan(
        &self,
        peer: &[RemoteRegion],
        single_send_done: bool,
        parts: &[Option<Part>],
        plan: &mut CallPlan,
    ) -> Result<(), PartError> {
        plan::check_parts(parts, self.slots.iter().map(|slot| slot.host.size))?;
        plan.clear();
        let mut before: Option<Sent> = None;
        for &param in &self.order {
            let param = usize::from(param);
            let slot = self.slots[param];
            let (start, bytes) = plan::part(parts, param, slot.host.size);
            if bytes == 0 || !plan::is_sent(slot.flags, single_send_done) {
                continue;
            }
            let staged = slot.region == 0 && slot.end() <= self.staged.into();
            let next = Sent { slot, param, start, bytes, staged };
            if !before.is_some_and(|before| self.joins(&before, &next, plan)) {
                self.begin(&next, peer, plan);
            }
            before = Some(next);
        }
        Ok(())
    }

    fn begin(&self, next: &Sent, peer: &[RemoteRegion], plan: &mut CallPlan) {
        let Some(region) = peer.get(usize::from(next.slot.region)) else { return };
        let Piece { param, offset, length } = self.piece(next);
        plan.push_to(param, offset, length, region.addr.wrapping_add(next.offset()), region.rkey);
    }

    /// Extends the plan's last WRITE, which must end with the part `before`, by the part `next`. Returns false and adds
    /// nothing if one WRITE cannot cover both parts.
    fn joins(&self, before: &Sent, next: &Sent, plan: &mut CallPlan) -> bool {
        let Some(gap) = before.gap_to(next) else { return false };
        let bytes = u64::from(gap) + u64::from(next.bytes);
        let gathers = matches!(self.layout, Layout::Packed { .. } | Layout::Gathered);
        if before.staged && next.staged && plan.has_room(0, bytes) {
            plan.extend(gap + next.bytes);
            true
        } else if gathers && plan.has_room(if gap > 0 { 2 } else { 1 }, bytes) {
            if gap > 0 {
                plan.append(Piece { param: self.staging(), offset: self.zeros.into(), length: gap });
            }
            plan.append(self.piece(next));
            true
        } else {
            false
        }
    }

    /// Returns the location of the part `sent` in the host's memory.
    fn piece(&self, sent: &Sent) -> Piece {
        let (param, offset) =
            if sent.staged { (self.staging(), sent.offset()) } else { (sent.param, sent.start) };
        Piece { param, offset, length: sent.bytes }
    }

    /// Returns the number of the staging region, which follows the numbers of the session's parameters.
    fn staging(&self) -> usize {
        self.slots.len()
    }
}
