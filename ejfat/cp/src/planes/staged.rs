//! The connection to a data plane that is programmed by `naa.lb.v1`.

use std::{collections::BTreeMap, error::Error as _, num::NonZeroU64};

use ejfat::lb::{LbId, Rules};
use ejfat_control::{
    calendar::MemberId,
    plane::{Call, Order, Outcome, PlaneState},
};
use ejfat_lb::{
    When,
    grpc::{Client, ClientError},
    message,
};
use naa_grpc::{Credentials, innermost};
use proto::lb::v1;
use tonic::Code;

use super::{
    DEADLINE, Port,
    local::{differences, rule_by_rule, staged},
};

pub(super) struct Staged(Client);

impl Staged {
    pub(super) fn connect(address: &str, credentials: &Credentials) -> Result<Self, String> {
        let client = Client::connect_within(credentials, address, DEADLINE);
        client.map(Self).map_err(|why| why.to_string())
    }

    fn state(&mut self, counters: bool) -> Result<PlaneState, ClientError> {
        let ticks = self.0.ticks()?;
        let packets = if counters { Some(packets(&self.0.counters()?)) } else { None };
        Ok(PlaneState { routed: ticks.routed, sets: ticks.sets, beyond: ticks.beyond, packets })
    }

    fn carry_out(&mut self, call: &Call) -> Result<Outcome, ClientError> {
        if let Some(term) = NonZeroU64::new(call.term) {
            self.0.set_term(term);
        }
        let routed = match &call.order {
            Order::Claim => return self.claim(),
            Order::Look { counters } => return Ok(Outcome::State(Box::new(self.state(*counters)?))),
            Order::Stage(stage) => self.0.stage(&staged(stage))?,
            Order::Withdraw { lb, from } => self.0.withdraw(*lb, *from)?,
            Order::Destinations(rules) => {
                self.put_destinations(rules)?;
                return Ok(Outcome::Done { routed: Some(self.0.ticks()?.routed) });
            }
            Order::Clear | Order::Change(_) => return Ok(rule_by_rule()),
        };
        let ticks = message::ticks(&v1::GetTicksReply { routed, ..v1::GetTicksReply::default() });
        Ok(Outcome::Done { routed: ticks.ok().map(|ticks| ticks.routed) })
    }

    /// Makes the term known to the data plane, by a write that changes nothing.
    fn claim(&mut self) -> Result<Outcome, ClientError> {
        let state = self.state(true)?;
        self.0.edit(&[], &[], true, When::Next)?;
        Ok(Outcome::State(Box::new(state)))
    }

    fn put_destinations(&mut self, wanted: &Rules) -> Result<(), ClientError> {
        let sets = self.0.get(None, true)?;
        let none = Rules::default();
        let present = sets.last().map_or(&none, |set| &*set.rules);
        let (gone, come) = differences(present, wanted);
        self.0.edit(&gone, &come, true, When::Next).map(drop)
    }

    /// Finds out what a refusal with the code `FAILED_PRECONDITION` means, by a look at the data plane's term, ticks and sets.
    fn explained(&mut self, call: &Call, why: String) -> Result<Outcome, ClientError> {
        let ticks = self.0.ticks()?;
        if ticks.term.is_some_and(|term| term.get() > call.term) {
            return Ok(Outcome::Replaced);
        }
        Ok(match &call.order {
            Order::Stage(stage)
                if ticks.routed.get(&stage.lb).is_some_and(|newest| *newest >= stage.from) =>
            {
                Outcome::Routed
            }
            Order::Withdraw { lb, from } if ticks.sets.contains(&(*lb, *from)) => Outcome::Routed,
            Order::Withdraw { .. } => Outcome::Done { routed: Some(ticks.routed) },
            _ => Outcome::Refused { why },
        })
    }
}

impl Port for Staged {
    fn call(&mut self, call: &Call) -> Result<Outcome, String> {
        let refused = match self.carry_out(call) {
            Ok(outcome) => return Ok(outcome),
            Err(ClientError::Refused { status, .. }) => status,
            Err(why) => return Err(why.to_string()),
        };
        // Only an error of the connection has a source: a status that the data plane sent has none.
        if refused.source().is_some() {
            return Err(format!(
                "the connection ended: {}; is the data plane running?",
                innermost(&*refused)
            ));
        }
        let why = refused.message().to_owned();
        match refused.code() {
            Code::FailedPrecondition => self.explained(call, why).map_err(|why| why.to_string()),
            Code::InvalidArgument | Code::ResourceExhausted | Code::Aborted | Code::Unauthenticated => {
                Ok(Outcome::Refused { why })
            }
            code => Err(format!("{code}: {why}")),
        }
    }
}

/// The packets that were sent to each member.
fn packets(reply: &v1::GetCountersReply) -> BTreeMap<(LbId, MemberId), u64> {
    let of = |member: &v1::MemberCounters| {
        let lb = LbId::new(u8::try_from(member.lb).ok()?).ok()?;
        Some(((lb, MemberId::try_from(member.member).ok()?), member.mbr_tx_pkt))
    };
    reply.members.iter().filter_map(of).collect()
}
