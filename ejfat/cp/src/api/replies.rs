//! Makes the messages of replies.

use std::{collections::BTreeMap, net::IpAddr};

use ejfat::{lb::LbId, uri::EjfatUri};
use ejfat_control::{
    calendar::MemberId,
    request::{CreatedToken, LoadBalancerStatus, Overview, ReservedLoadBalancer, TokenDetails, WorkerStatus},
    session::{liveness::Readiness, slots::SlotRange},
    token::{Permission, Right, Scope},
    wall::WallTime,
};
use prost_types::Timestamp;
use proto::loadbalancer::{self as pb, timeseries, token_permission};

use super::Public;
use crate::{
    core::Core,
    planes::Away,
    reports::Issue,
    series::{OneSeries, Values},
};

/// The version of EJFAT's control plane API that this control plane is compatible with.
const COMPATIBLE_WITH: &str = "0.3.1";

pub(super) fn version() -> pb::VersionReply {
    pb::VersionReply {
        commit: format!("naa {}", env!("CARGO_PKG_VERSION")),
        build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
        compat_tag: COMPATIBLE_WITH.to_owned(),
    }
}

pub(super) fn timestamp(at: WallTime) -> Timestamp {
    let nanos = (at.0 % 1000) as i32 * 1_000_000;
    Timestamp { seconds: i64::try_from(at.0 / 1000).unwrap_or(i64::MAX), nanos }
}

fn text<T: ToString>(of: Option<T>) -> String {
    of.map(|of| of.to_string()).unwrap_or_default()
}

/// The message of a reservation. Its EJFAT URI is empty if `public` is `None`.
pub(super) fn reserved(of: &ReservedLoadBalancer, public: Option<&Public>) -> pb::ReserveLoadBalancerReply {
    let uri = public.map(|public| of.uri(public.tls, &public.host, public.port));
    pb::ReserveLoadBalancerReply {
        token: of.token.as_ref().map(|token| token.as_str().to_owned()).unwrap_or_default(),
        lb_id: of.id.to_string(),
        sync_ipv4_address: text(of.sync_v4),
        sync_udp_port: of.sync_port.into(),
        data_ipv4_address: text(of.data_v4),
        data_ipv6_address: text(of.data_v6),
        fpga_lb_id: of.lb.get().into(),
        sync_ipv6_address: text(of.sync_v6),
        data_min_port: (*of.data_ports.start()).into(),
        data_max_port: (*of.data_ports.end()).into(),
        strategy: of.strategy.name().to_owned(),
        ejfat_uri: uri.map(|uri| uri.to_string()).unwrap_or_default(),
    }
}

pub(super) fn token(of: &CreatedToken, public: &Public) -> pb::CreateTokenReply {
    let token = of.token.as_str().to_owned();
    let uri =
        EjfatUri { tls: public.tls, token: Some(token.clone()), ..EjfatUri::new(&public.host, public.port) };
    pb::CreateTokenReply { token, ejfat_uri: uri.to_string() }
}

fn range(of: &SlotRange) -> pb::SlotRange {
    pb::SlotRange { index: i32::try_from(of.first).unwrap_or(i32::MAX), length: of.count }
}

/// Returns the calendar slots of each member as ranges.
fn ranges(slots: &[Option<MemberId>]) -> BTreeMap<MemberId, Vec<pb::SlotRange>> {
    let mut of: BTreeMap<MemberId, Vec<pb::SlotRange>> = BTreeMap::new();
    let (mut at, mut index) = (0, 0_i32);
    for run in slots.chunk_by(|a, b| a == b) {
        if let Some(member) = run[0] {
            of.entry(member).or_default().push(pb::SlotRange { index, length: run.len() as u32 });
        }
        at += run.len();
        index = i32::try_from(at).unwrap_or(i32::MAX);
    }
    of
}

pub(super) fn status(core: &Core, lb: Option<LbId>, of: &LoadBalancerStatus) -> pb::LoadBalancerStatusReply {
    let published = lb.and_then(|lb| core.published(lb)).unwrap_or_default();
    let issues = lb.map(|lb| core.issues(lb)).unwrap_or_default();
    let slots = lb.and_then(|lb| {
        core.look(|control, _| control.registry().durable().epoch(lb).map(|epoch| ranges(&epoch.slots)))
    });
    let slots = slots.unwrap_or_default();
    let assigned = published.slots.into_iter().collect();
    let mut by_member: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for issue in &issues {
        by_member.entry(issue.member()).or_default().push(health(issue));
    }
    let mut issues_of = |member| by_member.remove(&member).unwrap_or_default();
    let mut health_issues = issues_of(None);
    health_issues.extend(core.planes().into_iter().filter_map(|(name, _, away)| Some(plane(&name, &away?))));
    let worker = |of: &WorkerStatus| worker(of, &slots, &assigned, issues_of(Some(of.member)));
    pb::LoadBalancerStatusReply {
        timestamp: Some(timestamp(of.at)),
        current_epoch: published.epoch,
        current_predicted_event_number: published.tick,
        workers: of.workers.iter().map(worker).collect(),
        sender_addresses: of.senders.iter().map(IpAddr::to_string).collect(),
        expires_at: of.expires.map(timestamp),
        slot_resolution: of.slots,
        health_issues,
    }
}

