//! What a control plane asks of data planes, and what they answer.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ejfat::lb::{BeyondHorizon, LbId, Rules};

use crate::{calendar::MemberId, p4::Change};

/// A data plane of the configuration.
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

/// A call of a data plane. Calls of one plane are made one after the other, in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The data plane that is to carry out the call.
    pub plane: PlaneId,
    /// The number by which [`Answer::number`] names this call.
    pub number: u64,
    /// The term of all writes of this connection. Each connection has a higher one, so that no write of an earlier one is
    /// carried out late.
    pub term: u64,
    /// What the data plane is to do.
    pub order: Order,
}

/// What a data plane is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Changes nothing but the term.
    Claim,
    /// Says what was routed and which tables there are, and with `counters` what was sent to each member.
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
    /// Puts these addresses in the place of those that packets are sent to, at once.
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
    /// The first tick that they apply to. The plane refuses it if it has routed that tick or a higher one.
    pub from: u64,
    /// They take the place of tables that are staged from that tick on.
    pub in_place: bool,
    /// Higher ticks are not to be remembered when they are routed.
    pub horizon: Option<u64>,
    /// They apply to all ticks, and what was routed is forgotten.
    pub reset: bool,
    /// The rules of which the tables consist.
    pub rules: Arc<Rules>,
}

/// What a data plane told of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The highest term before this connection's. 0: it is new, and has no tables.
    pub term: u64,
    /// The highest tick that was routed of each load balancer.
    pub routed: BTreeMap<LbId, u64>,
    /// The first tick of each set of tables, ascending for each load balancer.
    pub sets: Vec<(LbId, u64)>,
    /// What was routed of each load balancer with ticks above its horizon.
    pub beyond: BTreeMap<LbId, BeyondHorizon>,
    /// Packets that were sent to each member, if they were asked for.
    pub packets: Option<BTreeMap<(LbId, MemberId), u64>>,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The plane has carried out the call.
    Done {
        /// The highest tick of each load balancer that the plane has routed; `None` if the plane told no ticks.
        routed: Option<BTreeMap<LbId, u64>>,
    },
    /// The answer to [`Order::Look`], and to [`Order::Claim`] with what was there before.
    Seen(Box<Seen>),
    /// Packets had these ticks already, or met the tables that were to go.
    Routed {
        /// The highest tick of the load balancer that the plane has routed; `None` if the plane did not tell it.
        newest: Option<u64>,
    },
    /// A control plane with a higher term programs the plane.
    Replaced,
    /// The plane refused the call for another reason. Nothing has changed, except that [`Order::Change`] and
    /// [`Order::Clear`] may have been carried out in part.
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
    /// What became of the call.
    pub outcome: Outcome,
}

/// Times of what has to do with data planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaneTimes {
    /// A plane that does not answer for so long is lost: epochs begin without it. The default is 2 s.
    pub lost: Duration,
    /// From a call until all planes have carried it out, as long as nothing is measured. The default is 25 ms.
    pub install: Duration,
    /// How far the horizon is ahead of what was routed, at the highest rate that is taken into account. The default is 10 s.
    pub horizon: Duration,
    /// The most time for which an epoch waits until rates are settled. The default is 10 s.
    pub settle: Duration,
    /// A write to a plane without terms ends after so long at most. The default is 2 s.
    pub write: Duration,
}

impl Default for PlaneTimes {
    fn default() -> Self {
        let ms = Duration::from_millis;
        Self { lost: ms(2000), install: ms(25), horizon: ms(10_000), settle: ms(10_000), write: ms(2000) }
    }
}
