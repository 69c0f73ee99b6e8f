//! `naa lb table`.

use std::{num::NonZeroU64, path::PathBuf};

use clap::Subcommand;
use ejfat::lb::LbId;
use ejfat_lb::{TableSet, When, document::Document};

use super::{
    differences,
    location::{TableCredentials, TableLocation, read, read_any},
};
use crate::{Usage, show};

/// Show, load and compare tables
///
/// A place is a file, YAML or JSON of that shape, `-` for standard input, or a load balancer: grpc://ADDR:PORT,
/// grpcs://ADDR:PORT for one that serves gRPC over TLS, or mrsp://ADDR[:PORT] for one that serves MRSP.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "A file:
  load_balancers:
  - lb: 0                              # 0 to 63; above 7 forward needs --load-balancers
    addresses: [10.9.0.1]              # packets to these are its
    senders: [10.9.0.5, 10.9.0.6]      # it takes packets from these only
    epochs:
    - id: 0
      ticks: [all]                     # or FIRST-LAST, or a prefix: 0x4000000000000000/2
      calendar: (1 2)x256              # 512 slots, dealt to members 1 and 2
    members:                           # 1x384 2x128: a quarter to member 2
    - {id: 1, address: 10.9.0.11, port: 10000, port_bits: 2}
    - {id: 2, address: 10.9.0.12, port: 10000}

Member 1 listens on 2^2 ports from 10000 on. A calendar has a member, or -, for each slot of its epoch: (1 2)x255 -x2 leaves
two slots without, whose events are dropped. Files whose calendars are shorter, or name members that the file does not have,
are refused by show, load and naa lb forward; diff takes them.

Examples:
  naa lb table show lb.yaml                                      check a file
  naa lb table show grpc://10.9.0.1:18010 > now.yaml
  naa lb table diff now.yaml new.yaml
  naa lb table load new.yaml grpc://10.9.0.1:18010               from the next tick on: splits no event")]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    access: TableCredentials,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    /// Print rules as YAML, in their canonical order
    Show {
        /// FILE, -, grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]
        place: TableLocation,
        /// Print JSON: all sets, each with its first tick
        #[arg(long)]
        json: bool,
        /// All sets, not only the newest
        #[arg(long)]
        all: bool,
        /// Show only this load balancer, 0 to 63. Each has table sets of its own, from ticks of its own on
        #[arg(long, value_name = "NUMBER", value_parser = lb)]
        lb: Option<LbId>,
    },
    /// Replace a load balancer's rules by those of a file
    Load {
        /// YAML or JSON; -: standard input
        file: PathBuf,
        /// grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]
        place: TableLocation,
        /// The first tick they apply to: next (none had it lately, so no event is split), now (in the place of all there
        /// are), or a number
        #[arg(long, value_name = "TICK", default_value = "next", value_parser = when)]
        from: When,
        /// Take the tick even if packets had it: events on their way may be split
        #[arg(long)]
        force: bool,
        /// Take a data plane over that a control plane programs: a number at least as high as its term, which the refusal
        /// without this option names. The control plane is refused from then on if the number is higher
        #[arg(long, value_name = "NUMBER")]
        term: Option<NonZeroU64>,
    },
    /// Print what makes the second place's rules of the first's; exit status 1 if they differ
    Diff {
        /// FILE, -, grpc://ADDR:PORT, grpcs://ADDR:PORT or mrsp://ADDR[:PORT]
        before: TableLocation,
        /// The same
        after: TableLocation,
    },
}

fn lb(text: &str) -> Result<LbId, String> {
    let number = text.parse().map_err(|_| "write a number from 0 to 63")?;
    LbId::new(number).map_err(|error| error.to_string())
}

fn when(text: &str) -> Result<When, String> {
    match text {
        "next" => Ok(When::Next),
        "now" => Ok(When::Now),
        tick => tick.parse().map(When::Tick).map_err(|_| "write next, now, or a tick".into()),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.command {
        Command::Show { place, json, all, lb } => {
            print(&args.access.sets(place, read, *lb, !json && !all)?, *json, *all)
        }
        Command::Load { file, place, from, force, term } => {
            let when = match (from, force) {
                (When::Tick(tick), true) => When::Force(*tick),
                (_, true) => return Err(Usage::error("--force goes with a tick, --from NUMBER")),
                (when, false) => *when,
            };
            let from = args.access.load(place, &read(file)?, when, *term)?;
            Ok(show::line(&format!("they apply from tick {from} on"))?)
        }
        Command::Diff { before, after } => {
            let newest = |place| -> anyhow::Result<_> {
                let newest = args.access.sets(place, read_any, None, true)?.pop();
                Ok(newest.map(|set| set.rules).unwrap_or_default())
            };
            let differences = differences::lines(&*newest(before)?, &*newest(after)?);
            differences.iter().try_for_each(|line| show::line(line))?;
            if differences.is_empty() { Ok(()) } else { std::process::exit(1) }
        }
    }
}

fn print(sets: &[TableSet], json: bool, all: bool) -> anyhow::Result<()> {
    if json {
        let sets: Vec<_> = sets
            .iter()
            .map(|set| serde_json::json!({ "from_tick": set.from, "rules": Document::of(&set.rules) }))
            .collect();
        return Ok(show::line(&serde_json::json!({ "sets": sets }).to_string())?);
    }
    for set in sets {
        if all {
            show::line(&format!("---\n# from tick {}", set.from))?;
        }
        show::line(Document::of(&set.rules).to_yaml()?.trim_end())?;
    }
    Ok(())
}
