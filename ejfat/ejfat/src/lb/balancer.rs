//! Tables that change while packets flow.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use arrayvec::ArrayVec;

use super::{
    DropCause, Drops, Forwarded, LbCounters, LbId, Route, Tables, Traffic,
    packet::Packet,
    rewrite,
    tables::Found,
    tally::{Places, Tally},
    version,
};
use crate::{Time, segment::IpVersion, wire::LbHeader};

/// Why tables were not staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error(
        "ticks up to {newest} were routed already, so tables from tick {from} on could split events; stage them from a later tick, or force them; if a sender's clock was wrong, that tick is forgotten some seconds after"
    )]
    Routed { from: u64, newest: u64 },
    #[error("there are tables from tick {from} on already; stage these from another tick, or force them")]
    Taken { from: u64 },
    #[error(
        "{most} sets of tables are staged already; try again when those of the oldest have gone out of use, two seconds after their last packet, or put these in the place of all",
        most = Balancer::MOST_STAGED
    )]
    Full,
}

#[derive(Clone, Debug)]
struct Set {
    from: u64,
    tables: Arc<Tables>,
    places: Places,
    /// Packets that it routed.
    hits: u64,
}

/// The data plane's state: the current tables and those staged, each from a tick on, and counters.
///
/// A packet meets the tables of its own tick. All segments of an event have the same tick, and tables are staged
/// from ticks on that no packet had yet, so that an update splits no event. Ticks of all load balancers are on one
/// scale, as UNIX time is.
#[derive(Debug)]
pub struct Balancer {
    /// The current one, then those staged, with ascending ticks.
    sets: ArrayVec<Set, { 1 + Self::MOST_STAGED }>,
    /// The newest ticks routed since [`Balancer::age`], and in the time before.
    newest: Option<u64>,
    before: Option<u64>,
    /// The newest tick before it became silent.
    last: Option<u64>,
    tally: Tally,
}

impl Balancer {
    pub const MOST_STAGED: usize = 16;

    /// `seed` is of the hash table of members.
    pub fn new(tables: Arc<Tables>, seed: u64) -> Self {
        let mut tally = Tally::new(seed);
        let places = tally.places(&[&tables]).pop().unwrap_or_default();
        let sets = ArrayVec::from_iter([Set { from: 0, tables, places, hits: 0 }]);
        Self { sets, newest: None, before: None, last: None, tally }
    }

    /// Applies tables to packets from a tick on that none had lately, until those of the next set do.
    pub fn stage(&mut self, tables: Arc<Tables>, from: u64) -> Result<(), StageError> {
        if let Some(newest) = self.newest_tick().filter(|&newest| newest >= from) {
            return Err(StageError::Routed { from, newest });
        }
        let at = self.sets.partition_point(|set| set.from < from);
        if self.sets.get(at).is_some_and(|set| set.from == from) {
            return Err(StageError::Taken { from });
        }
        self.insert(at, from, tables)
    }

    /// The same from the first such tick on, which is returned, or in the place of tables that no packet met.
    pub fn stage_next(&mut self, tables: Arc<Tables>) -> Result<u64, StageError> {
        let at = self.upcoming();
        match self.newest_tick() {
            // Whoever met the tables there are did so too long ago to have events on their way.
            Some(newest) if self.sets[at].hits > 0 => {
                let next = newest.saturating_add(1);
                self.stage(tables, next).map(|()| next)
            }
            _ => {
                let Set { from, .. } = self.sets[at];
                self.sets[at] = Set { from, tables, places: Vec::new(), hits: 0 };
                self.find_places();
                Ok(from)
            }
        }
    }

    /// Which set the next new tick meets.
    fn upcoming(&self) -> usize {
        self.newest_tick().or(self.last).map_or(0, |newest| self.at(newest.saturating_add(1)))
    }

    /// Applies tables from a tick on, whatever was routed or staged: sets that would begin at it or later are
    /// dropped, and their number returned. Events of that tick and later ones that are on their way may be split.
    pub fn force(&mut self, tables: Arc<Tables>, from: u64) -> Result<usize, StageError> {
        let kept = self.sets.partition_point(|set| set.from < from);
        let dropped = self.sets.len() - kept;
        if kept == self.sets.capacity() {
            return Err(StageError::Full);
        }
        self.sets.truncate(kept);
        self.insert(kept, from, tables)?;
        // A sender whose clock was wrong must not stand in the way.
        let below = |newest: Option<u64>| from.checked_sub(1).and_then(|most| Some(newest?.min(most)));
        (self.newest, self.before, self.last) = (below(self.newest), below(self.before), below(self.last));
        Ok(dropped)
    }

    fn insert(&mut self, at: usize, from: u64, tables: Arc<Tables>) -> Result<(), StageError> {
        let set = Set { from, tables, places: Vec::new(), hits: 0 };
        self.sets.try_insert(at, set).map_err(|_| StageError::Full)?;
        self.find_places();
        Ok(())
    }

