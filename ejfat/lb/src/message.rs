//! Messages of [`proto::lb::v1`] and what they stand for.
//!
//! Functions called `of_` make messages. The others take them from peers: they refuse what does not fit, and name the
//! field.

mod frame;
mod report;
mod rule;

use std::{collections::BTreeMap, num::NonZeroU64};

use ejfat::lb::{BeyondHorizon, LbId, Rule, RuleError, Rules};
use proto::lb::v1;

use crate::{LbStage, TableSet, Ticks, When};

pub use frame::{FrameError, decode, encode};
pub use report::{of_counters, of_routed, of_sets, of_ticks};
pub use rule::{key, lb, of_key, of_rule, rule};

/// A field of a message that is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {cause}")]
pub struct MessageError {
    /// Its path: `rules[3].epoch.prefix_length`.
    pub field: String,
    /// The reason for which the field is refused.
    pub cause: FieldError,
}

/// Why a field is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The field is a choice among several kinds, and the message has none of these kinds.
    #[error("none of its kinds is given; give one")]
    Missing,
    /// The number is too high.
    #[error("{value} is too high; the highest is {most}")]
    TooHigh {
        /// The number in the message.
        value: u32,
        /// The highest number that the field may have.
        most: u32,
    },
    /// The field has this number of octets, which is not the length of an IP address.
    #[error("{0} octets are no address; give 4 for IPv4, 16 for IPv6")]
    Address(usize),
    /// The field has this number of octets, which is not the length of a MAC address.
    #[error("{0} octets are no MAC address; give 6, or none")]
    Mac(usize),
    /// The enumeration of the field has no value with this number.
    #[error("{0} is none of its values")]
    Value(i32),
    /// The tables have no rule with this key.
    #[error("there is no rule with this key")]
    Absent,
    /// The message has destinations, or rules of load balancers other than the one that it names.
    #[error("there are destinations or rules of other load balancers; give those of this load balancer only")]
    OfOthers,
    /// The rule is not valid, or does not fit into its table.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl MessageError {
    pub(crate) fn new(field: impl Into<String>, cause: impl Into<FieldError>) -> Self {
        Self { field: field.into(), cause: cause.into() }
    }

    /// The same, of an element of a list.
    pub(crate) fn within(self, list: &str, at: usize) -> Self {
        Self { field: format!("{list}[{at}].{}", self.field), ..self }
    }
}

/// Reads rules of all tables from messages. Each key may occur once.
///
/// # Errors
/// Fails with the first field that is missing or out of range, or with the first rule that has the key of an earlier
/// rule or does not fit into its table.
pub fn rules(messages: &[v1::Rule]) -> Result<Rules, MessageError> {
    let mut rules = Rules::default();
    for (at, message) in messages.iter().enumerate() {
        let rule = rule(message).map_err(|error| error.within("rules", at))?;
        rules.insert(rule, false).map_err(|error| MessageError::new(format!("rules[{at}]"), error))?;
    }
    Ok(rules)
}

/// The same, each load balancer's within the limits of tables.
fn rules_by_lb(messages: &[v1::Rule]) -> Result<Rules, MessageError> {
    let mut of_lbs: BTreeMap<LbId, Rules> = BTreeMap::new();
    let mut whole = Rules::default();
    for (at, message) in messages.iter().enumerate() {
        let rule = rule(message).map_err(|error| error.within("rules", at))?;
        let rules = match rule {
            Rule::Destination { .. } => &mut whole,
            Rule::Source { lb, .. }
            | Rule::Epoch { lb, .. }
            | Rule::Slot { lb, .. }
            | Rule::Member { lb, .. } => of_lbs.entry(lb).or_default(),
        };
        rules.insert(rule, false).map_err(|error| MessageError::new(format!("rules[{at}]"), error))?;
    }
    of_lbs.values().for_each(|of| whole.add(of));
    Ok(whole)
}

/// Returns the messages of all rules, table by table.
pub fn of_rules(rules: &Rules) -> Vec<v1::Rule> {
    rules.iter().map(|rule| of_rule(&rule)).collect()
}

