//! Tables that change while packets flow.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    DropCause, Drops, Forwarded, LbCounters, LbId, LbTables, Route, Rules, Tables, Traffic,
    addresses::Addresses,
    packet::Packet,
    rewrite,
    sets::{BeyondHorizon, NO_HORIZON, Set, Sets, StageError, WithdrawError},
    tables::Found,
    tally::Tally,
    version,
};
use crate::{Time, segment::IpVersion, wire::LbHeader};

/// The state of a data plane: for each load balancer the current tables, the staged ones with their first ticks, and
/// counters.
///
/// A packet meets the tables of its own tick. All segments of an event have the same tick, and tables are staged from
/// ticks that no packet has had yet, so an update splits no event. Each load balancer has its own ticks, since
/// different experiments count differently. The destination addresses belong to the whole data plane: they change at
/// once, whatever the tick. A source address is allowed as soon as the tables for its packet's tick, or any tables for
/// later ticks, allow it.
#[derive(Clone, Debug)]
pub struct Balancer {
    destinations: Arc<Addresses<LbId>>,
    lbs: Box<[Sets]>,
    pub(super) tally: Tally,
}

impl Balancer {
    /// The most staged sets of tables of one load balancer.
    pub const MOST_STAGED: usize = 16;

    /// `seed` is the seed of the members' hash table.
    pub fn new(tables: &Tables, seed: u64) -> Self {
        let destinations = tables.destinations.clone();
        let lbs = LbId::all().map(|lb| Sets::new(tables.of(lb).clone())).collect();
        let mut balancer = Self { destinations, lbs, tally: Tally::new(seed) };
        balancer.find_all_places();
        balancer
    }

    pub(super) fn of(&self, lb: LbId) -> &Sets {
        &self.lbs[lb.index()]
    }

