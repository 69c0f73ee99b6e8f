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

/// The data plane's state: of each load balancer the current tables and those staged, each from a tick on; and counters.
///
/// A packet meets the tables of its own tick. All segments of an event have the same tick, and tables are staged
/// from ticks on that no packet had yet, so that an update splits no event. Each load balancer has ticks of its own, since
/// different experiments count differently. The addresses that packets are sent to are the data plane's: they change at
/// once, whatever the tick. A source is let in as soon as any tables allow it that packets of its tick or of later ones meet.
#[derive(Clone, Debug)]
pub struct Balancer {
    destinations: Arc<Addresses<LbId>>,
    lbs: Box<[Sets]>,
    pub(super) tally: Tally,
}

impl Balancer {
    /// Of one load balancer.
    pub const MOST_STAGED: usize = 16;

    /// `seed` is of the hash table of members.
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

    /// The addresses that packets are sent to.
    pub(super) fn destinations(&self) -> impl Iterator<Item = (IpAddr, LbId)> + '_ {
        self.destinations.iter()
    }

    pub(super) fn load_balancers(&self) -> impl Iterator<Item = (LbId, &Sets)> {
        LbId::all().zip(&self.lbs)
    }

    pub(super) fn of_mut(&mut self, lb: LbId) -> &mut Sets {
        &mut self.lbs[lb.index()]
    }

    /// Whether [`Balancer::stage`] would refuse tables of a load balancer from a tick on.
    pub fn check(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        self.of(lb).place_for(from, false).map(drop)
    }

    /// Applies a load balancer's tables to packets from a tick on that none had lately, until those of its next set do.
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

    /// The same, in the place of tables that are staged from that tick on: no packet can have met them.
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

    /// The first tick that [`Balancer::stage_next`] would apply tables of a load balancer from.
    pub fn check_next(&self, lb: LbId) -> Result<u64, StageError> {
        self.of(lb).next().map(|(from, _)| from)
    }

    /// The same from the first such tick on, which is returned, or in the place of tables that no packet met.
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

    /// Whether [`Balancer::force`] would refuse tables of a load balancer from a tick on.
    pub fn check_forced(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        let sets = &self.of(lb).sets;
        let kept = sets.partition_point(|set| set.from < from);
        if kept == sets.capacity() { Err(StageError::Full) } else { Ok(()) }
    }

    /// Applies a load balancer's tables from a tick on, whatever was routed or staged: its sets that would begin at it or
    /// later are dropped, and their number returned. Events of that tick and later ones that are on their way may be split.
    pub fn force(&mut self, tables: Arc<LbTables>, from: u64) -> Result<usize, StageError> {
        let lb = tables.lb();
        self.check_forced(lb, from)?;
        let of = self.of_mut(lb);
        let kept = of.sets.partition_point(|set| set.from < from);
        let dropped = of.sets.len() - kept;
        of.sets.truncate(kept);
        of.sets.push(Set::new(from, tables));
        // A sender whose clock was wrong must not stand in the way.
        let below = |newest: Option<u64>| from.checked_sub(1).and_then(|most| Some(newest?.min(most)));
        (of.newest, of.before, of.last) = (below(of.newest), below(of.before), below(of.last));
        self.find_places(lb, kept);
        Ok(dropped)
    }

    /// Takes back a load balancer's tables that were staged from a tick on: those before them apply instead. Packets must
    /// not have met them, neither sent nor dropped ones; what came from addresses that no earlier tables allow does not count.
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

    /// Puts tables in the place of all sets of all load balancers, for every tick and at once: events on their way may be
    /// split.
    pub fn replace(&mut self, tables: &Tables) {
        self.destinations = tables.destinations.clone();
        for (lb, of) in LbId::all().zip(&mut self.lbs) {
            of.sets.clear();
            of.sets.push(Set::new(0, tables.of(lb).clone()));
        }
        self.find_all_places();
    }

    /// Puts tables in the place of all sets of a load balancer and forgets which of its ticks were routed, because its
    /// senders count from a lower tick again. There is no horizon then. Events on their way may be split.
    pub fn reset(&mut self, tables: Arc<LbTables>) {
        let lb = tables.lb();
        *self.of_mut(lb) = Sets::new(tables);
        self.find_places(lb, 0);
    }

    /// Replaces the addresses that packets are sent to, at once.
    pub fn set_destinations(&mut self, rules: &Rules) {
        self.destinations = Arc::new(Tables::destinations(rules));
    }

    /// Remembers from now on only ticks up to this one when they are routed, and does not forget them any more. So forged
    /// ticks above it stand in nobody's way. Ticks that were above the horizon before and are not any more count as routed from
    /// now on: the highest of those that were counted, if none is above the new horizon, else the lowest, since no others are
    /// known.
    pub fn set_horizon(&mut self, lb: LbId, horizon: u64) {
        self.of_mut(lb).set_horizon(horizon);
    }

    /// What a load balancer routed above its horizon, since it has one or was reset. There is nothing any more when the
    /// horizon is raised to the highest of these ticks, or above it.
    pub fn beyond(&self, lb: LbId) -> Option<BeyondHorizon> {
        self.of(lb).beyond
    }

    /// Finds the counters of the members of a set that is new.
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

    /// Drops sets of a load balancer that only ticks below this one would meet, and returns their number. Packets that come
    /// even later meet the oldest set that is left.
    pub fn retire(&mut self, lb: LbId, below_tick: u64) -> usize {
        let sets = &mut self.of_mut(lb).sets;
        let over = sets.iter().skip(1).take_while(|set| set.from <= below_tick).count();
        sets.drain(..over);
        over
    }

    /// A load balancer's newest tick that was routed lately, or since there is a horizon: tables can be staged from the next
    /// one on.
    pub fn newest_tick(&self, lb: LbId) -> Option<u64> {
        self.of(lb).newest_tick()
    }

    /// Forgets ticks that were routed before the last time this was called, of load balancers without a horizon. Events of
    /// ticks that nobody sends any more are over, and a sender's clock that was wrong once is no longer in the way. Call it
    /// every few seconds.
    pub fn age(&mut self) {
        for of in self.lbs.iter_mut().filter(|of| of.horizon == NO_HORIZON) {
            let forgotten = std::mem::replace(&mut of.before, of.newest.take());
            if of.before.is_none() {
                of.last = forgotten.or(of.last);
            }
        }
    }

    /// A load balancer's sets, each with its first tick and the packets it routed; the first one has all ticks before the
    /// second, too.
    pub fn sets(&self, lb: LbId) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.of(lb).sets.iter().map(|set| (set.from, set.hits))
    }

    /// The first tick of the set that a load balancer's next new tick meets.
    pub fn next_set(&self, lb: LbId) -> u64 {
        let sets = self.of(lb);
        sets.sets[sets.upcoming()].from
    }

    /// Where a UDP datagram with LB header goes that came to an address from another. Its bytes are counted.
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

    /// The same as [`Balancer::route`], but nothing is counted.
    pub fn find(&self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let lb = self.destinations.get(to).ok_or(DropCause::BadIp)?;
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        self.find_for(lb, from, &header).1.map(Found::route)
    }

    /// The index of the set that a datagram meets, and what its tables say.
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

    /// The member that the tables of a tick name, whatever its addresses. Nothing is counted.
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
        // A dropped packet is as it was.
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

    /// Looks which members are in use. [`Balancer::members`] leaves out those that the tables of new ticks do not have
    /// when nothing was sent to them for a minute; those that no tables have lose their counters then. Call it every few
    /// seconds; calls within a second of one another cost nothing while the tables stay. A time earlier than that of a call
    /// before counts as that one.
    pub fn look_at_members(&mut self, now: Time) {
        let live = self.lbs.iter().flat_map(|of| &of.sets[of.upcoming()..]);
        let all = self.lbs.iter().flat_map(|of| &of.sets);
        self.tally.look(now, live.map(|set| &*set.tables), all.map(|set| &*set.tables));
    }

    /// What was sent to each member, in order: those of the tables, and those to which something was sent in the last
    /// minute. Members keep their counters when tables change.
    pub fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.tally.members()
    }

    /// What was sent to members that [`Balancer::members`] leaves out, by the id that they had, of all load balancers.
    pub fn gone(&self) -> BTreeMap<u16, Traffic> {
        self.tally.gone()
    }

    /// Packets that were no load balancer's: [`DropCause::NotIp`] and [`DropCause::BadIp`].
    pub fn unaddressed(&self) -> &Drops {
        &self.tally.unaddressed
    }
}
