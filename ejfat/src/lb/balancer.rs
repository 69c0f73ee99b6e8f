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
use crate::wire::LbHeader;

/// Why tables were not staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StageError {
    #[error(
        "ticks up to {newest} were routed already, so tables from tick {from} on could split events; stage them from a later tick, or force them"
    )]
    Routed { from: u64, newest: u64 },
    #[error(
        "the newest tables apply from tick {newest} on, so tables from tick {from} on are not newer; stage them from a later tick, or force them"
    )]
    NotNewer { from: u64, newest: u64 },
    #[error("{most} sets of tables are staged already; retire older ones first", most = Balancer::MOST_STAGED)]
    Full,
}

#[derive(Clone, Debug)]
struct Set {
    from: u64,
    tables: Arc<Tables>,
    places: Places,
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
    newest: Option<u64>,
    tally: Tally,
}

impl Balancer {
    pub const MOST_STAGED: usize = 16;

    /// `seed` is of the hash table of members.
    pub fn new(tables: Arc<Tables>, seed: u64) -> Self {
        let mut tally = Tally::new(seed);
        let places = tally.places(&[&tables]).pop().unwrap_or_default();
        Self { sets: ArrayVec::from_iter([Set { from: 0, tables, places }]), newest: None, tally }
    }

    /// Applies tables to packets from a tick on.
    pub fn stage(&mut self, tables: Arc<Tables>, from_tick: u64) -> Result<(), StageError> {
        if let Some(newest) = self.newest.filter(|&newest| newest >= from_tick) {
            return Err(StageError::Routed { from: from_tick, newest });
        }
        if let Some(newest) = self.sets.last().map(|set| set.from).filter(|&newest| newest >= from_tick) {
            return Err(StageError::NotNewer { from: from_tick, newest });
        }
        self.push(from_tick, tables)
    }

    /// Applies tables from a tick on, whatever was routed or staged: sets that would begin at it or later are
    /// dropped, and their number returned. Events of that tick and later ones that are on their way may be split.
    pub fn force(&mut self, tables: Arc<Tables>, from_tick: u64) -> Result<usize, StageError> {
        let kept = self.sets.iter().take_while(|set| set.from < from_tick).count();
        let dropped = self.sets.len() - kept;
        if kept == self.sets.capacity() {
            return Err(StageError::Full);
        }
        self.sets.truncate(kept);
        self.push(from_tick, tables)?;
        // A sender whose clock was wrong must not stand in the way for ever.
        self.newest =
            from_tick.checked_sub(1).and_then(|before| self.newest.map(|newest| newest.min(before)));
        Ok(dropped)
    }

    fn push(&mut self, from: u64, tables: Arc<Tables>) -> Result<(), StageError> {
        let set = Set { from, tables, places: Vec::new() };
        self.sets.try_push(set).map_err(|_| StageError::Full)?;
        self.find_places();
        Ok(())
    }

    /// Puts tables in the place of the newest ones, whatever was routed by those: events on their way may be split.
    pub fn replace(&mut self, tables: Arc<Tables>) {
        if let Some(newest) = self.sets.last_mut() {
            newest.tables = tables;
        }
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

    /// The newest tick that was routed: tables can be staged from the next one on.
    pub fn newest_tick(&self) -> Option<u64> {
        self.newest
    }

    /// The sets there are, each with its first tick; the first one has all ticks before the second, too.
    pub fn sets(&self) -> impl Iterator<Item = (u64, &Arc<Tables>)> + '_ {
        self.sets.iter().map(|set| (set.from, &set.tables))
    }

    /// Those that packets of a tick meet.
    pub fn tables(&self, tick: u64) -> &Arc<Tables> {
        &self.set(tick).tables
    }

    #[inline]
    fn set(&self, tick: u64) -> &Set {
        &self.sets[self.sets.iter().rposition(|set| set.from <= tick).unwrap_or(0)]
    }

    /// Of a packet with such a header.
    #[inline]
    fn set_of(&self, header: &Result<LbHeader, DropCause>) -> &Set {
        self.set(header.as_ref().map_or(self.newest.unwrap_or(0), |header| header.tick))
    }

    /// Where a UDP datagram with LB header goes that came to an address from another. Its bytes are counted.
    pub fn route(&mut self, to: IpAddr, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let Set { tables, places, .. } = self.set_of(&header);
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
        self.count(lb, &header, datagram.len(), sent);
        route
    }

    /// Forwards a whole IP packet in place, as [`rewrite`] does. Its bytes are counted.
    pub fn forward(&mut self, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
        let packet = Packet::parse(bytes).inspect_err(|&cause| self.tally.unaddressed.add(cause))?;
        let header = packet.lb_header(bytes);
        let Set { tables, places, .. } = self.set_of(&header);
        let Some(lb) = tables.lb(packet.to(bytes)) else {
            self.tally.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let forwarded = rewrite::forward(tables, lb, packet, header, bytes);
        let sent = forwarded.map(|(start, found)| (places[found.at], bytes.len() - start));
        let forwarded = forwarded.map(|(start, found)| Forwarded { start, route: found.route() });
        self.count(lb, &header, bytes.len(), sent);
        forwarded
    }

    #[inline]
    fn count(
        &mut self,
        lb: LbId,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(u32, usize), DropCause>,
    ) {
        self.tally.count(lb, header, bytes, sent);
        if let (Ok(header), Ok(_)) = (header, sent) {
            self.newest = self.newest.max(Some(header.tick));
        }
    }

    pub fn counters(&self, lb: LbId) -> &LbCounters {
        self.tally.lb(lb)
    }

    /// What was sent to each member, in order. Members keep their counters when tables change, and for as long as
    /// there is place when they are gone.
    pub fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.tally.members()
    }

    /// Packets that were no load balancer's: [`DropCause::NotIp`] and [`DropCause::BadIp`].
    pub fn unaddressed(&self) -> &Drops {
        &self.tally.unaddressed
    }
}
