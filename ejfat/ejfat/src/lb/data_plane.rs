//! A data plane, whose tables can change while it forwards packets.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use super::{
    DropCause, Drops, Forwarded, LbCounters, LbId, LbTables, Route, Rules, Tables, Traffic,
    addresses::Addresses,
    packet::IpPacket,
    packet_counters::PacketCounters,
    rewrite,
    sets::{BeyondHorizon, NO_HORIZON, Set, Sets, StageError, WithdrawError},
    tables::RouteRef,
};
use crate::{Time, segment::IpVersion, wire::LbHeader};

/// The state of a data plane. The state contains the current tables, the staged tables with their first ticks, and the
/// counters of each load balancer.
///
/// A packet is looked up in the tables of its own tick. All segments of an event have the same tick. Staged tables
/// split no event, because [`DataPlane::stage`] accepts tables only for ticks above all ticks that are remembered as
/// routed. Each load balancer has its own ticks, because the ticks of different experiments are independent of each
/// other. The destination addresses belong to the whole data plane, so a change of these addresses applies to all ticks
/// at once. A packet's source address is allowed if the tables for the packet's tick allow it. The address is also
/// allowed if any tables for later ticks allow it.
#[derive(Clone, Debug)]
pub struct DataPlane {
    destinations: Arc<Addresses<LbId>>,
    lbs: Box<[Sets]>,
    pub(super) counters: PacketCounters,
}

impl DataPlane {
    /// The maximum number of staged sets of tables of one load balancer.
    pub const MOST_STAGED: usize = 16;

    /// Creates the state of a data plane whose current tables are `tables`. `seed` is the seed of the hash table that
    /// finds a member's counters.
    pub fn new(tables: &Tables, seed: u64) -> Self {
        let destinations = tables.destinations.clone();
        let lbs = LbId::all().map(|lb| Sets::new(tables.of(lb).clone())).collect();
        let mut plane = Self { destinations, lbs, counters: PacketCounters::new(seed) };
        plane.find_all_places();
        plane
    }

    pub(super) fn of(&self, lb: LbId) -> &Sets {
        &self.lbs[lb.index()]
    }

