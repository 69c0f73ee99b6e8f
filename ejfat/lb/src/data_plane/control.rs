//! What the sets of tables of a data plane were compiled from.

use std::{
    num::NonZeroU64,
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::lb::{DataPlane, LbId, Rules, Table};

use super::WriteError;

/// Segments of events come no later than this behind one another: a worker gives events up before.
pub(super) const STRAGGLERS: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Control {
    /// The rules of no load balancer.
    pub(super) destinations: Rules,
    pub(super) lbs: Box<[Vec<Staged>]>,
    /// The highest that came with a write.
    pub(super) term: Option<NonZeroU64>,
    /// Writes with a lower one, or without any, are refused.
    pub(super) least: Option<NonZeroU64>,
    pub(super) aged: Instant,
}

#[derive(Debug)]
pub(super) struct Staged {
    pub(super) from: u64,
    /// The rules of one load balancer.
    pub(super) rules: Arc<Rules>,
    /// The packets that these tables had routed at the last check, and the time since which there are no more.
    pub(super) hits: u64,
    pub(super) since: Instant,
}

impl Staged {
    pub(super) fn new(from: u64, rules: Arc<Rules>) -> Self {
        Self { from, rules, hits: 0, since: Instant::now() }
    }
}

impl Control {
    pub(super) fn of(&self, lb: LbId) -> &[Staged] {
        &self.lbs[usize::from(lb.get())]
    }

    /// Whether no tables of a load balancer begin later.
    pub(super) fn is_newest(&self, lb: LbId, from: u64) -> bool {
        self.of(lb).iter().all(|staged| staged.from <= from)
    }

    /// Whether tables that become the newest ones of some load balancers fit into the tables of the data plane, together with
    /// the newest ones of the others. Fewer rules than before are taken in any case. Sets that are not the newest may exceed
    /// the tables together: load balancers do not change theirs at the same time.
    pub(super) fn check_limits(&self, newest: &[(LbId, &Rules)]) -> Result<(), WriteError> {
        for table in Table::ALL {
            let before = |lb| self.of(lb).last().map_or(0, |staged| staged.rules.count(table));
            let after = |lb| newest.iter().find(|(of, _)| *of == lb).map(|(_, rules)| rules.count(table));
            let rules: usize = LbId::all().map(|lb| after(lb).unwrap_or_else(|| before(lb))).sum();
            let is_more = newest.iter().any(|(lb, rules)| rules.count(table) > before(*lb));
            if is_more && rules > table.limit() {
                return Err(WriteError::Limit { table, rules });
            }
        }
        Ok(())
    }

    pub(super) fn at(&self, lb: LbId, tick: u64) -> &Arc<Rules> {
        let sets = &self.lbs[usize::from(lb.get())];
        // The first set has all earlier ticks, too.
        &sets.iter().rfind(|staged| staged.from <= tick).unwrap_or(&sets[0]).rules
    }

    /// All rules, with those of each load balancer that its function names.
    pub(super) fn whole(&self, tick_of: impl Fn(LbId) -> u64) -> Rules {
        let mut whole = self.destinations.clone();
        LbId::all().for_each(|lb| whole.add(self.at(lb, tick_of(lb))));
        whole
    }

    /// Removes the oldest set of a load balancer that has as many sets as there may be, if packets meet later sets and no longer
    /// this one. `is_followed`: a control plane follows the ticks. Then the oldest set is also removed when no packets of the
    /// load balancer have come here lately, because they may pass through other data planes.
    pub(super) fn make_room(&mut self, lb: LbId, is_followed: bool, balancer: &mut DataPlane) {
        let sets = &mut self.lbs[usize::from(lb.get())];
        let [oldest, next, ..] = &sets[..] else { return };
        let is_quiet = |staged: &Staged| staged.since.elapsed() >= STRAGGLERS;
        // Few ticks may have met the next one, and all of them on other data planes.
        let later_are_met = sets[1..].iter().any(|staged| staged.hits > 0);
        let others_have_packets =
            is_followed && is_quiet(next) && sets.iter().all(|staged| staged.hits == 0 || is_quiet(staged));
        let unused = is_quiet(oldest) && (later_are_met || others_have_packets);
        if sets.len() > DataPlane::MOST_STAGED && unused {
            balancer.retire(lb, next.from);
            sets.remove(0);
        }
    }

    /// Has the rules of the sets that the balancer has of a load balancer; those from one tick on are new.
    pub(super) fn follow(&mut self, lb: LbId, balancer: &DataPlane, new: u64, rules: &Arc<Rules>) {
        let sets = &mut self.lbs[usize::from(lb.get())];
        let mut before = std::mem::take(sets);
        for (at, (from, _)) in balancer.sets(lb).enumerate() {
            let kept = before.iter().position(|staged| staged.from == from).filter(|_| from != new);
            // Tables that are staged from an earlier tick on leave the first ones all ticks before it.
            let first = || (at == 0 && from != new).then_some(0);
            let staged = match kept.or_else(first) {
                Some(at) => Staged { from, ..before.swap_remove(at) },
                None => Staged::new(from, rules.clone()),
            };
            sets.push(staged);
        }
    }
}
