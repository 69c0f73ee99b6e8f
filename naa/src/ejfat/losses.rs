//! Sums of lost datagrams and events, for text, JSON and metrics.

use ejfat::reassembly::{Eviction, SegmentDropCause};
use proto::events::v1::{BridgeStatus, ReassemblyCounters};
use serde_json::{Map, Value};

use crate::show;

/// Valid datagrams that were lost before they became part of an event, by cause. The kernel dropped them, or there was no
/// memory or slot for their event.
pub(crate) fn datagrams(of: &ReassemblyCounters, kernel_drops: u64) -> [(&'static str, u64); 3] {
    let no_room = |cause: SegmentDropCause| {
        let name = cause.name();
        (name, of.dropped.get(name).copied().unwrap_or(0))
    };
    [("kernel_drops", kernel_drops), no_room(SegmentDropCause::Memory), no_room(SegmentDropCause::NoSlot)]
}

/// The cause of events that workers had when they ended, and that were not delivered again.
const WITH_WORKERS: &str = "lost_with_workers";

/// Segments that a bridge dropped for other reasons than those of [`datagrams`], by cause. They are not lost as a rule: most are
/// repeated, late, or no segments.
pub(crate) fn dropped(of: &ReassemblyCounters) -> Vec<(&'static str, u64)> {
    let told = [SegmentDropCause::Memory, SegmentDropCause::NoSlot];
    let others = SegmentDropCause::ALL.into_iter().filter(|cause| !told.contains(cause));
    others.map(|cause| (cause.name(), of.dropped.get(cause.name()).copied().unwrap_or(0))).collect()
}

/// Events that a bridge lost, by cause.
pub(crate) fn events(of: &BridgeStatus) -> Vec<(&str, u64)> {
    let mut lost: Vec<_> = of.lost.iter().map(|(cause, count)| (cause.as_str(), *count)).collect();
    lost.sort();
    lost.push(("incomplete", of.incomplete));
    lost.push((WITH_WORKERS, of.lost_with_workers));
    lost
}

pub(crate) fn sum<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> u64 {
    total(counts.into_iter().map(|(_, count)| count))
}

/// Adds counters, which may be a peer's and as large as it likes. A sum beyond `u64::MAX` is `u64::MAX`.
pub(crate) fn total(counts: impl IntoIterator<Item = u64>) -> u64 {
    counts.into_iter().fold(0, u64::saturating_add)
}

/// What a bridge lost, in words.
pub(crate) fn words(of: &BridgeStatus) -> String {
    let usual = ReassemblyCounters::default();
    let reassembly = of.reassembly.as_ref().unwrap_or(&usual);
    let why = |(cause, count): (&str, u64)| match cause {
        // What a bridge abandoned is counted as lost, by the cause that the bridge had for that.
        "incomplete" => {
            let reassembly = ReassemblyCounters { abandoned: 0, ..reassembly.clone() };
            format!("{count} incomplete{}", why_incomplete(&reassembly))
        }
        WITH_WORKERS => format!("{count} with workers that ended"),
        "too_long" => format!("{count} too_long (raise --max-event)"),
        "too_large" => format!("{count} too_large (give workers more --slots or --slot-bytes)"),
        cause => format!("{count} {cause}"),
    };
    let some = |counts: Vec<(&str, u64)>| {
        let some: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).map(why).collect();
        some.join(", ")
    };
    let (events, datagrams) = (events(of), datagrams(reassembly, of.kernel_drops).to_vec());
    let remedy = if of.kernel_drops > 0 { "; a larger --buffer holds longer bursts" } else { "" };
    let lost = match (sum(events.clone()), sum(datagrams.clone())) {
        (0, 0) => "none lost".into(),
        (lost, 0) => format!("lost: {}: {}", show::count(lost, "event"), some(events)),
        (0, lost) => format!("lost: {}: {}{remedy}", show::count(lost, "datagram"), some(datagrams)),
        (lost, before) => {
            let (lost, before) = (show::count(lost, "event"), show::count(before, "datagram"));
            format!("lost: {lost}: {}; {before}: {}{remedy}", some(events), some(datagrams))
        }
    };
    let dropped: Vec<_> = dropped(reassembly).into_iter().filter(|(_, count)| *count > 0).collect();
    match total(dropped.iter().map(|(_, count)| *count)) {
        0 => lost,
        all => {
            let by_cause: Vec<_> = dropped.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
            format!("{lost}; {} dropped: {}", show::count(all, "segment"), by_cause.join(", "))
        }
    }
}

/// Tells in words why events were given up. Empty if none was.
pub(crate) fn why_incomplete(of: &ReassemblyCounters) -> String {
    let evicted =
        Eviction::ALL.map(|by| (of.evicted_by.get(by.name()).copied().unwrap_or(0), evicted_by(by)));
    let all = [(of.timed_out, "timed out"), (of.abandoned, "for which the system had no addresses")];
    let some = all.into_iter().chain(evicted).filter(|(count, _)| *count > 0);
    let some: Vec<_> = some.map(|(count, why)| format!("{count} {why}")).collect();
    if some.is_empty() { String::new() } else { format!(" ({})", some.join(", ")) }
}

fn evicted_by(eviction: Eviction) -> &'static str {
    match eviction {
        Eviction::Sender => "evicted by their sender's limit, --max-open-per-sender",
        Eviction::Open => "evicted by --max-open",
        Eviction::Memory => "evicted by --memory",
        Eviction::Claimed => "evicted because lengths were beyond 16 times --memory",
    }
}

/// Counts by cause as JSON.
pub(crate) fn json<'a>(counts: impl IntoIterator<Item = (&'a str, u64)>) -> Map<String, Value> {
    counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_peer_may_be_as_large_as_they_like() {
        let causes = [SegmentDropCause::Memory, SegmentDropCause::NoSlot];
        let dropped = causes.map(|cause| (cause.name().to_owned(), u64::MAX));
        let reassembly = ReassemblyCounters { dropped: dropped.into(), ..Default::default() };
        let status = BridgeStatus {
            reassembly: Some(reassembly.clone()),
            kernel_drops: u64::MAX,
            incomplete: u64::MAX,
            lost: [("overrun".to_owned(), u64::MAX)].into(),
            ..Default::default()
        };
        let all = u64::MAX.to_string();
        let text = words(&status);
        assert!(
            text.contains(&format!("{all} events")) && text.contains(&format!("{all} datagrams")),
            "{text}"
        );
        assert_eq!(sum(events(&status)), u64::MAX);
        assert_eq!(sum(datagrams(&reassembly, u64::MAX)), u64::MAX);
    }
}
