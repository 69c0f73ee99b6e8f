//! `naa bridge trace`.

use std::time::Duration;

use proto::events::v1::TracedEvent;
use serde_json::json;

use super::QueryArgs;
use crate::show;

/// Print the way of an event through a bridge
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa bridge trace 1717171717171717 --server 10.9.0.2

A bridge remembers the last 65536 events. Times count from the first segment.")]
pub(super) struct Args {
    /// The event's tick, or its number if its segments came without a tick, as they do from a load balancer, which takes the LB header
    /// away
    tick: u64,
    #[command(flatten)]
    query: QueryArgs,
    /// Print one JSON object for each event
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let events = args.query.queries()?.0.trace(args.tick)?;
    if events.is_empty() {
        anyhow::bail!(
            "the bridge remembers no event with tick {0}, nor one without a tick that has the number {0}: it never came, or more than 65536 came since",
            args.tick
        );
    }
    for event in &events {
        let text = if args.json { json(event).to_string() } else { lines(event) };
        show::line(&text)?;
    }
    Ok(())
}

fn json(event: &TracedEvent) -> serde_json::Value {
    json!({
        "event": event.event,
        "data_id": event.data_id,
        "tick": event.tick,
        "bytes": event.length,
        "first_segment_unix_ns": event.first_segment,
        "last_segment_ns": event.last_segment,
        "worker": event.worker,
        "sequence": event.sequence,
        "sent_ns": event.sent,
        "delivered_ns": event.delivered,
        "released_ns": event.released,
        "fate": event.fate,
    })
}

fn lines(event: &TracedEvent) -> String {
    let tick = event.tick.map_or("none".into(), |tick| tick.to_string());
    let mut rows = vec![format!(
        "event {} of data id {}, tick {tick}, {}: {}",
        event.event,
        event.data_id,
        show::bytes(event.length.into()),
        event.fate
    )];
    let to = match (event.worker, event.sequence) {
        (Some(worker), Some(sequence)) => format!(", to worker {worker} as number {sequence}"),
        _ => String::new(),
    };
    for (what, at) in [
        ("last segment".to_owned(), Some(event.last_segment)),
        (format!("sent{to}"), event.sent),
        ("delivered".to_owned(), event.delivered),
        ("given back".to_owned(), event.released),
    ] {
        rows.extend(at.map(|at| format!("  {:>10}  {what}", show::time(Duration::from_nanos(at)))));
    }
    rows.join("\n")
}