    /// Returns the addresses to which senders send packets, each with its load balancer.
    pub(super) fn destinations(&self) -> impl Iterator<Item = (IpAddr, LbId)> + '_ {
        self.destinations.iter()
    }

    pub(super) fn load_balancers(&self) -> impl Iterator<Item = (LbId, &Sets)> {
        LbId::all().zip(&self.lbs)
    }

    pub(super) fn of_mut(&mut self, lb: LbId) -> &mut Sets {
        &mut self.lbs[lb.index()]
    }

    /// Checks whether [`DataPlane::stage`] would refuse a load balancer's tables whose first tick is `from`.
    ///
    /// # Errors
    /// Fails with the error with which [`DataPlane::stage`] would fail.
    pub fn check(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        self.of(lb).place_for(from, false).map(drop)
    }

    /// Stages a load balancer's tables for packets whose tick is `from` or higher. `from` must be above all ticks that
    /// the load balancer remembers as routed. The staged tables apply until the first tick of the next set.
    ///
    /// # Errors
    /// Fails with [`StageError::Routed`] if `from` or a higher tick is remembered as routed. Fails with
    /// [`StageError::Taken`] if `from` is 0 or the first tick of another set. Fails with [`StageError::Full`] if
    /// [`DataPlane::MOST_STAGED`] sets are staged.
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

    /// Stages tables as [`DataPlane::stage`] does, but may replace existing tables that have the same first tick.
    /// `from` must be above all ticks that the load balancer remembers as routed. A replacement therefore splits no
    /// event whose tick is remembered as routed.
    ///
    /// # Errors
    /// Fails with [`StageError::Routed`] if `from` or a higher tick is remembered as routed. Fails with
    /// [`StageError::Full`] if [`DataPlane::MOST_STAGED`] sets are staged, and the new tables replace none of them.
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

    /// Returns the tick at which new tables of a load balancer would begin if [`DataPlane::stage_next`] staged them.
    ///
    /// # Errors
    /// Fails with the error with which [`DataPlane::stage_next`] would fail.
    pub fn check_next(&self, lb: LbId) -> Result<u64, StageError> {
        self.of(lb).next().map(|(from, _)| from)
    }

    /// Chooses the first tick of a load balancer's new tables, stages the tables, and returns the chosen tick. The
    /// staged tables apply until the first tick of the next set. The load balancer's next tick is one above the highest
    /// tick that the load balancer remembers as routed. If no tick is remembered, the next tick is one above the
    /// highest of the ticks that [`DataPlane::age`] forgot last. The set that applies to the next tick decides where
    /// the new tables begin. If the set that decides has routed at least one packet and a tick is remembered as routed,
    /// the new tables begin at the next tick. In all other cases, the new tables replace the set that decides, and
    /// begin at its first tick.
    ///
    /// # Errors
    /// Fails with [`StageError::BeyondHorizon`] if no tick is remembered as routed, but [`DataPlane::beyond`] reports
    /// routed packets with ticks above the horizon. This error is returned only if the set that applies to the next
    /// tick has routed at least one packet. Fails with an error of [`DataPlane::stage`] if the new tables would have to
    /// begin at the next tick, but cannot be staged there.
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

    /// Checks whether [`DataPlane::force`] would refuse a load balancer's tables whose first tick is `from`.
    ///
    /// # Errors
    /// Fails with the error with which [`DataPlane::force`] would fail.
    pub fn check_forced(&self, lb: LbId, from: u64) -> Result<(), StageError> {
        let sets = &self.of(lb).sets;
        let kept = sets.partition_point(|set| set.from < from);
        if kept == sets.capacity() { Err(StageError::Full) } else { Ok(()) }
    }

    /// Applies a load balancer's tables from the tick `from` on, even if higher ticks were already routed. Drops the
    /// load balancer's other sets whose first tick is `from` or higher, and returns the number of dropped sets. The
    /// segments of an event in flight may go to different workers if the event's tick is `from` or higher.
    ///
    /// # Errors
    /// Fails with [`StageError::Full`] if no set would be dropped, and the load balancer already has a current set and
    /// [`DataPlane::MOST_STAGED`] staged sets.
    pub fn force(&mut self, tables: Arc<LbTables>, from: u64) -> Result<usize, StageError> {
        let lb = tables.lb();
        self.check_forced(lb, from)?;
        let of = self.of_mut(lb);
        let kept = of.sets.partition_point(|set| set.from < from);
        let dropped = of.sets.len() - kept;
        of.sets.truncate(kept);
        of.sets.push(Set::new(from, tables));
        // Ticks from `from` on are no longer remembered as routed. One of them may come from a sender whose clock was
        // wrong, and would prevent the staging of later tables.
        let below = |newest: Option<u64>| from.checked_sub(1).and_then(|most| Some(newest?.min(most)));
        (of.newest, of.before, of.last) = (below(of.newest), below(of.before), below(of.last));
        self.find_places(lb, kept);
        Ok(dropped)
    }

    /// Withdraws a load balancer's tables whose first tick is `from`. After the withdrawal, the tables with the next
    /// lower first tick apply to the ticks of the withdrawn tables.
    ///
    /// # Errors
    /// Fails with [`WithdrawError::Absent`] if no staged tables have the first tick `from`. Fails with
    /// [`WithdrawError::Routed`] if the staged tables routed a packet or dropped a packet with a valid LB header. A
    /// dropped packet prevents the withdrawal only if at least one of the load balancer's sets allows the packet's
    /// source address.
    pub fn withdraw(&mut self, lb: LbId, from: u64) -> Result<(), WithdrawError> {
        let sets = &mut self.of_mut(lb).sets;
        let at =
            sets.iter().skip(1).position(|set| set.from == from).ok_or(WithdrawError::Absent { from })? + 1;
        if sets[at].hits > 0 || sets[at].dropped > 0 {
            return Err(WithdrawError::Routed { from });
        }
        sets.remove(at);
        self.counters.tables_changed();
        Ok(())
    }

    /// Replaces the destination addresses and all sets of all load balancers by `tables`. The replacement applies to
    /// all ticks at once, so it may split events in flight between workers.
    pub fn replace(&mut self, tables: &Tables) {
        self.destinations = tables.destinations.clone();
        for (lb, of) in LbId::all().zip(&mut self.lbs) {
            of.sets.clear();
            of.sets.push(Set::new(0, tables.of(lb).clone()));
        }
        self.find_all_places();
    }

    /// Replaces all sets of a load balancer by `tables`, and forgets which ticks of this load balancer were routed.
    /// A reset is needed when senders begin to count ticks from a lower tick again. After a reset, the load balancer
    /// has no horizon. If segments of an event arrive before and after a reset,
    /// they can go to different workers.
    pub fn reset(&mut self, tables: Arc<LbTables>) {
        let lb = tables.lb();
        *self.of_mut(lb) = Sets::new(tables);
        self.find_places(lb, 0);
    }

    /// Replaces the destination addresses of all load balancers, which are the addresses to which senders send packets.
    /// The new addresses apply to all ticks at once.
    pub fn set_destinations(&mut self, rules: &Rules) {
        self.destinations = Arc::new(Tables::destinations(rules));
    }

    /// Sets the horizon of a load balancer, which is the highest tick that can be remembered as routed. A tick above
    /// the horizon is not remembered as routed, so a forged high tick does not prevent the staging of new tables. While
    /// a load balancer has a horizon, [`DataPlane::age`] skips it, so routed ticks up to the horizon stay remembered.
    /// The load balancer stores only the lowest and the highest tick that it routed above the horizon
    /// ([`BeyondHorizon`]). When a stored tick is no longer above the horizon, the load balancer remembers this tick as
    /// routed.
    pub fn set_horizon(&mut self, lb: LbId, horizon: u64) {
        self.of_mut(lb).set_horizon(horizon);
    }

    /// Returns the number of packets that a load balancer routed although their ticks were above its horizon. The
    /// result also has the lowest and the highest stored tick of these packets; [`BeyondHorizon`] says which ticks are
    /// stored. The result is `None` before the first such packet. It becomes `None` again when the load balancer is
    /// reset, or when the horizon rises to [`BeyondHorizon::highest`] or above.
    pub fn beyond(&self, lb: LbId) -> Option<BeyondHorizon> {
        self.of(lb).beyond
    }

    /// Finds the counters of a new set's members, and stores the indexes of these counters in the set. `at` is the
    /// index of the set.
    fn find_places(&mut self, lb: LbId, at: usize) {
        match self.counters.places(&self.of(lb).sets[at].tables.clone()) {
            Some(places) => self.of_mut(lb).sets[at].places = places,
            None => self.find_all_places(),
        }
    }

    fn find_all_places(&mut self) {
        let all: Vec<_> = self.lbs.iter().flat_map(|of| &of.sets).map(|set| &set.tables).collect();
        let places = self.counters.all_places(&all);
        for (set, places) in self.lbs.iter_mut().flat_map(|of| &mut of.sets).zip(places) {
            set.places = places;
        }
    }

    /// Drops the sets of a load balancer that apply only to ticks below `below_tick`, and returns the number of dropped
    /// sets. If a packet with a tick below `below_tick` arrives after this call, it is looked up in the oldest
    /// remaining set.
    pub fn retire(&mut self, lb: LbId, below_tick: u64) -> usize {
        let sets = &mut self.of_mut(lb).sets;
        let over = sets.iter().skip(1).take_while(|set| set.from <= below_tick).count();
        sets.drain(..over);
        over
    }

    /// Returns the highest tick that a load balancer remembers as routed. Tables can be staged for ticks above the
    /// returned tick.
    pub fn newest_tick(&self, lb: LbId) -> Option<u64> {
        self.of(lb).newest_tick()
    }

    /// Forgets old ticks of all load balancers that have no horizon. A tick is old if no packet with this tick was
    /// routed since the previous call of this function. The time between two calls should be longer than the time for
    /// which an event is in flight, so that no event in flight has an old tick. Tables can be staged only for ticks
    /// above all ticks that are remembered as routed. A much too high tick from a sender whose clock was wrong
    /// therefore prevents the staging of new tables, but only until this tick is forgotten. The caller should call this
    /// function every few seconds.
    pub fn age(&mut self) {
        for of in self.lbs.iter_mut().filter(|of| of.horizon == NO_HORIZON) {
            let forgotten = std::mem::replace(&mut of.before, of.newest.take());
            if of.before.is_none() {
                of.last = forgotten.or(of.last);
            }
        }
    }

    /// Returns two numbers for each of a load balancer's sets: its first tick, and the number of packets that it
    /// routed. The first set also applies to all ticks below the first tick of the second set.
    pub fn sets(&self, lb: LbId) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.of(lb).sets.iter().map(|set| (set.from, set.hits))
    }

    /// Returns the first tick of the set that applies to a load balancer's next tick. [`DataPlane::stage_next`] says
    /// which tick is the next tick. If the load balancer has remembered no tick as routed so far, the result is the
    /// first tick of the current set.
    pub fn next_set(&self, lb: LbId) -> u64 {
        let sets = self.of(lb);
        sets.sets[sets.upcoming()].from
    }

    /// Returns the route of a UDP datagram with an LB header, which came from the address `from` to the address `to`.
    /// The counters of bytes count only the payload of the UDP datagram, without IP and UDP headers.
    ///
    /// # Errors
    /// Fails with the cause for which the datagram is dropped.
    pub fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let Some(lb) = self.destinations.get(to) else {
            self.counters.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let (at, found) = self.find_for(lb, from, &header);
        let cut = |keeps| if keeps { 0 } else { LbHeader::LEN };
        let places = &self.lbs[lb.index()].sets[at].places;
        let sent = found.map(|found| (places[found.at], datagram.len() - cut(found.forward.keep_lb_header)));
        let route = found.map(RouteRef::route);
        self.count(at, lb, || from, &header, datagram.len(), sent);
        route
    }

    /// Returns the same route as [`DataPlane::route`], without counting the datagram.
    ///
    /// # Errors
    /// Fails with the cause for which the datagram would be dropped.
    pub fn find(&self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let lb = self.destinations.get(to).ok_or(DropCause::BadIp)?;
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        self.find_for(lb, from, &header).1.map(RouteRef::route)
    }

    /// Finds the set that applies to a datagram. Returns the set's index among the sets of the load balancer, and the
    /// route that the set's tables have for the datagram.
    #[inline]
    fn find_for(
        &self,
        lb: LbId,
        from: IpAddr,
        header: &Result<LbHeader, DropCause>,
    ) -> (usize, Result<RouteRef<'_>, DropCause>) {
        let sets = &self.lbs[lb.index()];
        let at = sets.at_of(header);
        let found = match header {
            _ if !sets.allows(at, from) => Err(DropCause::BlockedSrc),
            Err(cause) => Err(*cause),
            Ok(header) => sets.sets[at].tables.find(IpVersion::of(from), header),
        };
        (at, found)
    }

    /// Returns the member to which the tables send a packet with this LB header. The member is found even if it has an
    /// address in only one of the two IP versions. This function counts no packets.
    pub fn member(&self, lb: LbId, header: &LbHeader) -> Option<u16> {
        let sets = self.of(lb);
        let tables = &sets.sets[sets.at(header.tick)].tables;
        let found = [IpVersion::V4, IpVersion::V6].map(|ip| tables.find(ip, header).ok());
        found.into_iter().flatten().next().map(|found| found.route().member)
    }

    /// Chooses the member that gets a packet, and rewrites the headers of the packet in place, as [`rewrite`] does.
    /// `bytes` is the packet with its IP header. The counters of bytes count the whole packet.
    ///
    /// # Errors
    /// Fails with the cause for which the packet is dropped.
    pub fn forward(&mut self, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
        let packet = IpPacket::parse(bytes).inspect_err(|&cause| self.counters.unaddressed.add(cause))?;
        let Some(lb) = self.destinations.get(packet.to(bytes)) else {
            self.counters.unaddressed.add(DropCause::BadIp);
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
        // `count` reads the source address only if the packet is dropped. A dropped packet is not changed, so it still
        // has its source address.
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
        self.counters.count(lb, header, bytes, sent);
        if let Ok(header) = header {
            let of = &mut self.lbs[lb.index()];
            match sent {
                Ok(_) => of.routed(at, header.tick),
                Err(cause) => of.dropped(at, cause, from()),
            }
        }
    }

    /// Returns the counters of one load balancer.
    pub fn counters(&self, lb: LbId) -> &LbCounters {
        self.counters.lb(lb)
    }

    /// Finds unused members. A member is unused if two conditions have been true for at least a minute. No packet was
    /// sent to the member, and it had no rule in the tables for ticks above the highest routed tick.
    /// [`DataPlane::members`] omits unused members, and [`DataPlane::gone`] includes their packets instead. Tables for
    /// lower ticks may still have a rule for an unused member. If no tables at all have a rule for an unused member,
    /// its own counters are removed. Its packets then remain only as a part of the sums in [`DataPlane::gone`]. The
    /// caller should call this function every few seconds. The function does nothing if it checked the same tables less
    /// than a second ago. If `now` is earlier than in a previous call, the time of the previous call is used.
    pub fn look_at_members(&mut self, now: Time) {
        let live = self.lbs.iter().flat_map(|of| &of.sets[of.upcoming()..]);
        let all = self.lbs.iter().flat_map(|of| &of.sets);
        self.counters.look(now, live.map(|set| &*set.tables), all.map(|set| &*set.tables));
    }

    /// Returns the numbers of packets and bytes that were sent to each member. The key of a member is its
    /// load balancer and its member id. Unused members are omitted; [`DataPlane::look_at_members`] finds
    /// them. Members keep their counters when tables change.
    pub fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.counters.members()
    }

    /// Returns how many packets and bytes were sent to members that [`DataPlane::members`] omits. The keys of the
    /// result are member ids. Members with the same id on different load balancers share one entry.
    pub fn gone(&self) -> BTreeMap<u16, Traffic> {
        self.counters.gone()
    }

    /// Returns the numbers of dropped packets that belong to no load balancer, one number for each drop cause. Packets
    /// that belong to no load balancer are counted as [`DropCause::NotIp`] or [`DropCause::BadIp`].
    pub fn unaddressed(&self) -> &Drops {
        &self.counters.unaddressed
    }
}
