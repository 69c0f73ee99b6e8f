//! The counters of load balancers and members, which change while packets flow.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use foldhash::quality::FixedState;

use super::{DropCause, Drops, LbCounters, LbId, LbTables, Table, Traffic};
use crate::{Time, wire::LbHeader};

/// The indexes of the members' counters in `PacketCounters::traffic`, in the order of [`LbTables::members`].
pub(super) type Places = Vec<u32>;

/// The value that a member without rules has instead of an index of counters. A member without rules needs no counters,
/// because no packet is sent to this member.
const UNCOUNTED: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct PacketCounters {
    lbs: Box<[LbCounters]>,
    members: HashMap<(LbId, u16), u32, FixedState>,
    /// The counters of members: how many packets and bytes were sent to each member. The index of a member's counters
    /// is stored in `members`.
    traffic: Vec<Traffic>,
    /// The indexes in `traffic` that no member uses any more.
    vacant: Vec<u32>,
    /// The numbers of packets and bytes that were sent to former members. The counters of a former member were removed
    /// from `traffic`, because no tables have a rule for this member any more. The key is the member id, and the counts
    /// of members with the same id on different load balancers are added up.
    forgotten: BTreeMap<u16, Traffic>,
    /// The leaving members. A member is leaving if the tables for the ticks that are not routed yet have no rule for
    /// it.
    leaving: BTreeMap<(LbId, u16), Leaving>,
    now: Time,
    /// The time at which [`PacketCounters::look`] last compared members with tables, or `None` if the tables have
    /// changed since that comparison.
    looked: Option<Time>,
    pub(super) unaddressed: Drops,
}

/// The number of packets that were sent to a leaving member, and the time since which this number has not
/// changed. A member is leaving if the tables for ticks above the highest routed tick have no rule for it.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    packets: u64,
    since: Time,
}

impl Leaving {
    fn is_over(&self, now: Time) -> bool {
        now >= self.since + PacketCounters::REMEMBERED
    }
}

impl PacketCounters {
    /// The time without a packet after which [`PacketCounters::members`] omits a leaving member. A member is
    /// leaving if the tables for ticks above the highest routed tick have no rule for it. A member that is
    /// registered again within this time keeps its counters.
    pub(super) const REMEMBERED: Duration = Duration::from_secs(60);

    /// The minimum time after which [`PacketCounters::look`] compares the members with unchanged tables again.
    /// Comparing the members with the tables takes long, because every member is visited.
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// The maximum number of members with counters. If the number of members with counters exceeds this maximum,
    /// members that are in no tables lose their counters.
    const MOST_MEMBERS: usize = 4 * Table::Member.limit();

    pub(super) fn new(seed: u64) -> Self {
        Self {
            lbs: vec![LbCounters::default(); LbId::COUNT].into(),
            members: HashMap::with_hasher(FixedState::with_seed(seed)),
            traffic: Vec::new(),
            vacant: Vec::new(),
            forgotten: BTreeMap::new(),
            leaving: BTreeMap::new(),
            now: Time::default(),
            looked: None,
            unaddressed: Drops::default(),
        }
    }

    /// Makes sure that each member for which the new tables have a rule has counters, and returns the indexes of the
    /// members' counters. Returns `None` if more than [`PacketCounters::MOST_MEMBERS`] members have counters then. If
    /// the result is `None`, the caller must call [`PacketCounters::all_places`].
    pub(super) fn places(&mut self, tables: &LbTables) -> Option<Places> {
        self.looked = None;
        tables.described().for_each(|key| self.add(key, Traffic::default()));
        (self.members.len() <= Self::MOST_MEMBERS).then(|| self.places_of(tables))
    }

    fn places_of(&self, tables: &LbTables) -> Places {
        let place = |key| self.members.get(&key).copied().unwrap_or(UNCOUNTED);
        tables.members().map(|key| key.map_or(UNCOUNTED, place)).collect()
    }

    /// Notes that the tables changed, so that the next call of [`PacketCounters::look`] compares members with the
    /// tables.
    pub(super) fn tables_changed(&mut self) {
        self.looked = None;
    }

    /// Makes sure that each member for which the tables in `all` have a rule has counters, and returns the indexes of
    /// the members' counters. The result has one element for each element of `all`. If more than
    /// [`PacketCounters::MOST_MEMBERS`] members have counters, members that are in no tables lose their counters.
    pub(super) fn all_places(&mut self, all: &[&Arc<LbTables>]) -> Vec<Places> {
        self.looked = None;
        let keys = || all.iter().flat_map(|tables| tables.described());
        keys().for_each(|key| self.add(key, Traffic::default()));
        if self.members.len() > Self::MOST_MEMBERS {
            let mut before: HashMap<_, _> =
                self.members.drain().map(|(key, place)| (key, self.traffic[place as usize])).collect();
            self.traffic.clear();
            self.vacant.clear();
            keys().for_each(|key| self.add(key, before.remove(&key).unwrap_or_default()));
            before.into_iter().for_each(|(key, traffic)| self.forget(key, traffic));
            self.leaving.retain(|key, _| self.members.contains_key(key));
        }
        all.iter().map(|tables| self.places_of(tables)).collect()
    }

