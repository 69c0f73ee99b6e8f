//! `naa lb counters`.

use super::{
    counts,
    place::{Access, Place},
};
use crate::show;

/// Print what a load balancer has counted
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa lb counters grpc://10.9.0.1:18010
  naa lb counters grpcs://lb.example.org:18010 --tls-ca ca.pem
  naa lb counters mrsp://10.9.0.1 --json

Causes of drops have the names of the P4 data plane's counters.")]
pub(super) struct Args {
    /// grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]
    place: Place,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    access: Access,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let counters = args.access.counters(&args.place)?;
    let text = if args.json { counts::json(&counters).to_string() } else { counts::table(&counters) };
    Ok(show::line(&text)?)
}
