//! `naa bridge` puts EJFAT's events into memory of workers.

mod absent;
mod args;
mod exposed;
mod report;
mod run;
mod status;
mod trace;

use std::net::SocketAddr;

use clap::Subcommand;
use naa_services::BridgeQueries;

pub(crate) use absent::explained;
pub(crate) use args::BridgeArgs;
pub(crate) use run::STREAM_SENDS;

use crate::{peer::ServerName, provider};

/// Put EJFAT's events into memory of workers, by RDMA or shared
///
/// Segments are reassembled, and each event goes to a worker that subscribed: over RoCEv2 into its memory regions, where it
/// is consumed in place, or, on this machine, into memory that both map (--local). Nothing goes through sockets of workers.
/// Workers are programs in Rust (crate naa-events), C (naa_events.h) and Python (naa.events), or `naa events`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  naa bridge --listen 10.9.0.2 --bind 10.9.0.2          workers connect to 10.9.0.2
  naa bridge --listen 10.9.0.2 --local /run/naa.sock    workers of this machine, without a wire
  naa bridge --listen 10.9.0.2 --bind 10.9.0.2 --route data-id --pressure drop-oldest --metrics 9100
  naa bridge trace 1717171717171717 --server 10.9.0.2   the way of one event, by tick or number
  naa bridge status --server 10.9.0.2                   its workers, and what became of events
  EJFAT_URI=ejfat://TOKEN@cp:19523/lb/1 naa bridge --bind 10.9.0.2 --behind-lb
                                                        the load balancer sees the bridge as one worker

With an EJFAT URI the bridge registers at the control plane, and reports ten times a second how full its rings are. While no
worker is subscribed, the bridge says that it takes no events. When the bridge is ended, it takes events until none is sent to
it any more, and then deregisters. If the reservation ended or its token was revoked, the bridge ends with status 1.

--metrics serves naa_bridge_events_total{end=...}, naa_bridge_latency_seconds (first segment to delivered),
naa_bridge_held_seconds (delivered to given back), fill levels of workers, and what reassembly counts.
RoCE has no authentication: whoever reaches the address can subscribe; --allow names networks. With --route tables whoever
is allowed can replace the tables, too: at an address that others reach, --allow is wanted."
)]
pub(crate) struct Args {
    #[command(flatten)]
    run: run::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    Trace(trace::Args),
    Status(status::Args),
}

#[derive(Clone, Debug, clap::Args)]
#[group(id = "bridge_query")]
struct QueryArgs {
    #[arg(short, long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1")]
    server: ServerName,
    #[command(flatten)]
    provider: provider::Args,
}

impl QueryArgs {
    /// Finds the bridge that answers queries. Returns it with its address.
    fn queries(&self) -> anyhow::Result<(BridgeQueries, SocketAddr)> {
        let (device, server) = self.server.find(None, self.provider.choice()?)?;
        Ok((BridgeQueries::new(device, server), server))
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Some(Command::Trace(args)) => trace::run(args).map_err(explained),
        Some(Command::Status(args)) => status::run(args).map_err(explained),
        None => run::run(&args.run),
    }
}