    fn add(&mut self, key: (LbId, u16), traffic: Traffic) {
        let Entry::Vacant(entry) = self.members.entry(key) else { return };
        let place = *entry.insert(self.vacant.pop().unwrap_or(self.traffic.len() as u32));
        match self.traffic.get_mut(place as usize) {
            Some(vacant) => *vacant = traffic,
            None => self.traffic.push(traffic),
        }
    }

    /// Updates the list of leaving members. A member is leaving if none of the tables in `live` has a rule for it. The
    /// tables in `live` apply to the ticks after the highest routed tick. A leaving member is forgotten when no packet
    /// was sent to it for the time [`PacketCounters::REMEMBERED`]. It is not forgotten while one of the tables in `all`
    /// has a rule for it. The tables in `all` include the tables of earlier ticks, which may still route a late packet.
    /// The method does nothing if it has compared the members with the same tables less than a second ago.
    pub(super) fn look<'a>(
        &mut self,
        now: Time,
        live: impl Iterator<Item = &'a LbTables>,
        all: impl Iterator<Item = &'a LbTables>,
    ) {
        let now = now.max(self.now);
        if self.looked.is_some_and(|looked| now < looked + Self::LOOK_EVERY) {
            return;
        }
        (self.now, self.looked) = (now, Some(now));
        let live: HashSet<_> = live.flat_map(LbTables::described).collect();
        let all: HashSet<_> = all.flat_map(LbTables::described).collect();
        let mut forgotten = Vec::new();
        for (&key, &place) in &self.members {
            if live.contains(&key) {
                self.leaving.remove(&key);
                continue;
            }
            let packets = self.traffic[place as usize].packets;
            let fresh = Leaving { packets, since: self.now };
            let leaving = self.leaving.entry(key).or_insert(fresh);
            if leaving.packets != packets {
                *leaving = fresh;
            }
            if leaving.is_over(self.now) && !all.contains(&key) {
                forgotten.push((key, place));
            }
        }
        for (key, place) in forgotten {
            self.members.remove(&key);
            self.leaving.remove(&key);
            self.vacant.push(place);
            self.forget(key, self.traffic[place as usize]);
        }
    }

    /// Adds the packets that an engine has counted to the counters of the data plane.
    pub(super) fn absorb(
        &mut self,
        unaddressed: &Drops,
        lbs: &BTreeMap<LbId, LbCounters>,
        members: &BTreeMap<(LbId, u16), Traffic>,
    ) {
        self.unaddressed.absorb(unaddressed);
        lbs.iter().for_each(|(lb, counters)| self.lbs[lb.index()].absorb(counters));
        for (&key, &traffic) in members {
            match self.members.get(&key) {
                Some(&place) => self.traffic[place as usize].absorb(traffic),
                None => self.forget(key, traffic),
            }
        }
    }

    fn forget(&mut self, (_, id): (LbId, u16), traffic: Traffic) {
        self.forgotten.entry(id).or_default().absorb(traffic);
    }

    /// Counts a packet of `bytes` bytes for a load balancer. If the packet was sent to a member, `sent` contains the
    /// index of the member's counters and the number of sent bytes. If the packet was dropped, `sent` contains the drop
    /// cause.
    #[inline(always)]
    pub(super) fn count(
        &mut self,
        lb: LbId,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(u32, usize), DropCause>,
    ) {
        let version = header.as_ref().map(LbHeader::version).ok();
        self.lbs[lb.index()].add(bytes, version, sent.map(|(_, bytes)| bytes));
        if let Ok((place, bytes)) = sent
            && let Some(traffic) = self.traffic.get_mut(place as usize)
        {
            traffic.add(bytes);
        }
    }

    pub(super) fn lb(&self, lb: LbId) -> &LbCounters {
        &self.lbs[lb.index()]
    }

    fn is_gone(&self, key: &(LbId, u16)) -> bool {
        self.leaving.get(key).is_some_and(|leaving| leaving.is_over(self.now))
    }

    pub(super) fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        let shown = self.members.iter().filter(|(key, _)| !self.is_gone(key));
        shown.map(|(&key, &place)| (key, self.traffic[place as usize])).collect()
    }

    pub(super) fn gone(&self) -> BTreeMap<u16, Traffic> {
        let mut gone = self.forgotten.clone();
        for (key, &place) in self.members.iter().filter(|(key, _)| self.is_gone(key)) {
            gone.entry(key.1).or_default().absorb(self.traffic[place as usize]);
        }
        gone
    }
}
