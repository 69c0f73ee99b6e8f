//! What a data plane tells: its tables and counters.

use std::{collections::BTreeMap, num::NonZeroU64};

use ejfat::lb::{BeyondHorizon, DropCause, Drops, LbCounters, LbId, Traffic};
use proto::lb::v1;

use super::of_rules;
use crate::{Counters, TableSet, Ticks};

/// Returns the reply that lists table sets.
pub fn of_sets(sets: &[TableSet]) -> v1::GetReply {
    let set = |set: &TableSet| v1::TableSet { from_tick: set.from, rules: of_rules(&set.rules) };
    v1::GetReply { sets: sets.iter().map(set).collect(), routed: Vec::new() }
}

fn of_tick((lb, tick): (LbId, u64)) -> v1::LbTick {
    v1::LbTick { lb: lb.get().into(), tick }
}

/// Load balancers of which nothing was routed are left out.
pub fn of_routed(routed: &BTreeMap<LbId, u64>) -> Vec<v1::LbTick> {
    routed.iter().map(|(&lb, &tick)| of_tick((lb, tick))).collect()
}

/// Returns the reply with the term, the routed ticks and the first ticks of table sets.
pub fn of_ticks(ticks: &Ticks) -> v1::GetTicksReply {
    v1::GetTicksReply {
        term: ticks.term.map_or(0, NonZeroU64::get),
        routed: of_routed(&ticks.routed),
        sets: ticks.sets.iter().copied().map(of_tick).collect(),
        beyond_horizon: ticks.beyond.iter().map(of_beyond).collect(),
    }
}

fn of_beyond((lb, beyond): (&LbId, &BeyondHorizon)) -> v1::BeyondHorizon {
    let BeyondHorizon { packets, lowest, highest } = *beyond;
    v1::BeyondHorizon { lb: lb.get().into(), packets, lowest, highest }
}

/// Returns the reply with the counters of a data plane. The reply has no routed ticks.
pub fn of_counters(counters: &Counters) -> v1::GetCountersReply {
    let lbs = LbId::all().zip(&counters.lbs).map(|(id, lb)| of_lb(id, lb));
    let members = counters.members.iter().map(|(&(lb, id), &sent)| of_member(lb, id, sent));
    v1::GetCountersReply {
        lbs: lbs.collect(),
        members: members.collect(),
        unaddressed: of_drops(&counters.unaddressed),
        newest_tick: counters.newest_tick,
        overflows: counters.overflows,
        refused: counters.refused,
        routed: Vec::new(),
    }
}

fn of_lb(id: LbId, lb: &LbCounters) -> v1::LbCounters {
    v1::LbCounters {
        lb: id.get().into(),
        lb_rx_pkt: lb.received.packets,
        lb_rx_byte: lb.received.bytes,
        lb_rx_v2: lb.v2,
        lb_rx_v3: lb.v3,
        drops: of_drops(&lb.dropped),
        lb_tx_pkt: lb.sent.packets,
        lb_tx_byte: lb.sent.bytes,
    }
}

fn of_member(lb: LbId, id: u16, sent: Traffic) -> v1::MemberCounters {
    v1::MemberCounters {
        lb: lb.get().into(),
        member: id.into(),
        mbr_tx_pkt: sent.packets,
        mbr_tx_byte: sent.bytes,
    }
}

/// Every cause, so that who reads them need not know which there are.
fn of_drops(drops: &Drops) -> BTreeMap<String, u64> {
    DropCause::ALL.iter().map(|&cause| (cause.name().to_owned(), drops.of(cause))).collect()
}
