//! The reports of a worker.

use std::time::Duration;

use ejfat::reassembly::{Counters, Eviction, SegmentDropCause};
use ejfat_udp::{PortCounters, Receiver};

use super::Args;
use crate::{ejfat::losses, show};

pub(super) fn summary(counters: &Counters, time: Duration) -> String {
    let lost = counters.timed_out + counters.evicted_for_any_reason() + counters.abandoned;
    let (rate, dropped) = (show::rate(counters.placed_bytes, time), counters.dropped_of_any_cause());
    let (events, segments) =
        (show::count(counters.complete, "event"), show::count(counters.segments, "segment"));
    format!("{events} of {segments}, {lost} incomplete, {} dropped, {rate}", show::count(dropped, "segment"))
}

/// Prints the report at the end. `delivered` counts all events; `numbered` counts those whose file got a number because its name
/// was taken. `worker` says how the worker left the control plane, if it was registered.
pub(super) fn report(
    args: &Args,
    receiver: &Receiver,
    (delivered, numbered): (u64, u64),
    worker: Option<serde_json::Value>,
    time: Duration,
) -> anyhow::Result<()> {
    let reassembler = receiver.reassembler();
    let counters = reassembler.counters();
    let missing: u64 = reassembler
        .senders()
        .flat_map(|sender| sender.streams().map(|s| s.missing).collect::<Vec<_>>())
        .sum();
    let senders = reassembler.senders().map(|sender| {
        let missing: u64 = sender.streams().map(|stream| stream.missing).sum();
        serde_json::json!({ "address": sender.address, "data_id": sender.data_id,
            "events": sender.counters.complete, "missing": args.consecutive.then_some(missing) })
    });
    let senders: Vec<_> = senders.collect();
    let dropped = SegmentDropCause::ALL.map(|cause| (cause.name(), counters.dropped(cause)));
    if args.json && !args.stdout {
        let report = serde_json::json!({
            "event": "end",
            "seconds": time.as_secs_f64(),
            "segments": counters.segments,
            "bytes": counters.bytes,
            "placed_bytes": counters.placed_bytes,
            "events": delivered,
            "numbered": numbered,
            "timed_out": counters.timed_out,
            "evicted": counters.evicted_for_any_reason(),
            "abandoned": counters.abandoned,
            "evicted_by": losses::json(Eviction::ALL.map(|by| (by.name(), counters.evicted(by)))),
            "open": reassembler.open_events(),
            "kernel_drops": receiver.all_kernel_drops()?,
            "missing": args.consecutive.then_some(missing),
            "senders": senders,
            "dropped": losses::json(dropped),
            "ports": receiver.port_counters().iter().map(port).collect::<Vec<_>>(),
            "registered": worker,
        });
        return Ok(show::line(&report.to_string())?);
    }
    let causes =
        dropped.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let missing = if args.consecutive { format!(", {missing} of which nothing came") } else { String::new() };
    let drops = match receiver.all_kernel_drops()? {
        0 => String::new(),
        drops => format!(
            ", at least {} dropped by the kernel, where a merged batch counts once: a larger --buffer holds longer bursts",
            show::count(drops, "datagram")
        ),
    };
    let (summary, open) = (summary(counters, time), reassembler.open_events());
    let why = losses::why_incomplete(&naa_services::reassembly_message(counters, open, 0, None));
    let numbered = show::numbered(numbered);
    show::note(&format!("{summary}{causes}, {open} still incomplete{missing}{numbered}{drops}"));
    if !why.is_empty() {
        show::note(&format!("incomplete:{why}"));
    }
    let ports = receiver.port_counters();
    if receiver.addresses().len() > 1 && !ports.is_empty() {
        show::note(&format!("datagrams by port: {}", ports_text(&ports)));
    }
    Ok(())
}

/// Writes the counters of the first 16 ports, and how many other ports received something.
fn ports_text(ports: &[PortCounters]) -> String {
    const MOST: usize = 16;
    let first: Vec<_> = ports.iter().take(MOST).map(|of| format!("{} {}", of.datagrams, of.at)).collect();
    let more = if ports.len() > MOST { format!(" and {} more", ports.len() - MOST) } else { String::new() };
    first.join(", ") + &more
}

/// A port's counters as JSON.
pub(crate) fn port(of: &PortCounters) -> serde_json::Value {
    let PortCounters { at, datagrams, bytes, kernel_drops } = of;
    serde_json::json!({ "address": at, "datagrams": datagrams, "bytes": bytes, "kernel_drops": kernel_drops })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_thousands_of_ports_the_first_are_named() {
        let of = |port| PortCounters {
            at: ([10, 0, 0, 1], port).into(),
            datagrams: 3,
            bytes: 300,
            kernel_drops: 0,
        };
        let ports: Vec<_> = (16_384..32_768).map(of).collect();
        assert_eq!(ports_text(&ports[..2]), "3 10.0.0.1:16384, 3 10.0.0.1:16385");
        let text = ports_text(&ports);
        assert!(text.ends_with("3 10.0.0.1:16399 and 16368 more"), "{text}");
    }
}
