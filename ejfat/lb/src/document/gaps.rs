//! Finds what a document forgot. Events that meet such a slot or member are dropped.

use std::collections::{BTreeMap, BTreeSet};

use super::{DocumentError, Lb, calendar, ranges};

/// Refuses calendars that are too short, and members of calendars that the document does not define.
pub(super) fn check(of: &Lb) -> Result<(), DocumentError> {
    let problem = |problem| DocumentError::Text { lb: of.lb, problem };
    let mut calendars: BTreeMap<u32, CalendarSlots> = BTreeMap::new();
    for epoch in &of.epochs {
        let slots = calendar::parse(&epoch.calendar)
            .map_err(|why| problem(format!("calendar of epoch {}: {why}", epoch.id)))?;
        let calendar = calendars.entry(epoch.id).or_default();
        calendar.given = calendar.given.max(slots.len());
        // An epoch without ticks may have no calendar, but not a part of one.
        if !epoch.ticks.is_empty() || !slots.is_empty() {
            calendar.wanted = calendar.wanted.max(1 << epoch.slot_bits.min(ejfat::lb::Epoch::MOST_BITS));
        }
        calendar.members.extend(slots.into_iter().flatten());
    }
    let mut gaps = Vec::new();
    for (id, CalendarSlots { given, wanted, .. }) in &calendars {
        if given < wanted {
            let missing = wanted - given;
            let slots: Vec<_> = (*given..*wanted).collect();
            gaps.push(format!(
                "the calendar of epoch {id} has {given} of {wanted} slots, so slots {} have no member; add members, or \
                 -x{missing} if they are to have none",
                ranges(&slots)
            ));
        }
    }
    let defined: BTreeSet<u16> = of.members.iter().map(|member| member.id).collect();
    let named: BTreeSet<u16> = calendars.into_values().flat_map(|calendar| calendar.members).collect();
    let missing: Vec<_> = named.difference(&defined).map(|&id| id.into()).collect();
    if !missing.is_empty() {
        gaps.push(format!(
            "calendars name members that are not defined: {}; add them under members, or take them out of the calendars",
            ranges(&missing)
        ));
    }
    if gaps.is_empty() { Ok(()) } else { Err(problem(gaps.join("; "))) }
}

#[derive(Default)]
struct CalendarSlots {
    given: usize,
    wanted: usize,
    members: BTreeSet<u16>,
}
