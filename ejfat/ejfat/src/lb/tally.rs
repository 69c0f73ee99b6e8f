//! What is counted while packets flow.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::quality::FixedState;

use super::{DropCause, Drops, LbCounters, LbId, Tables, Traffic};
use crate::wire::LbHeader;

/// Where the counters of the members of some tables are, by their place in these.
pub(super) type Places = Vec<u32>;

/// Of a member that no rule describes: nothing is sent to it.
const UNCOUNTED: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Tally {
    lbs: [LbCounters; LbId::COUNT],
    members: HashMap<(LbId, u16), u32, FixedState>,
    /// Of each member, where `members` says.
    traffic: Vec<Traffic>,
    pub(super) unaddressed: Drops,
}

impl Tally {
    /// Members that are counted for: more than the tables of all sets have.
    const MOST_MEMBERS: usize = 1024 * LbId::COUNT;

    pub(super) fn new(seed: u64) -> Self {
        Self {
            lbs: Default::default(),
            members: HashMap::with_hasher(FixedState::with_seed(seed)),
            traffic: Vec::new(),
            unaddressed: Drops::default(),
        }
    }

    /// Counters for the members of all tables there are; they keep those they have. Members of no table lose theirs when
    /// there are too many.
    pub(super) fn places(&mut self, all: &[&Arc<Tables>]) -> Vec<Places> {
        let keys = || all.iter().flat_map(|tables| tables.members().flatten());
        keys().for_each(|key| self.add(key, Traffic::default()));
        if self.members.len() > Self::MOST_MEMBERS {
            let before = self.members();
            self.members.clear();
            self.traffic.clear();
            keys().for_each(|key| self.add(key, before.get(&key).copied().unwrap_or_default()));
        }
        let place = |key| self.members.get(&key).copied().unwrap_or(UNCOUNTED);
        let places = |tables: &Tables| tables.members().map(|key| key.map_or(UNCOUNTED, place)).collect();
        all.iter().map(|tables| places(tables)).collect()
    }

    fn add(&mut self, key: (LbId, u16), traffic: Traffic) {
        let next = self.traffic.len() as u32;
        if *self.members.entry(key).or_insert(next) == next {
            self.traffic.push(traffic);
        }
    }

    /// A load balancer's packet of so many bytes, and what became of it: where the counters of its member are, and its
    /// bytes then.
    #[inline(always)]
    pub(super) fn count(
        &mut self,
        lb: LbId,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(u32, usize), DropCause>,
    ) {
        let version = header.as_ref().map(LbHeader::version).ok();
        self.lbs[lb.index()].add(bytes, version, sent.err());
        if let Ok((place, bytes)) = sent
            && let Some(traffic) = self.traffic.get_mut(place as usize)
        {
            traffic.add(bytes);
        }
    }

    pub(super) fn lb(&self, lb: LbId) -> &LbCounters {
        &self.lbs[lb.index()]
    }

    pub(super) fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.members.iter().map(|(&key, &place)| (key, self.traffic[place as usize])).collect()
    }
}