    /// Puts tables in the place of all sets, for every tick and at once: events on their way may be split.
    pub fn replace(&mut self, tables: Arc<Tables>) {
        self.sets.clear();
        self.sets.push(Set { from: 0, tables, places: Vec::new(), hits: 0 });
        self.find_places();
    }

    fn find_places(&mut self) {
        let all: Vec<_> = self.sets.iter().map(|set| &set.tables).collect();
        let places = self.tally.places(&all);
        for (set, places) in self.sets.iter_mut().zip(places) {
            set.places = places;
        }
    }

    /// Drops sets that only ticks below this one would meet, and returns their number. Packets that come even later
    /// meet the oldest set that is left.
    pub fn retire(&mut self, below_tick: u64) -> usize {
        let over = self.sets.iter().skip(1).take_while(|set| set.from <= below_tick).count();
        self.sets.drain(..over);
        over
    }

    /// The newest tick that was routed lately: tables can be staged from the next one on.
    pub fn newest_tick(&self) -> Option<u64> {
        self.newest.max(self.before)
    }

    /// Forgets ticks that were routed before the last time this was called. Events of ticks that nobody sends any more are
    /// over, and a sender's clock that was wrong once is no longer in the way. Call it every few seconds.
    pub fn age(&mut self) {
        let forgotten = std::mem::replace(&mut self.before, self.newest.take());
        if self.before.is_none() {
            self.last = forgotten.or(self.last);
        }
    }

    /// The sets there are, each with its first tick and the packets it routed; the first one has all ticks before the
    /// second, too.
    pub fn sets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.sets.iter().map(|set| (set.from, set.hits))
    }

    /// The first tick of the set that the next new tick meets.
    pub fn next_set(&self) -> u64 {
        self.sets[self.upcoming()].from
    }

    #[inline]
    fn at(&self, tick: u64) -> usize {
        self.sets.iter().rposition(|set| set.from <= tick).unwrap_or(0)
    }

    /// Of a packet with such a header.
    #[inline]
    fn at_of(&self, header: &Result<LbHeader, DropCause>) -> usize {
        self.at(header.as_ref().map_or(self.newest.unwrap_or(0), |header| header.tick))
    }

    /// Where a UDP datagram with LB header goes that came to an address from another. Its bytes are counted.
    pub fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let at = self.at_of(&header);
        let Set { tables, places, .. } = &self.sets[at];
        let Some(lb) = tables.lb(to) else {
            self.tally.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let found = match header {
            _ if !tables.allows(lb, from) => Err(DropCause::BlockedSrc),
            Err(cause) => Err(cause),
            Ok(header) => tables.find(lb, version(from), &header),
        };
        let cut = |keeps| if keeps { 0 } else { LbHeader::LEN };
        let sent = found.map(|found| (places[found.at], datagram.len() - cut(found.forward.keep_lb_header)));
        let route = found.map(Found::route);
        self.count(at, lb, &header, datagram.len(), sent);
        route
    }

    /// The member that the tables of a tick name, whatever its addresses. Nothing is counted.
    pub fn member(&self, lb: LbId, header: &LbHeader) -> Option<u16> {
        let Set { tables, .. } = &self.sets[self.at(header.tick)];
        let found = [IpVersion::V4, IpVersion::V6].map(|ip| tables.find(lb, ip, header).ok());
        found.into_iter().flatten().next().map(|found| found.route().member)
    }

    /// Forwards a whole IP packet in place, as [`rewrite`] does. Its bytes are counted.
    pub fn forward(&mut self, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
        let packet = Packet::parse(bytes).inspect_err(|&cause| self.tally.unaddressed.add(cause))?;
        let header = packet.lb_header(bytes);
        let at = self.at_of(&header);
        let Set { tables, places, .. } = &self.sets[at];
        let Some(lb) = tables.lb(packet.to(bytes)) else {
            self.tally.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let forwarded = rewrite::forward(tables, lb, packet, header, bytes);
        let sent = forwarded.map(|(start, found)| (places[found.at], bytes.len() - start));
        let forwarded = forwarded.map(|(start, found)| Forwarded { start, route: found.route() });
        self.count(at, lb, &header, bytes.len(), sent);
        forwarded
    }

    #[inline]
    fn count(
        &mut self,
        at: usize,
        lb: LbId,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(u32, usize), DropCause>,
    ) {
        self.tally.count(lb, header, bytes, sent);
        if let (Ok(header), Ok(_)) = (header, sent) {
            self.newest = self.newest.max(Some(header.tick));
            self.sets[at].hits += 1;
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
        let all: Vec<_> = self.sets.iter().map(|set| &set.tables).collect();
        self.tally.look(now, &all[self.upcoming()..], &all);
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