/// The next tick, unless it says otherwise.
pub fn when(message: Option<&v1::When>) -> When {
    use v1::when::When as Kind;
    match message.and_then(|message| message.when.as_ref()) {
        None | Some(Kind::Next(_)) => When::Next,
        Some(&Kind::Tick(tick)) => When::Tick(tick),
        Some(&Kind::Force(tick)) => When::Force(tick),
        Some(Kind::Now(_)) => When::Now,
    }
}

/// Returns the message of the tick from which on tables apply.
pub fn of_when(when: When) -> v1::When {
    use v1::when::{Next, Now, When as Kind};
    let kind = match when {
        When::Next => Kind::Next(Next {}),
        When::Tick(tick) => Kind::Tick(tick),
        When::Force(tick) => Kind::Force(tick),
        When::Now => Kind::Now(Now {}),
    };
    v1::When { when: Some(kind) }
}

/// Reads the tables of one load balancer that are to be staged.
///
/// # Errors
/// Fails with the first field that is missing or out of range, or with [`FieldError::OfOthers`] if a rule belongs to
/// another load balancer.
pub fn stage(message: &v1::StageRequest) -> Result<LbStage, MessageError> {
    let &v1::StageRequest { from_tick, horizon, in_place, reset, .. } = message;
    let lb = lb("lb", message.lb)?;
    let rules = rules(&message.rules)?;
    if rules.of(lb) != rules {
        return Err(MessageError::new("rules", FieldError::OfOthers));
    }
    Ok(LbStage { lb, rules, from: from_tick, horizon, in_place, reset })
}

/// Returns the request that stages tables of one load balancer. `term` is the control plane's term, or 0 without a
/// control plane.
pub fn of_stage(stage: &LbStage, term: u64) -> v1::StageRequest {
    let &LbStage { lb, from, horizon, in_place, reset, .. } = stage;
    v1::StageRequest {
        term,
        lb: lb.get().into(),
        from_tick: from,
        horizon,
        in_place,
        reset,
        rules: of_rules(&stage.rules),
    }
}

/// Reads the ticks and the term that a data plane reports.
///
/// # Errors
/// Fails with the first field that is missing or out of range.
pub fn ticks(message: &v1::GetTicksReply) -> Result<Ticks, MessageError> {
    let tick = |list, at, tick: &v1::LbTick| {
        lb("lb", tick.lb).map(|lb| (lb, tick.tick)).map_err(|error| error.within(list, at))
    };
    let routed = message.routed.iter().enumerate().map(|(at, of)| tick("routed", at, of));
    let routed = routed.collect::<Result<_, _>>()?;
    let beyond = |(at, of): (usize, &v1::BeyondHorizon)| {
        let &v1::BeyondHorizon { packets, lowest, highest, .. } = of;
        let lb = lb("lb", of.lb).map_err(|error| error.within("beyond_horizon", at))?;
        Ok((lb, BeyondHorizon { packets, lowest, highest }))
    };
    let beyond = message.beyond_horizon.iter().enumerate().map(beyond).collect::<Result<_, _>>()?;
    let sets = message.sets.iter().enumerate().map(|(at, of)| tick("sets", at, of));
    let sets = sets.collect::<Result<_, _>>()?;
    Ok(Ticks { term: NonZeroU64::new(message.term), routed, beyond, sets })
}

/// Reads the staged table sets, the newest one last. Load balancers change their tables one by one, so the sets of all
/// load balancers at some tick may together exceed the limits of tables. The set of each load balancer stays within the
/// limits.
///
/// # Errors
/// Fails with the first field that is missing or out of range, or with the first rule that does not fit into its table.
pub fn sets(message: &v1::GetReply) -> Result<Vec<TableSet>, MessageError> {
    let set = |(at, set): (usize, &v1::TableSet)| {
        let rules = rules_by_lb(&set.rules).map_err(|error| error.within("sets", at))?;
        Ok(TableSet { from: set.from_tick, rules: rules.into() })
    };
    message.sets.iter().enumerate().map(set).collect()
}
