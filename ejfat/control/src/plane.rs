//! What a control plane asks of data planes, and what they answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ejfat::lb::{BeyondHorizon, LbId, Rules};

use crate::{calendar::MemberId, p4::Change};

/// The id of a data plane in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaneId(pub u16);

/// The protocol by which a data plane is programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PlaneKind {
    /// The protocol `naa.lb.v1`: tables are staged whole, and the plane reports the ticks that it has routed.
    Staged,
    /// The protocol `sn_p4.v2`: rules are changed one by one, and the plane reports no ticks.
    RuleByRule,
}

/// A call to a data plane. The calls to one data plane are made one after the other, in the order in which
/// [`Control::poll`](crate::control::Control::poll) returns them.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The data plane that is to carry out the call.
    pub plane: PlaneId,
    /// The number by which [`Answer::number`] names this call.
    pub number: u64,
    /// The term of all writes over this connection to the data plane. Each new connection has a higher term, so that no
    /// write of an earlier connection is carried out late.
    pub term: u64,
    /// What the data plane is to do.
    pub order: Order,
}

/// What a data plane is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Changes nothing but the term.
    Claim,
    /// Asks the data plane which ticks it has routed and which tables it has.
    Look {
        /// True if the data plane is also to say how many packets it sent to each member.
        counters: bool,
    },
    /// Stages tables of one load balancer.
    Stage(Stage),
    /// Takes back tables that were staged from a tick on, if no packet has met them.
    Withdraw {
        /// The load balancer whose tables are taken back.
        lb: LbId,
        /// The first tick of the tables that are taken back.
        from: u64,
    },
    /// Replaces the addresses to which senders send packets by the addresses in these rules, at once.
    Destinations(Arc<Rules>),
    /// Deletes all rules of all tables.
    Clear,
    /// Changes rules one after the other.
    Change(Vec<Change>),
}

/// Tables of one load balancer.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// The load balancer that the tables are for.
    pub lb: LbId,
    /// The first tick to which the tables apply. The data plane refuses the tables if it has routed this tick or a
    /// higher tick.
    pub from: u64,
    /// True if the tables replace tables that are already staged from the same tick on.
    pub in_place: bool,
    /// The highest tick that the data plane is to remember as routed; it only counts packets with higher ticks. `None`
    /// leaves the present horizon as it is, but together with `reset` it removes the horizon.
    pub horizon: Option<u64>,
    /// True if the tables apply to all ticks, and the data plane forgets which ticks it has routed.
    pub reset: bool,
    /// The rules of which the tables consist.
    pub rules: Arc<Rules>,
}

/// The state that a data plane reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneState {
    /// The highest tick of each load balancer that the data plane has routed.
    pub routed: BTreeMap<LbId, u64>,
    /// The first tick of each table set with its load balancer, in ascending order for each load balancer.
    pub sets: Vec<(LbId, u64)>,
    /// What each load balancer has routed of ticks above its horizon.
    pub beyond: BTreeMap<LbId, BeyondHorizon>,
    /// The number of packets that were sent to each member, or `None` if the call did not ask for it.
    pub packets: Option<BTreeMap<(LbId, MemberId), u64>>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The plane has carried out the call.
    Done {
        /// The highest tick of each load balancer that the plane has routed; `None` if the plane told no ticks.
        routed: Option<BTreeMap<LbId, u64>>,
    },
    /// The answer to [`Order::Look`] or [`Order::Claim`]. The answer to [`Order::Claim`] is the state before the claim.
    State(Box<PlaneState>),
    /// Packets with ticks of the tables that were to be staged or taken back have already come to the data plane, so it
    /// has not changed these tables.
    Routed,
    /// A control plane with a higher term programs the plane.
    Replaced,
    /// The data plane refused the call for a reason other than those of [`Self::Routed`] and [`Self::Replaced`].
    /// Nothing has changed, except that [`Order::Change`] and [`Order::Clear`] may have been carried out in part.
    Refused {
        /// The reason of the refusal, as text for people.
        why: String,
    },
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The data plane that answers.
    pub plane: PlaneId,
    /// The number of the call that is answered, from [`Call::number`].
    pub number: u64,
    /// The result of the call.
    pub outcome: Outcome,
}

/// The times that the control plane uses for its data planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneTimes {
    /// A data plane that does not answer for this time counts as lost, and epochs begin without it. The default is 2 s.
    pub lost: Duration,
    /// The assumed time from a call until all data planes have carried it out, as long as no such time is measured. If
    /// a data plane is of [`PlaneKind::RuleByRule`], this is also the least assumed time. The default is 25 ms.
    pub install: Duration,
    /// The time by which the horizon is ahead of the routed ticks, at the highest rate that is taken into account. The
    /// default is 10 s.
    pub horizon: Duration,
    /// The most time for which an epoch waits until rates are settled. The default is 10 s.
    pub settle: Duration,
    /// The most time that a write to a data plane without terms takes. The default is 2 s.
    pub write: Duration,
}

impl Default for PlaneTimes {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { lost: ms(2000), install: ms(25), horizon: ms(10_000), settle: ms(10_000), write: ms(2000) }
    }
}
