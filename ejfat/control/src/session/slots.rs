//! Slot demands: the calendar slots that a worker wants for itself.

use crate::request::{Refusal, SlotDemand};

/// Calendar slots next to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotRange {
    /// The number of the first slot.
    pub first: u32,
    /// The number of slots.
    pub count: u32,
}

/// Which slots are demanded.
#[derive(Clone, Debug)]
pub(crate) struct TakenSlots(Vec<bool>);

impl TakenSlots {
    pub(crate) fn new(slots: u32) -> Self {
        Self(vec![false; slots as usize])
    }

    /// Takes a range. Returns `false`, and takes nothing, if it is empty, ends beyond the last slot or overlaps another.
    pub(crate) fn take(&mut self, range: SlotRange) -> bool {
        let end = range.first.checked_add(range.count).map(|end| end as usize);
        let slots = end.and_then(|end| self.0.get_mut(range.first as usize..end));
        match slots {
            Some(slots) if !slots.is_empty() && slots.iter().all(|taken| !taken) => {
                slots.fill(true);
                true
            }
            _ => false,
        }
    }

    /// The first gap of `count` slots.
    fn gap(&self, count: u32) -> Option<SlotRange> {
        let mut free = 0;
        let end = self.0.iter().position(|taken| {
            free = if *taken { 0 } else { free + 1 };
            free == count
        })?;
        Some(SlotRange { first: (end + 1) as u32 - count, count })
    }

    /// Finds the slots of demands: first those that name them, then the others, each in the first gap that is wide enough.
    /// Returns the ranges of each group, in order.
    pub(crate) fn place(&mut self, groups: &[&[SlotDemand]]) -> Result<Vec<Vec<SlotRange>>, Refusal> {
        let slots = self.0.len();
        let all =
            || groups.iter().enumerate().flat_map(|(at, group)| group.iter().map(move |demand| (at, demand)));
        if all().nth(slots).is_some() {
            return Err(Refusal::invalid(format!("there are more slot demands than the {slots} slots")));
        }
        let mut placed = vec![Vec::new(); groups.len()];
        for (group, demand) in all().filter(|(_, demand)| demand.index != -1) {
            let range = self.take_fixed(demand)?;
            placed[group].push(range);
        }
        for (group, demand) in all().filter(|(_, demand)| demand.index == -1) {
            let range = self.gap(demand.length).filter(|range| self.take(*range)).ok_or_else(|| {
                Refusal::invalid(format!("there is no gap of {} slots, or none was asked for", demand.length))
            })?;
            placed[group].push(range);
        }
        placed.iter_mut().for_each(|ranges| ranges.sort());
        Ok(placed)
    }

    fn take_fixed(&mut self, demand: &SlotDemand) -> Result<SlotRange, Refusal> {
        let SlotDemand { index, length } = *demand;
        let range = u32::try_from(index).map(|first| SlotRange { first, count: length });
        range.ok().filter(|range| self.take(*range)).ok_or_else(|| {
            Refusal::invalid(format!(
                "the slot demand of {length} slots from {index} on is empty, ends beyond the {} slots, or overlaps another; \
                 -1 is the first gap",
                self.0.len()
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(demands: &[(i32, u32)]) -> Option<Vec<(u32, u32)>> {
        let demands: Vec<_> = demands.iter().map(|&(index, length)| SlotDemand { index, length }).collect();
        let mut placed = TakenSlots::new(16).place(&[&demands]).ok()?;
        Some(placed.remove(0).into_iter().map(|range| (range.first, range.count)).collect())
    }

    #[test]
    fn demands_that_name_no_slot_get_the_first_gap_that_is_left_by_the_others() {
        assert_eq!(place(&[(-1, 3), (2, 2)]), Some(vec![(2, 2), (4, 3)]));
        assert_eq!(place(&[(-1, 2), (-1, 2), (2, 2)]), Some(vec![(0, 2), (2, 2), (4, 2)]));
        assert_eq!(place(&[(-1, 16)]), Some(vec![(0, 16)]));
    }

    #[test]
    fn demands_that_overlap_are_empty_or_end_beyond_the_slots_are_refused() {
        for demands in [
            &[(0, 2), (1, 1)][..],
            &[(0, 17)],
            &[(15, 2)],
            &[(16, 1)],
            &[(3, 0)],
            &[(-1, 0)],
            &[(-2, 1)],
            &[(-1, 9), (-1, 8)],
            &[(i32::MAX, u32::MAX)],
            &[(-1, u32::MAX)],
            &[(-1, 1); 17],
        ] {
            assert_eq!(place(demands), None, "{demands:?}");
        }
    }

    #[test]
    fn groups_share_the_slots() {
        let demand = |index, length| SlotDemand { index, length };
        let placed = TakenSlots::new(8).place(&[&[demand(-1, 4)], &[demand(0, 2)], &[]]).expect("room");
        assert_eq!(
            placed,
            [vec![SlotRange { first: 2, count: 4 }], vec![SlotRange { first: 0, count: 2 }], vec![]]
        );
    }
}
