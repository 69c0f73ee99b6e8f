//! The data plane in this process.

use std::{num::NonZeroU64, sync::Arc};

use ejfat::lb::{Rule, RuleKey, Rules, StageError, WithdrawError};
use ejfat_control::plane::{Call, Order, Outcome, PlaneState, Stage};
use ejfat_lb::{LbStage, SharedDataPlane, When, WriteError};

use super::Port;

pub(super) struct Local(pub(super) Arc<SharedDataPlane>);

impl Port for Local {
    fn call(&mut self, call: &Call) -> Result<Outcome, String> {
        let mut write = match self.0.write(NonZeroU64::new(call.term)) {
            Ok(write) => write,
            Err(WriteError::StaleTerm { .. }) => return Ok(Outcome::Replaced),
            Err(why) => return Ok(Outcome::Refused { why: why.to_string() }),
        };
        let done = match &call.order {
            Order::Claim | Order::Look { .. } => {
                drop(write);
                let counters = matches!(call.order, Order::Claim | Order::Look { counters: true });
                return Ok(Outcome::State(Box::new(self.state(counters))));
            }
            Order::Stage(stage) => write.stage(&staged(stage)),
            Order::Withdraw { lb, from } => write.withdraw(*lb, *from),
            Order::Destinations(rules) => write
                .edit(When::Next, |present: &mut Rules| {
                    put_destinations(present, rules);
                    Ok::<_, WriteError>(())
                })
                .map(drop),
            Order::Clear | Order::Change(_) => return Ok(rule_by_rule()),
        };
        drop(write);
        Ok(match done {
            Ok(()) | Err(WriteError::Withdraw(WithdrawError::Absent { .. })) => {
                Outcome::Done { routed: Some(self.0.ticks().routed) }
            }
            Err(WriteError::Stage(StageError::Routed { .. }))
            | Err(WriteError::Withdraw(WithdrawError::Routed { .. })) => Outcome::Routed,
            Err(why) => Outcome::Refused { why: why.to_string() },
        })
    }
}

impl Local {
    fn state(&self, counters: bool) -> PlaneState {
        let ticks = self.0.ticks();
        let packets = counters.then(|| {
            let members = self.0.counters().members.into_iter();
            members.map(|(member, sent)| (member, sent.packets)).collect()
        });
        PlaneState { routed: ticks.routed, sets: ticks.sets, beyond: ticks.beyond, packets }
    }
}

/// The refusal of an order that changes single rules. The control plane never gives it to a data plane with table sets.
pub(super) fn rule_by_rule() -> Outcome {
    Outcome::Refused { why: "this data plane is not programmed rule by rule".to_owned() }
}

pub(super) fn staged(stage: &Stage) -> LbStage {
    let Stage { lb, from, in_place, horizon, reset, ref rules } = *stage;
    LbStage { lb, rules: Rules::clone(rules), from, horizon, in_place, reset }
}

/// Returns the destinations to remove from `present` and those to insert, so that it has the destinations of `wanted`.
pub(super) fn differences(present: &Rules, wanted: &Rules) -> (Vec<RuleKey>, Vec<Rule>) {
    let is_destination = |rule: &Rule| matches!(rule, Rule::Destination { .. });
    let goes = |rule: &Rule| wanted.get(&rule.key()).is_none();
    let comes = |rule: &Rule| present.get(&rule.key()).as_ref() != Some(rule);
    let gone = present.iter().filter(is_destination).filter(goes).map(|rule| rule.key());
    (gone.collect(), wanted.iter().filter(is_destination).filter(comes).collect())
}

fn put_destinations(present: &mut Rules, wanted: &Rules) {
    let (gone, come) = differences(present, wanted);
    for key in gone {
        present.remove(&key);
    }
    for rule in come {
        // It may replace the rule of another load balancer. There is room for it, because the others were removed before.
        let _ = present.insert(rule, true);
    }
}
