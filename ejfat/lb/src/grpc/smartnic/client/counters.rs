//! Counters of a SmartNIC's load balancers, found by their names.

use std::collections::BTreeMap;

use ejfat::lb::{DropCause, Drops, LbId, Traffic};
use proto::sn_p4::v2::Stats;

use crate::grpc::smartnic::names;

/// What a SmartNIC has counted since its counters were last cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmartNicCounters {
    /// What load balancers counted, by their ids.
    pub lbs: [SmartNicLb; LbId::P4_COUNT],
    /// What members counted that counted anything, by their ids. Members of several load balancers with one id share counters. A
    /// card has counters for 1024 ids, and takes higher ids modulo 1024.
    pub members: BTreeMap<u16, SmartNicMember>,
}

/// The counters of one load balancer of a SmartNIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmartNicLb {
    /// The packets that the load balancer received, and their bytes.
    pub received: Traffic,
    /// The number of received packets with an LB header of version 2.
    pub v2: u64,
    /// The number of received packets with an LB header of version 3.
    pub v3: u64,
    /// Packets to members that are evicted or deregistered are here if our data plane counted them. A card counts them by member.
    pub dropped: Drops,
}

/// The counters of one member id of a SmartNIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SmartNicMember {
    /// The packets that were sent to the member, and their bytes.
    pub sent: Traffic,
    /// The number of packets that were dropped because the member was soft-evicted.
    pub soft_evicted: u64,
    /// The number of packets that were dropped because the member was deregistered.
    pub deregistered: u64,
}

/// `None` if there is no counter of a load balancer at all. Other programs' are left out.
pub(super) fn counters(stats: &Stats) -> Option<SmartNicCounters> {
    let mut counters = SmartNicCounters::default();
    let mut dropped = [const { Vec::new() }; LbId::P4_COUNT];
    let mut found = false;
    for metric in &stats.metrics {
        let cause = DropCause::ALL.into_iter().find(|&cause| names::dropped(cause) == metric.name);
        let (of_lb, of_member) = (of_lb(&metric.name), of_member(&metric.name));
        found |= of_lb.is_some();
        for (index, value) in metric.values.iter().map(|value| (value.index as usize, value.u64)) {
            if let (Some(cause), Some(lb)) = (cause, dropped.get_mut(index)) {
                lb.push((cause, value));
            }
            if let (Some(field), Some(lb)) = (of_lb, counters.lbs.get_mut(index)) {
                *field(lb) = value;
            }
            if let (Some(field), Ok(id), 1..) = (of_member, u16::try_from(index), value) {
                *field(counters.members.entry(id).or_default()) = value;
            }
        }
    }
    for (lb, dropped) in counters.lbs.iter_mut().zip(dropped) {
        lb.dropped = Drops::from_iter(dropped);
    }
    found.then_some(counters)
}

fn of_lb(name: &str) -> Option<fn(&mut SmartNicLb) -> &mut u64> {
    Some(match name {
        names::RECEIVED_PACKETS => |lb| &mut lb.received.packets,
        names::RECEIVED_BYTES => |lb| &mut lb.received.bytes,
        names::RECEIVED_V2 => |lb| &mut lb.v2,
        names::RECEIVED_V3 => |lb| &mut lb.v3,
        _ => return None,
    })
}

fn of_member(name: &str) -> Option<fn(&mut SmartNicMember) -> &mut u64> {
    Some(match name {
        names::SENT_PACKETS => |member| &mut member.sent.packets,
        names::SENT_BYTES => |member| &mut member.sent.bytes,
        names::SOFT_EVICTED => |member| &mut member.soft_evicted,
        names::DEREGISTERED => |member| &mut member.deregistered,
        _ => return None,
    })
}
