//! Reports what a bridge did, as text and JSON.

use std::time::Duration;

use ejfat::{
    bridge::{EventLossCause, Histogram},
    reassembly::{Eviction, SegmentDropCause},
};
use ejfat_bridge::{Snapshot, WorkerReport};
use proto::events::v1::{BridgeStatus, ReassemblyCounters};
use serde_json::{Value, json};

use crate::{
    ejfat::{losses, recv::port},
    show,
};

/// A line about the time since the snapshot `before`, which is a second older.
pub(super) fn line(before: &Snapshot, now: &Snapshot) -> String {
    let second = Duration::from_nanos(now.now.0.saturating_sub(before.now.0));
    let rate = show::rate(now.events.sent_bytes.saturating_sub(before.events.sent_bytes), second);
    let events = now.events.sent.saturating_sub(before.events.sent);
    let worker = |its: &WorkerReport| {
        let stalled = if its.stats.stalled { " stalled" } else { "" };
        format!("{} {:.0}%{stalled}", name(its), 100.0 * its.stats.fill)
    };
    let workers: Vec<_> = now.workers.iter().map(worker).collect();
    let workers = if workers.is_empty() { "no workers".into() } else { workers.join(", ") };
    let (lost, waiting) = (lost(&naa_services::bridge_status(now)), now.waiting);
    format!(
        "{events} events/s, {rate}, {waiting} wait, {} events and {} datagrams lost; {workers}",
        lost.0, lost.1
    )
}

fn name(its: &WorkerReport) -> String {
    match its.stats.name.as_str() {
        "" => format!("worker {}", its.stats.id.number()),
        name => name.to_owned(),
    }
}

/// Events and datagrams that were lost, whatever the cause.
pub(super) fn lost(of: &BridgeStatus) -> (u64, u64) {
    let usual = ReassemblyCounters::default();
    let reassembly = of.reassembly.as_ref().unwrap_or(&usual);
    (losses::sum(losses::events(of)), losses::sum(losses::datagrams(reassembly, of.kernel_drops)))
}

/// Says in words how many events workers had when they ended, and how many of these were delivered again.
pub(super) fn ended(of: &BridgeStatus) -> String {
    let again = match (of.delivered_again, of.waiting_again) {
        (0, 0) => String::new(),
        (again, 0) => format!(", of which {again} were delivered again"),
        (again, wait) => format!(", of which {again} were delivered again and {wait} wait for that"),
    };
    format!("{} with workers that ended{again}", of.held_by_ended)
}

pub(super) fn end(of: &Snapshot) -> String {
    let (events, status) = (&of.events, naa_services::bridge_status(of));
    let (lost, ended) = (losses::words(&status), ended(&status));
    format!(
        "{} events, {} to workers ({} given back, {ended}), {} still on their way; {lost}",
        events.opened, events.sent, events.released, events.open
    )
}

/// The median and the 99th percentile in seconds.
fn quantiles(of: &Histogram) -> Value {
    let at = |part| of.quantile(part).map(|nanos| nanos as f64 * 1e-9);
    json!({ "p50": at(0.5), "p99": at(0.99), "count": of.count() })
}

pub(super) fn json(what: &str, of: &Snapshot) -> Value {
    let (events, segments) = (&of.events, &of.reassembly);
    let (lost_events, lost_datagrams) = lost(&naa_services::bridge_status(of));
    let too_long = (SegmentDropCause::TooLong.name(), of.too_long);
    let by_cause = EventLossCause::ALL.map(|cause| (cause.name(), events.lost(cause)));
    let lost = losses::json(by_cause.into_iter().chain([too_long]));
    let dropped = losses::json(SegmentDropCause::ALL.map(|cause| (cause.name(), segments.dropped(cause))));
    let evicted = losses::json(Eviction::ALL.map(|by| (by.name(), segments.evicted(by))));
    let workers: Vec<_> = of.workers.iter().map(worker).collect();
    json!({
        "event": what,
        "segments": segments.segments,
        "bytes": segments.bytes,
        "segments_dropped": dropped,
        "kernel_drops": of.kernel_drops,
        "lost_events": lost_events,
        "lost_datagrams": lost_datagrams,
        "timed_out": segments.timed_out,
        "evicted_by": evicted,
        "opened": events.opened,
        "open": events.open,
        "incomplete": events.incomplete,
        "lost": lost,
        "sent": events.sent,
        "sent_bytes": events.sent_bytes,
        "delivered": events.delivered,
        "released": events.released,
        "held_by_ended": events.held_by_ended,
        "spilled": events.spilled,
        "waiting": of.waiting,
        "fill": of.fill,
        "wrong_credits": events.wrong_credits,
        "refused": of.refused,
        "latency_seconds": quantiles(&events.latency),
        "held_seconds": quantiles(&events.held),
        "workers": workers,
        "delivered_again": events.delivered_again,
        "waiting_again": of.waiting_again,
        "lost_with_workers": of.lost_with_workers,
    })
}

/// The last JSON object. Only this one has the counters of ports, because there may be thousands of ports.
pub(super) fn end_json(of: &Snapshot) -> Value {
    let mut end = json("end", of);
    end["ports"] = of.ports.iter().map(port).collect();
    end
}

fn worker(its: &WorkerReport) -> Value {
    json!({
        "worker": its.stats.id.number(),
        "name": its.stats.name.as_str(),
        "member": its.stats.filter.member,
        "placing": its.stats.placing.name(),
        "peer": its.peer,
        "fill": its.stats.fill,
        "stalled": its.stats.stalled,
        "slots": its.stats.slots,
        "slot_bytes": its.stats.slot_bytes,
        "in_use": its.stats.in_use,
        "outstanding": its.stats.outstanding,
        "sent": its.stats.sent,
        "bytes": its.stats.bytes,
        "released": its.stats.released,
        "wrong_credits": its.stats.wrong_credits,
        "seconds": its.seconds,
    })
}