    /// Returns the addresses to which packets are sent, each with its load balancer.
    pub(super) fn destinations(&self) -> impl Iterator<Item = (IpAddr, LbId)> + '_ {
        self.destinations.iter()
    }

    pub(super) fn load_balancers(&self) -> impl Iterator<Item = (LbId, &Sets)> {
        LbId::all().zip(&self.lbs)
    }

    pub(super) fn of_mut(&mut self, lb: LbId) -> &mut Sets {
        &mut self.lbs[lb.index()]
    }

    /// Checks whether [`Balancer::stage`] would refuse tables of a load balancer from a tick on.
    pub fn check(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        self.of(lb).place_for(from, false).map(drop)
    }

    /// Stages a load balancer's tables for packets from a tick on, which must be above the ticks that were routed
    /// lately. They apply until the first tick of the next set.
    pub fn stage(&mut self, tables: Arc<LbTables>, from: u64) -> Result<(), StageError> {
        let at = self.of(tables.lb()).place_for(from, false)?;
        self.insert(at, tables, from);
        Ok(())
    }

    fn insert(&mut self, at: usize, tables: Arc<LbTables>, from: u64) {
        let lb = tables.lb();
        self.of_mut(lb).insert(at, Set::new(from, tables));
        self.find_places(lb, at);
    }

    fn put(&mut self, at: usize, tables: Arc<LbTables>, from: u64) {
        let lb = tables.lb();
        self.of_mut(lb).sets[at] = Set::new(from, tables);
        self.find_places(lb, at);
    }

    /// Stages like [`Balancer::stage`], but replaces tables that are staged from the same tick on, since no packet can
    /// have met them.
    pub fn stage_in_place(&mut self, tables: Arc<LbTables>, from: u64) -> Result<(), StageError> {
        let of = self.of(tables.lb());
        match of.place_for(from, true) {
            Err(StageError::Taken { .. }) => {
                let at = of.sets.partition_point(|set| set.from < from);
                self.put(at, tables, from);
            }
            Ok(at) => self.insert(at, tables, from),
            Err(why) => return Err(why),
        }
        Ok(())
    }

    /// Returns the first tick from which [`Balancer::stage_next`] would apply tables of a load balancer.
    pub fn check_next(&self, lb: LbId) -> Result<u64, StageError> {
        self.of(lb).next().map(|(from, _)| from)
    }

    /// Stages tables from the first possible tick on, which is returned. If no packet has met the tables of that tick,
    /// they are replaced.
    pub fn stage_next(&mut self, tables: Arc<LbTables>) -> Result<u64, StageError> {
        let of = self.of(tables.lb());
        match of.next()? {
            (from, Some(at)) => {
                self.put(at, tables, from);
                Ok(from)
            }
            (from, None) => {
                let at = of.place_for(from, true)?;
                self.insert(at, tables, from);
                Ok(from)
            }
        }
    }

    /// Checks whether [`Balancer::force`] would refuse tables of a load balancer from a tick on.
    pub fn check_forced(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        let sets = &self.of(lb).sets;
        let kept = sets.partition_point(|set| set.from < from);
        if kept == sets.capacity() { Err(StageError::Full) } else { Ok(()) }
    }

    /// Applies a load balancer's tables from a tick on, whatever was routed or staged. Its sets that would begin at
    /// this tick or later are dropped, and their number is returned. Events of this tick and later ones that are in
    /// flight may be split.
    pub fn force(&mut self, tables: Arc<LbTables>, from: u64) -> Result<usize, StageError> {
        let lb = tables.lb();
        self.check_forced(lb, from)?;
        let of = self.of_mut(lb);
        let kept = of.sets.partition_point(|set| set.from < from);
        let dropped = of.sets.len() - kept;
        of.sets.truncate(kept);
        of.sets.push(Set::new(from, tables));
        // Higher ticks are forgotten, so that a sender whose clock was wrong does not block the next tables.
        let below = |newest: Option<u64>| from.checked_sub(1).and_then(|most| Some(newest?.min(most)));
        (of.newest, of.before, of.last) = (below(of.newest), below(of.before), below(of.last));
        self.find_places(lb, kept);
        Ok(dropped)
    }

    /// Withdraws a load balancer's tables that were staged from a tick on: the tables before them apply instead. No
    /// packet may have met them, neither a routed nor a dropped one. Packets from addresses that no earlier tables
    /// allow do not count.
    pub fn withdraw(&mut self, lb: LbId, from: u64) -> Result<(), WithdrawError> {
        let sets = &mut self.of_mut(lb).sets;
        let at =
            sets.iter().skip(1).position(|set| set.from == from).ok_or(WithdrawError::Absent { from })? + 1;
        if sets[at].hits > 0 || sets[at].dropped > 0 {
            return Err(WithdrawError::Routed { from });
        }
        sets.remove(at);
        self.tally.tables_changed();
        Ok(())
    }

    /// Replaces all sets of all load balancers by these tables, for every tick and at once: events in flight may be
    /// split.
    pub fn replace(&mut self, tables: &Tables) {
        self.destinations = tables.destinations.clone();
        for (lb, of) in LbId::all().zip(&mut self.lbs) {
            of.sets.clear();
            of.sets.push(Set::new(0, tables.of(lb).clone()));
        }
        self.find_all_places();
    }

    /// Replaces all sets of a load balancer by these tables and forgets which of its ticks were routed, because its
    /// senders count from a lower tick again. There is no horizon afterwards. Events in flight may be split.
    pub fn reset(&mut self, tables: Arc<LbTables>) {
        let lb = tables.lb();
        *self.of_mut(lb) = Sets::new(tables);
        self.find_places(lb, 0);
    }

    /// Replaces the addresses to which packets are sent, at once.
    pub fn set_destinations(&mut self, rules: &Rules) {
        self.destinations = Arc::new(Tables::destinations(rules));
    }

    /// Sets the highest tick that is remembered when it is routed. So forged ticks above the horizon do not block new
    /// tables. Ticks up to the horizon are not forgotten any more. If the horizon rises above ticks that were counted
    /// as beyond it, some of these count as routed from now on: the highest one if none is above the new horizon, else
    /// the lowest one, since no others are known.
    pub fn set_horizon(&mut self, lb: LbId, horizon: u64) {
        self.of_mut(lb).set_horizon(horizon);
    }

    /// Returns what a load balancer routed above its horizon since it has a horizon or was reset. It is `None` again
    /// when the horizon reaches the highest of these ticks.
    pub fn beyond(&self, lb: LbId) -> Option<BeyondHorizon> {
        self.of(lb).beyond
    }

    /// Finds the counters for the members of a new set.
    fn find_places(&mut self, lb: LbId, at: usize) {
        match self.tally.places(&self.of(lb).sets[at].tables.clone()) {
            Some(places) => self.of_mut(lb).sets[at].places = places,
            None => self.find_all_places(),
        }
    }

    fn find_all_places(&mut self) {
        let all: Vec<_> = self.lbs.iter().flat_map(|of| &of.sets).map(|set| &set.tables).collect();
        let places = self.tally.all_places(&all);
        for (set, places) in self.lbs.iter_mut().flat_map(|of| &mut of.sets).zip(places) {
            set.places = places;
        }
    }

    /// Drops sets of a load balancer that only ticks below this one would meet, and returns their number. Packets with
    /// such a tick that arrive even later meet the oldest set that is left.
    pub fn retire(&mut self, lb: LbId, below_tick: u64) -> usize {
        let sets = &mut self.of_mut(lb).sets;
        let over = sets.iter().skip(1).take_while(|set| set.from <= below_tick).count();
        sets.drain(..over);
        over
    }

    /// Returns the newest tick that a load balancer routed lately, or since it has a horizon. Tables can be staged from
    /// the next tick on.
    pub fn newest_tick(&self, lb: LbId) -> Option<u64> {
        self.of(lb).newest_tick()
    }

    /// Forgets ticks that were routed before the previous call of this, for load balancers without a horizon. Events of
    /// ticks that are not sent any more are over, and a sender's clock that was wrong once does not block new tables
    /// any more. Call it every few seconds.
    pub fn age(&mut self) {
        for of in self.lbs.iter_mut().filter(|of| of.horizon == NO_HORIZON) {
            let forgotten = std::mem::replace(&mut of.before, of.newest.take());
            if of.before.is_none() {
                of.last = forgotten.or(of.last);
            }
        }
    }

    /// Returns a load balancer's sets, each as its first tick and the number of packets that it routed. The first set
    /// also has all ticks before the second one.
    pub fn sets(&self, lb: LbId) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.of(lb).sets.iter().map(|set| (set.from, set.hits))
    }

    /// Returns the first tick of the set that a load balancer's next new tick meets.
    pub fn next_set(&self, lb: LbId) -> u64 {
        let sets = self.of(lb);
        sets.sets[sets.upcoming()].from
    }

    /// Returns where a UDP datagram with an LB header goes. It came from the address `from` to the address `to`. Its
    /// bytes are counted.
    pub fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let Some(lb) = self.destinations.get(to) else {
            self.tally.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let (at, found) = self.find_for(lb, from, &header);
        let cut = |keeps| if keeps { 0 } else { LbHeader::LEN };
        let places = &self.lbs[lb.index()].sets[at].places;
        let sent = found.map(|found| (places[found.at], datagram.len() - cut(found.forward.keep_lb_header)));
        let route = found.map(Found::route);
        self.count(at, lb, || from, &header, datagram.len(), sent);
        route
    }

    /// Returns the same as [`Balancer::route`], but counts nothing.
    pub fn find(&self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let lb = self.destinations.get(to).ok_or(DropCause::BadIp)?;
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        self.find_for(lb, from, &header).1.map(Found::route)
    }

    /// Returns the index of the set that a datagram meets, and the result of its tables.
    #[inline]
    fn find_for(
        &self,
        lb: LbId,
        from: IpAddr,
        header: &Result<LbHeader, DropCause>,
    ) -> (usize, Result<Found<'_>, DropCause>) {
        let sets = &self.lbs[lb.index()];
        let at = sets.at_of(header);
        let found = match header {
            _ if !sets.allows(at, from) => Err(DropCause::BlockedSrc),
            Err(cause) => Err(*cause),
            Ok(header) => sets.sets[at].tables.find(version(from), header),
        };
        (at, found)
    }

    /// Returns the member that the tables of a tick name, whatever its addresses. Nothing is counted.
    pub fn member(&self, lb: LbId, header: &LbHeader) -> Option<u16> {
        let sets = self.of(lb);
        let tables = &sets.sets[sets.at(header.tick)].tables;
        let found = [IpVersion::V4, IpVersion::V6].map(|ip| tables.find(ip, header).ok());
        found.into_iter().flatten().next().map(|found| found.route().member)
    }

    /// Forwards a whole IP packet in place, as [`rewrite`] does. Its bytes are counted.
    pub fn forward(&mut self, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
        let packet = Packet::parse(bytes).inspect_err(|&cause| self.tally.unaddressed.add(cause))?;
        let Some(lb) = self.destinations.get(packet.to(bytes)) else {
            self.tally.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let header = packet.lb_header(bytes);
        let sets = &self.lbs[lb.index()];
        let at = sets.at_of(&header);
        let Set { tables, places, .. } = &sets.sets[at];
        let is_allowed = sets.allows(at, packet.from(bytes));
        let forwarded = rewrite::forward(tables, is_allowed, packet, header, bytes);
        let sent = forwarded.map(|(start, found)| (places[found.at], bytes.len() - start));
        let forwarded = forwarded.map(|(start, found)| Forwarded { start, route: found.route() });
        // The addresses can still be read, since a dropped packet is not changed.
        self.count(at, lb, || packet.from(bytes), &header, bytes.len(), sent);
        forwarded
    }

    #[inline]
    fn count(
        &mut self,
        at: usize,
        lb: LbId,
        from: impl FnOnce() -> IpAddr,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(u32, usize), DropCause>,
    ) {
        self.tally.count(lb, header, bytes, sent);
        if let Ok(header) = header {
            let of = &mut self.lbs[lb.index()];
            match sent {
                Ok(_) => of.routed(at, header.tick),
                Err(cause) => of.dropped(at, cause, from()),
            }
        }
    }

    pub fn counters(&self, lb: LbId) -> &LbCounters {
        self.tally.lb(lb)
    }

    /// Checks which members are in use. [`Balancer::members`] omits a member that the tables of new ticks do not have
    /// when nothing was sent to it for a minute. If no tables have it, it loses its counters then. Call this every few
    /// seconds; calls within a second cost nothing as long as the tables do not change. A time that is earlier than
    /// that of a previous call counts as the later one.
    pub fn look_at_members(&mut self, now: Time) {
        let live = self.lbs.iter().flat_map(|of| &of.sets[of.upcoming()..]);
        let all = self.lbs.iter().flat_map(|of| &of.sets);
        self.tally.look(now, live.map(|set| &*set.tables), all.map(|set| &*set.tables));
    }

    /// Returns what was sent to each member, in order: the members of the tables, and those to which something was sent
    /// in the last minute. Members keep their counters when tables change.
    pub fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.tally.members()
    }

    /// Returns what was sent to members that [`Balancer::members`] omits, by member id, for all load balancers
    /// together.
    pub fn gone(&self) -> BTreeMap<u16, Traffic> {
        self.tally.gone()
    }

    /// Returns the counters of packets that belong to no load balancer: [`DropCause::NotIp`] and [`DropCause::BadIp`].
    pub fn unaddressed(&self) -> &Drops {
        &self.tally.unaddressed
    }
}
