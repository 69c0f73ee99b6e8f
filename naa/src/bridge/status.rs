//! `naa bridge status`.

use naa_measure::TextTable;
use proto::events::v1::BridgeStatus;
use serde_json::json;

use super::{QueryArgs, report};
use crate::{ejfat::losses, show};

/// Print a bridge's workers, and what became of events
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  naa bridge status --server 10.9.0.2\n  naa bridge status --server 10.9.0.2 --json"
)]
pub(super) struct Args {
    #[command(flatten)]
    query: QueryArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (queries, server) = args.query.queries()?;
    let waiting = show::waiting(format!("connecting to {server}"));
    let status = queries.status()?;
    drop(waiting);
    let text = if args.json { json(&status).to_string() } else { lines(&status) };
    Ok(show::line(&text)?)
}

fn json(status: &BridgeStatus) -> serde_json::Value {
    let workers: Vec<_> = status
        .workers
        .iter()
        .map(|its| {
            json!({"worker": its.worker, "name": its.name, "placing": its.placing, "peer": its.peer,
                "member": its.member, "fill": its.fill, "stalled": its.stalled, "slots": its.slots,
                "slot_bytes": its.slot_bytes, "in_use": its.in_use, "outstanding": its.outstanding,
                "sent": its.sent, "bytes": its.bytes, "released": its.released,
                "wrong_credits": its.wrong_credits, "seconds": its.seconds})
        })
        .collect();
    let (lost_events, lost_datagrams) = report::lost(status);
    let (dropped, evicted) =
        status.reassembly.as_ref().map(|of| (json!(of.dropped), json!(of.evicted_by))).unwrap_or_default();
    json!({"lost_events": lost_events, "lost_datagrams": lost_datagrams, "segments_dropped": dropped,
        "evicted_by": evicted, "opened": status.opened, "open": status.open, "incomplete": status.incomplete,
        "sent": status.sent, "sent_bytes": status.sent_bytes, "delivered": status.delivered,
        "released": status.released, "held_by_ended": status.held_by_ended, "waiting": status.waiting,
        "lost": status.lost, "fill": status.fill, "kernel_drops": status.kernel_drops,
        "wrong_credits": status.wrong_credits, "refused": status.refused, "workers": workers,
        "delivered_again": status.delivered_again, "waiting_again": status.waiting_again,
        "lost_with_workers": status.lost_with_workers})
}

fn lines(status: &BridgeStatus) -> String {
    let lost = losses::words(status);
    let header =
        ["worker", "name", "placing", "from", "slots", "fill", "events", "given back", "wrong credit"];
    let rows = status.workers.iter().map(|its| {
        [
            its.worker.to_string(),
            its.name.clone(),
            its.placing.clone(),
            if its.peer.is_empty() { "this machine".into() } else { its.peer.clone() },
            format!("{} x {}", its.slots, show::bytes(its.slot_bytes.into())),
            format!("{:.0}%{}", 100.0 * its.fill, if its.stalled { " stalled" } else { "" }),
            its.sent.to_string(),
            its.released.to_string(),
            its.wrong_credits.to_string(),
        ]
    });
    format!(
        "{} events: {} to workers ({} given back, {}), {} wait, {} on their way; {lost}\n{}",
        status.opened,
        status.sent,
        status.released,
        report::ended(status),
        status.waiting,
        status.open.saturating_sub(status.waiting),
        TextTable::of(header, rows)
    )
}
