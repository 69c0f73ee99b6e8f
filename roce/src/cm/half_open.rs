//! Requests that are not connections yet: how many each source has, and which one makes room.
//!
//! A flood must not keep others out. So no source fills the table alone, and when it is full a source without a
//! request displaces the oldest one of the source that has most.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use verbs::CmId;

#[derive(Debug, Default)]
pub(super) struct HalfOpen {
    /// IDs are given out in order, so the oldest comes first.
    sources: BTreeMap<CmId, IpAddr>,
    numbers: BTreeMap<IpAddr, usize>,
    by_number: BTreeSet<(usize, IpAddr)>,
}

impl HalfOpen {
    pub(super) fn len(&self) -> usize {
        self.sources.len()
    }

    /// The oldest first.
    pub(super) fn ids(&self) -> impl Iterator<Item = CmId> {
        self.sources.keys().copied()
    }

    pub(super) fn of(&self, source: IpAddr) -> usize {
        self.numbers.get(&source).copied().unwrap_or(0)
    }

    pub(super) fn insert(&mut self, id: CmId, source: IpAddr) {
        if self.sources.insert(id, source).is_none() {
            self.count(source, |n| n + 1);
        }
    }

    pub(super) fn remove(&mut self, id: CmId) {
        if let Some(source) = self.sources.remove(&id) {
            self.count(source, |n| n - 1);
        }
    }

    fn count(&mut self, source: IpAddr, change: impl FnOnce(usize) -> usize) {
        let before = self.of(source);
        let after = change(before);
        self.by_number.remove(&(before, source));
        if after > 0 {
            self.numbers.insert(source, after);
            self.by_number.insert((after, source));
        } else {
            self.numbers.remove(&source);
        }
    }

    /// Which of those that `may` go makes room for a request from `source`: none, if no other source has more than
    /// this one then would.
    pub(super) fn displaced_by(&self, source: IpAddr, may: impl Fn(CmId) -> bool) -> Option<CmId> {
        let own = self.of(source);
        let displaces = |number| own == 0 || number > own + 1;
        // Told without a look at all of them, which a flood would ask for with every request.
        let most = self.by_number.last().map_or(0, |(number, _)| *number);
        if !displaces(most) {
            return None;
        }
        let mut candidates: BTreeMap<IpAddr, (usize, CmId)> = BTreeMap::new();
        for (id, source) in self.sources.iter().filter(|(id, _)| may(**id)) {
            candidates.entry(*source).or_insert((0, *id)).0 += 1;
        }
        let older = |(number, id): &(usize, CmId)| (*number, std::cmp::Reverse(*id));
        candidates.into_values().max_by_key(older).filter(|(number, _)| displaces(*number)).map(|(_, id)| id)
    }
}
