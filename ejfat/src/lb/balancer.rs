//! Tables that change while packets flow.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use arrayvec::ArrayVec;
use foldhash::quality::FixedState;

use super::{DropCause, Drops, Forwarded, LbCounters, LbId, Route, Tables, Traffic, packet::Packet, rewrite};
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
    lbs: [LbCounters; LbId::COUNT],
    members: HashMap<(LbId, u16), Traffic, FixedState>,
    unaddressed: Drops,
}

impl Balancer {
    pub const MOST_STAGED: usize = 4;
    /// Members that are counted for: more than the tables of all sets have.
    const MOST_MEMBERS: usize = 1024 * LbId::COUNT;

    /// `seed` is of the hash table of members.
    pub fn new(tables: Arc<Tables>, seed: u64) -> Self {
        let members = tables.members().map(|key| (key, Traffic::default()));
        let mut all = HashMap::with_hasher(FixedState::with_seed(seed));
        all.extend(members);
        Self {
            sets: ArrayVec::from_iter([Set { from: 0, tables }]),
            newest: None,
            lbs: Default::default(),
            members: all,
            unaddressed: Drops::default(),
        }
    }

    /// Applies tables to packets from a tick on.
    pub fn stage(&mut self, tables: Arc<Tables>, from_tick: u64) -> Result<(), StageError> {
        if let Some(newest) = self.newest.filter(|&newest| newest >= from_tick) {
            return Err(StageError::Routed { from: from_tick, newest });
        }
        if let Some(newest) = self.sets.last().map(|set| set.from).filter(|&newest| newest >= from_tick) {
            return Err(StageError::NotNewer { from: from_tick, newest });
        }
        self.push(Set { from: from_tick, tables })
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
        self.push(Set { from: from_tick, tables })?;
        // A sender whose clock was wrong must not stand in the way for ever.
        self.newest =
            from_tick.checked_sub(1).and_then(|before| self.newest.map(|newest| newest.min(before)));
        Ok(dropped)
    }

    fn push(&mut self, set: Set) -> Result<(), StageError> {
        self.sets.try_push(set.clone()).map_err(|_| StageError::Full)?;
        let new = |key: &(LbId, u16)| !self.members.contains_key(key);
        if self.members.len() + set.tables.members().filter(new).count() > Self::MOST_MEMBERS {
            let held: BTreeSet<_> = self.sets.iter().flat_map(|set| set.tables.members()).collect();
            self.members.retain(|key, _| held.contains(key));
        }
        for key in set.tables.members() {
            self.members.entry(key).or_default();
        }
        Ok(())
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
        let begun = self.sets.iter().rposition(|set| set.from <= tick);
        &self.sets[begun.unwrap_or(0)].tables
    }

    fn tables_for(&self, header: &Result<LbHeader, DropCause>) -> &Tables {
        let tick = header.as_ref().map_or(self.newest.unwrap_or(0), |header| header.tick);
        self.tables(tick)
    }

    /// Where a UDP datagram with LB header goes that a load balancer got from an address. Its bytes are counted.
    pub fn route(&mut self, lb: LbId, from: IpAddr, datagram: &[u8]) -> Result<Route, DropCause> {
        let header = LbHeader::decode(datagram).map(|(header, _)| header).map_err(DropCause::from);
        let tables = self.tables_for(&header);
        let route = match header {
            Err(_) if !tables.allows(lb, from) => Err(DropCause::BlockedSrc),
            Err(cause) => Err(cause),
            Ok(header) => tables.route(lb, from, &header),
        };
        let cut = |route: Route| if route.keep_lb_header { 0 } else { LbHeader::LEN };
        self.count(lb, &header, datagram.len(), route.map(|route| (route, datagram.len() - cut(route))));
        route
    }

    /// Forwards a whole IP packet in place, as [`rewrite`] does. Its bytes are counted.
    pub fn forward(&mut self, bytes: &mut [u8]) -> Result<Forwarded, DropCause> {
        let packet = Packet::parse(bytes).inspect_err(|&cause| self.unaddressed.add(cause))?;
        let header = packet.lb_header(bytes);
        let tables = self.tables_for(&header);
        let Some(lb) = tables.lb(packet.to) else {
            self.unaddressed.add(DropCause::BadIp);
            return Err(DropCause::BadIp);
        };
        let forwarded = rewrite::forward(tables, lb, &packet, header, bytes);
        let sent = forwarded.map(|forwarded| (forwarded.route, bytes.len() - forwarded.start));
        self.count(lb, &header, bytes.len(), sent);
        forwarded
    }

    fn count(
        &mut self,
        lb: LbId,
        header: &Result<LbHeader, DropCause>,
        bytes: usize,
        sent: Result<(Route, usize), DropCause>,
    ) {
        let header = header.as_ref().ok();
        self.lbs[lb.index()].add(bytes, header.map(LbHeader::version), sent.err());
        if let Ok((route, bytes)) = sent {
            self.newest = self.newest.max(header.map(|header| header.tick));
            if let Some(traffic) = self.members.get_mut(&(lb, route.member)) {
                traffic.add(bytes);
            }
        }
    }

    pub fn counters(&self, lb: LbId) -> &LbCounters {
        &self.lbs[lb.index()]
    }

    /// What was sent to each member, in order. Members keep their counters when tables change, and for as long as
    /// there is place when they are gone.
    pub fn members(&self) -> BTreeMap<(LbId, u16), Traffic> {
        self.members.iter().map(|(&key, &traffic)| (key, traffic)).collect()
    }

    /// Packets that were no load balancer's: [`DropCause::NotIp`] and [`DropCause::BadIp`].
    pub fn unaddressed(&self) -> &Drops {
        &self.unaddressed
    }
}
