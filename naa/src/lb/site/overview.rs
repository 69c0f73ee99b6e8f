//! `naa lb overview`.

use std::collections::BTreeSet;

use ejfat_client::messages as pb;
use naa_measure::TextTable;
use serde_json::json;

use super::{At, status, when::text};
use crate::show;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb overview
  naa lb overview --json

The column `reservation` has the number that --lb takes, and that EJFAT URIs have behind /lb/. It is not the number of the load \
balancer, which metrics have as `lb` and JSON as `fpga_lb`: several reservations have one load balancer after one another.";

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct Args {
    #[command(flatten)]
    at: At,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (_, connection) = args.at.connect()?;
    let parts =
        |of: pb::Overview| (of.name, of.reservation.unwrap_or_default(), of.status.unwrap_or_default());
    let all: Vec<_> = connection.overview()?.load_balancers.into_iter().map(parts).collect();
    if args.at.json {
        let all = all.iter().map(|(name, reservation, state)| {
            json!({
                "name": name, "lb": reservation.lb_id, "fpga_lb": reservation.fpga_lb_id, "strategy": reservation.strategy,
                "data_ipv4": reservation.data_ipv4_address, "data_ipv6": reservation.data_ipv6_address,
                "status": status::object(&reservation.lb_id, state),
            })
        });
        let all: Vec<_> = all.collect();
        return Ok(show::line(&json!({ "load_balancers": all }).to_string())?);
    }
    if all.is_empty() {
        return Ok(show::line("no reservations that this token may read")?);
    }
    let header =
        ["name", "reservation", "strategy", "at", "workers", "with slots", "senders", "epoch", "ends"];
    let rows = all.iter().map(|(name, reservation, state)| {
        let at = [&reservation.data_ipv4_address, &reservation.data_ipv6_address];
        let at: Vec<_> = at.into_iter().filter(|at| !at.is_empty()).map(String::as_str).collect();
        [
            name.clone(),
            reservation.lb_id.clone(),
            reservation.strategy.clone(),
            at.join(", "),
            state.workers.len().to_string(),
            state.workers.iter().filter(|of| of.slots_assigned > 0).count().to_string(),
            state.sender_addresses.len().to_string(),
            state.current_epoch.to_string(),
            text(state.expires_at.as_ref()),
        ]
    });
    let issues = all.iter().flat_map(|(.., state)| &state.health_issues);
    // Issues of a data plane are in the status of each reservation, so a set keeps each only once.
    let issues: BTreeSet<_> = issues.map(status::issue_line).collect();
    let table = TextTable::of(header, rows);
    let lines = std::iter::once(table.as_str()).chain(issues.iter().map(String::as_str));
    Ok(show::line(&lines.collect::<Vec<_>>().join("\n"))?)
}