fn worker(
    of: &WorkerStatus,
    ranges: &BTreeMap<MemberId, Vec<pb::SlotRange>>,
    slots: &BTreeMap<MemberId, u32>,
    mut health_issues: Vec<pb::HealthIssue>,
) -> pb::WorkerStatus {
    let state = of.state.as_ref().map(|(state, _)| state);
    let counters = state.map(|state| state.counters).unwrap_or_default();
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let assigned = slots.get(&of.member).copied().unwrap_or(0);
    health_issues.extend(readiness(of));
    pb::WorkerStatus {
        name: of.worker.name.clone(),
        fill_percent: state.map_or(0.0, |state| state.fill_level),
        control_signal: state.map_or(0.0, |state| state.control_signal),
        slots_assigned: assigned,
        last_updated: of.state.as_ref().map(|(_, at)| timestamp(*at)),
        ip_address: of.worker.address.to_string(),
        udp_port: of.worker.port.into(),
        port_range: of.worker.port_bits.into(),
        min_factor: of.worker.min_factor,
        max_factor: of.worker.max_factor,
        keep_lb_header: of.worker.keep_lb_header,
        total_events_recv: count(counters.events_received),
        total_events_reassembled: count(counters.events_reassembled),
        total_events_reassembly_err: count(counters.reassembly_errors),
        total_events_dequeued: count(counters.events_dequeued),
        total_event_enqueue_err: count(counters.enqueue_errors),
        total_bytes_recv: count(counters.bytes_received),
        total_packets_recv: count(counters.packets_received),
        slots: if assigned > 0 { ranges.get(&of.member).cloned().unwrap_or_default() } else { Vec::new() },
        slot_demands: of.slot_demands.iter().map(range).collect(),
        health_issues,
        session_id: count(of.session.0),
    }
}

/// Returns why a worker gets no new events, or `None` if it gets some.
fn readiness(of: &WorkerStatus) -> Option<pb::HealthIssue> {
    let (kind, message) = match of.readiness {
        Readiness::Ready | Readiness::Restored => return None,
        Readiness::Registered => ("worker_registered", "it has sent no state yet, so it gets no events"),
        Readiness::NotReady => ("worker_not_ready", "it says that it is not ready, so it gets no new events"),
        Readiness::Silent => ("worker_silent", "it sends no state, so it gets no new events"),
    };
    Some(issue(kind, "info", message.to_owned(), of.state.as_ref().map(|(_, at)| *at)))
}

/// Returns what is wrong with a data plane that cannot be programmed.
fn plane(name: &str, away: &Away) -> pb::HealthIssue {
    let text = format!("data plane {name} is not in use since {}: {}", rfc3339(away.since), away.why);
    issue("data_plane_away", "warning", text, Some(away.since))
}

fn health(of: &Issue) -> pb::HealthIssue {
    issue(of.kind(), "warning", of.text(), Some(of.since))
}

fn issue(kind: &str, severity: &str, message: String, at: Option<WallTime>) -> pb::HealthIssue {
    let (r#type, severity) = (kind.to_owned(), severity.to_owned());
    pb::HealthIssue { r#type, severity, message, details: None, detected_at: at.map(timestamp) }
}

pub(super) fn overview(core: &Core, of: &Overview) -> pb::Overview {
    pb::Overview {
        name: of.reservation.name.clone(),
        reservation: Some(reserved(&of.reservation, None)),
        status: Some(status(core, Some(of.reservation.lb), &of.status)),
    }
}

pub(super) fn details(of: &TokenDetails) -> pb::TokenDetails {
    pb::TokenDetails {
        name: of.name.clone(),
        permissions: of.permissions.iter().map(permission).collect(),
        created_at: of.created.map(rfc3339).unwrap_or_default(),
        id: of.id.0,
    }
}

fn permission(of: &Permission) -> pb::TokenPermission {
    use token_permission::{PermissionType, ResourceType};
    let (resource_type, resource_id) = match of.scope {
        Scope::All => (ResourceType::All, String::new()),
        Scope::LoadBalancers => (ResourceType::LoadBalancer, String::new()),
        Scope::LoadBalancer(lb) => (ResourceType::LoadBalancer, lb.get().to_string()),
        Scope::Reservation(id) => (ResourceType::Reservation, id.to_string()),
        Scope::Session(id) => (ResourceType::Session, id.to_string()),
    };
    let permission = match of.right {
        Right::ReadOnly => PermissionType::ReadOnly,
        Right::Register => PermissionType::Register,
        Right::Reserve => PermissionType::Reserve,
        Right::Update => PermissionType::Update,
    };
    pb::TokenPermission { resource_type: resource_type.into(), resource_id, permission: permission.into() }
}

fn rfc3339(at: WallTime) -> String {
    timestamp(at).to_string()
}

pub(super) fn series(of: OneSeries) -> pb::Timeseries {
    let time = |at: WallTime| i64::try_from(at.0).unwrap_or(i64::MAX);
    let samples = match of.samples {
        Values::Integers(values) => {
            let sample = |(at, value): (WallTime, u64)| {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                pb::IntegerSample { timestamp: time(at), value, meta: None }
            };
            let data = values.into_iter().map(sample).collect();
            timeseries::Timeseries::IntegerSamples(pb::IntegerTimeseries { data })
        }
        Values::Floats(values) => {
            let sample = |(at, value)| pb::FloatSample { timestamp: time(at), value, meta: None };
            let data = values.into_iter().map(sample).collect();
            timeseries::Timeseries::FloatSamples(pb::FloatTimeseries { data })
        }
    };
    pb::Timeseries { name: of.path, unit: of.unit.to_owned(), timeseries: Some(samples) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_member_are_ranges() {
        let found = ranges(&[Some(1), Some(1), None, Some(2), Some(1)]);
        let of = |member| found[&member].iter().map(|of| (of.index, of.length)).collect::<Vec<_>>();
        assert_eq!((of(1), of(2)), (vec![(0, 2), (4, 1)], vec![(3, 1)]));
    }

    #[test]
    fn times_are_in_utc() {
        assert_eq!(rfc3339(WallTime(1_795_248_403_753)), "2026-11-21T08:06:43.753Z");
    }
}
