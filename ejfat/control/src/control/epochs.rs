//! How an epoch of a load balancer begins: `Control` does what its publisher's steps ask for, one after the other.

use std::collections::BTreeSet;

use ejfat::{Time, lb::LbId};

use super::{
    Action, Control, LATEST, RETRY, Report,
    balancing::Need,
    planes::RuleOrder,
    publisher::{Epoch, Phase, Staging, Step},
    split_report,
};
use crate::{
    plane::{PlaneKind, Stage},
    record::EpochRecord,
};

impl Control {
    /// Begins a new epoch where one is wanted and may begin.
    pub(super) fn begin_epoch(&mut self, now: Time, lb: LbId) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        if of.need == Need::None || !of.publisher.is_idle() || now < of.not_before {
            self.retry_at = self.retry_at.into_iter().chain(Some(of.not_before).filter(|at| *at > now)).min();
            return;
        }
        if now < self.waits_until && !self.planes.are_in_use() {
            return self.wake_to_retry(now);
        }
        if of.by_syncs() && of.is_untouched() && !of.is_anew() {
            // A boundary would need syncs, and it is not needed: the new tables may apply to all ticks.
            of.apply_to_all_ticks();
        }
        if of.is_anew() {
            let epoch = of.epoch(0, self.registry.durable());
            self.rule(now, lb, epoch, None);
        } else if !of.may_begin(now) {
            self.wake_to_retry(now);
        } else {
            let target = (lb, of.reservation);
            let waiting = self.planes.look_for(now, target, &mut self.out);
            of.publisher.phase = Phase::Looking { asked: now, waiting, routed: None };
            // If no plane is in use, no answer comes.
            let step = of.publisher.step();
            self.step(now, lb, step);
        }
    }

    fn wake_to_retry(&mut self, now: Time) {
        let again = now + RETRY;
        self.retry_at = Some(self.retry_at.map_or(again, |at| at.min(again)));
    }

    /// Gives an epoch to planes without sets of tables, and to the others behind them.
    fn rule(&mut self, now: Time, lb: LbId, epoch: Epoch, horizon: Option<u64>) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        let senders = self.registry.durable().senders_of(lb).map(|sender| sender.address).collect();
        let order = RuleOrder { senders, over: of.over(now), reset: of.is_anew() };
        let target = (lb, of.reservation);
        let Some(waiting) = self.planes.begin_by_rules(now, target, &epoch, order, &mut self.out) else {
            // All epoch ids are in use until senders have passed older ticks. Planes are not asked again at each answer.
            of.not_before = now + RETRY;
            return self.wake_to_retry(now);
        };
        if self.options.has(PlaneKind::Staged) {
            of.mixed = self.planes.first_tick_by_rules(lb);
        }
        of.need = Need::None;
        let until = now + self.planes.install().saturating_mul(1 << of.publisher.tries.min(5));
        of.publisher.phase = Phase::Rules { until, epoch: Box::new(epoch), horizon, waiting };
        let step = of.publisher.step();
        self.step(now, lb, step);
    }

    pub(super) fn step(&mut self, now: Time, lb: LbId, step: Step) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        match step {
            Step::Wait => {}
            Step::Looked { asked, routed } => self.looked(now, lb, asked, routed),
            Step::Ruled { until, epoch, horizon } => {
                // Planes that tell no ticks do not refuse what comes too late.
                if now > until && !of.is_anew() {
                    let behind = of.on_their_way(now).1;
                    of.unreported.push((epoch.from, behind));
                }
                self.stage(now, lb, *epoch, horizon);
            }
            Step::Retry => {
                of.want(Need::Urgent);
                of.not_before = now + RETRY.saturating_mul(1 << of.publisher.tries.min(6)).min(LATEST);
                self.retry_at = self.retry_at.into_iter().chain([of.not_before]).min();
            }
            Step::Withdraw { from, planes } => {
                let reservation = of.reservation;
                self.planes.withdraw(now, (lb, reservation), from, &planes, &mut self.out);
            }
            Step::Begun { may_split, reset } => self.begun(now, lb, may_split, reset),
        }
    }

    fn looked(&mut self, now: Time, lb: LbId, asked: Time, routed: Option<u64>) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        if of.is_anew() {
            // The load balancer began anew after planes were asked: what they routed before does not count.
            let epoch = of.epoch(0, self.registry.durable());
            return self.rule(now, lb, epoch, None);
        }
        let Some(from) = of.boundary(now, asked, routed, self.planes.install()) else {
            // No tick is left, or no sync has come.
            of.not_before = now + LATEST;
            return self.wake_to_retry(now);
        };
        let horizon = of.horizon(now, from);
        let epoch = of.epoch(from, self.registry.durable());
        self.rule(now, lb, epoch, horizon);
    }

    fn stage(&mut self, now: Time, lb: LbId, epoch: Epoch, horizon: Option<u64>) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        let reset = of.is_anew() && epoch.from == 0;
        let in_place = !reset && of.publisher.newest().is_some_and(|newest| newest.from == epoch.from);
        of.publisher.highest = of.publisher.highest.max(epoch.from);
        // A plane that is away may lack an epoch that the control plane before published and did not record.
        let resumed = of.publisher.resumed_from.take().filter(|_| self.planes.away().next().is_some());
        resumed.into_iter().for_each(|from| of.publisher.may_split_from(from));
        let stage = Stage { lb, from: epoch.from, in_place, horizon, reset, rules: epoch.rules.clone() };
        let waiting = self.planes.stage(now, (lb, of.reservation), stage, &mut self.out);
        let is_begun = self.options.has(PlaneKind::RuleByRule);
        let took = BTreeSet::new();
        let staging =
            Staging { epoch, in_place, reset, waiting, took, refused: false, lost: false, is_begun };
        of.publisher.phase = Phase::Staging(Box::new(staging));
        let step = of.publisher.step();
        self.step(now, lb, step);
    }

    fn begun(&mut self, now: Time, lb: LbId, may_split: Option<u64>, reset: bool) {
        let Some(of) = self.lbs.get_mut(&lb) else { return };
        let recorded = of.begun(now, reset, self.planes.away());
        let number = of.publisher.number;
        let Some(newest) = of.publisher.newest() else { return };
        let from = newest.from;
        if let Some(untold) = recorded {
            let slots = newest.calendar.slots().to_vec();
            let record = EpochRecord { lb, number, from, slots, untold };
            let change = self.registry.record_epoch(record);
            self.out.extend(change.map(|change| Action::Store(vec![change])));
        }
        self.out.push(Action::Report(Report::Epoch { lb, number, from }));
        let doubts = of.senders.doubts().map(|(_, tick)| of.around(now, tick));
        let below = of.below(now, self.planes.first_tick_by_rules(lb));
        let doubts: Vec<_> = doubts.chain(below).filter(|_| of.by_syncs()).collect();
        // An epoch of all ticks ends no open range. Such a range then ends where the senders may be.
        let end = if reset { of.behind(now) } else { from };
        let split = may_split.map(|open| (open, end)).into_iter().chain(doubts);
        let split = split.chain(of.unreported.drain(..));
        self.out.extend(split.filter_map(|ticks| split_report(lb, ticks)));
    }
}
