//! What a worker says of itself.

use std::time::Duration;

use ejfat::reassembly::{Cause, Counters};
use ejfat_udp::Receiver;

use super::{Args, say};
use crate::show;

pub(super) fn told(counters: &Counters, time: Duration) -> String {
    let lost = counters.timed_out + counters.evicted;
    let (rate, dropped) = (show::rate(counters.placed_bytes, time), counters.dropped_of_any_cause());
    format!("{} events, {lost} incomplete, {dropped} segments dropped, {rate}", counters.complete)
}

/// `delivered` of which `numbered` had names that were taken.
pub(super) fn report(
    args: &Args,
    receiver: &Receiver,
    (delivered, numbered): (u64, u64),
    time: Duration,
) -> anyhow::Result<()> {
    let reassembler = receiver.reassembler();
    let counters = reassembler.counters();
    let missing: u64 = reassembler
        .sources()
        .flat_map(|source| source.streams().map(|s| s.missing).collect::<Vec<_>>())
        .sum();
    let senders = reassembler.sources().map(|source| {
        let missing: u64 = source.streams().map(|stream| stream.missing).sum();
        serde_json::json!({ "address": source.address, "missing": args.consecutive.then_some(missing) })
    });
    let senders: Vec<_> = senders.collect();
    let dropped = Cause::ALL.map(|cause| (cause.name(), counters.dropped(cause)));
    if args.json && !args.stdout {
        let dropped: serde_json::Map<_, _> =
            dropped.map(|(name, n)| (name.to_owned(), n.into())).into_iter().collect();
        let report = serde_json::json!({
            "event": "end",
            "seconds": time.as_secs_f64(),
            "segments": counters.segments,
            "bytes": counters.bytes,
            "placed_bytes": counters.placed_bytes,
            "events": delivered,
            "numbered": numbered,
            "timed_out": counters.timed_out,
            "evicted": counters.evicted,
            "open": reassembler.open_events(),
            "kernel_drops": receiver.kernel_drops()?,
            "missing": args.consecutive.then_some(missing),
            "senders": senders,
            "dropped": dropped,
        });
        return Ok(show::line(&report.to_string())?);
    }
    let causes =
        dropped.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{n} {name}")).collect::<Vec<_>>();
    let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
    let missing = if args.consecutive { format!(", {missing} of which nothing came") } else { String::new() };
    let drops = match receiver.kernel_drops()? {
        0 => String::new(),
        drops => format!(", {drops} datagrams dropped by the kernel: a larger --buffer holds longer bursts"),
    };
    let (told, open) = (told(counters, time), reassembler.open_events());
    let numbered = show::numbered(numbered);
    say(&format!("{told}{causes}, {open} still incomplete{missing}{numbered}{drops}"));
    Ok(())
}
