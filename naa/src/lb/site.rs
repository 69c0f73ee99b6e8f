//! Commands of experimenters and operators, at the control plane of any EJFAT site.

mod overview;
mod reserve;
mod share;
mod status;
mod store;
mod timeseries;
mod tokens;
mod when;

use std::{net::IpAddr, path::PathBuf};

use clap::Subcommand;
use ejfat::uri::{EjfatUri, VARIABLE};
use ejfat_client::{ClientTls, Connection, Trust, messages as pb};
use serde_json::json;

use super::local;
use crate::{Usage, show};

/// Where the control plane is, and how results are printed.
#[derive(Clone, Debug, clap::Args)]
struct At {
    /// An EJFAT URI: where the control plane is, a reservation, and a token for it; the one that `naa lb serve` of this user
    /// serves on this machine unless told
    #[arg(short, long, env = VARIABLE, hide_env_values = true)]
    uri: Option<String>,
    /// File of the CAs, as PEM, one of which must have signed the certificate of a control plane at ejfats://; the system's
    /// unless told
    #[arg(long, value_name = "FILE")]
    control_plane_ca: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The same with a reservation.
#[derive(Clone, Debug, clap::Args)]
struct Of {
    /// The reservation, if it is not the URI's
    #[arg(long, value_name = "ID")]
    lb: Option<String>,
    #[command(flatten)]
    at: At,
}

impl At {
    fn connect(&self) -> anyhow::Result<(EjfatUri, Connection)> {
        let text = self.uri.as_ref().filter(|uri| !uri.trim().is_empty());
        let uri = match text {
            Some(text) => text.parse().map_err(|why| Usage::error(format!("--uri or {VARIABLE}: {why}")))?,
            None => local::find().ok_or_else(|| {
                Usage::error(format!(
                    "say which control plane: --uri or {VARIABLE}; `naa lb serve` starts one, and prints it"
                ))
            })?,
        };
        let tls = ClientTls { ca: self.control_plane_ca.clone(), identity: None };
        let connection = Connection::open(&uri, &Trust { tls, token: None })?;
        Ok((uri, connection))
    }

    /// Prints an object for programs, or a line for people.
    fn done(&self, object: &serde_json::Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        show::line(&if self.json { object.to_string() } else { text() })?;
        Ok(())
    }
}

impl Of {
    fn connect(&self) -> anyhow::Result<(String, Connection)> {
        let (uri, connection) = self.at.connect()?;
        let lb = self.lb.clone().or(uri.lb_id);
        let lb = lb.ok_or_else(|| {
            Usage::error(format!(
                "{VARIABLE} names no reservation; `naa lb reserve` prints one that does, or say --lb ID"
            ))
        })?;
        Ok((lb, connection))
    }
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Command {
    /// Reserve a load balancer
    #[command(after_help = reserve::EXAMPLES)]
    Reserve(reserve::Args),
    /// End a reservation: its workers and senders go with it
    #[command(after_help = "Examples:\n  naa lb free")]
    Free(Free),
    /// Show what each worker gets, and why
    #[command(after_help = status::EXAMPLES)]
    Status(status::Args),
    /// Show all reservations that the token may read
    #[command(after_help = "Examples:\n  naa lb overview\n  naa lb overview --json")]
    Overview(overview::Args),
    /// Set the end of a reservation
    #[command(after_help = "Examples:\n  naa lb extend 2h\n  naa lb extend never")]
    Extend(reserve::Extend),
    /// Let parts of a reservation begin anew
    #[command(
        after_help = "Examples:\n  naa lb reset --sync --epochs        senders' event numbers began again"
    )]
    Reset(Reset),
    /// Add or remove addresses from which segments come
    #[command(
        after_help = "Examples:\n  naa lb senders add 10.9.0.5 fd00:9::5\n  naa lb senders remove 10.9.0.5"
    )]
    Senders(Senders),
    /// End worker sessions, or set which slots they demand
    #[command(after_help = share::EXAMPLES)]
    Workers(share::Args),
    /// Make, show and revoke tokens
    #[command(after_help = tokens::EXAMPLES)]
    Tokens(tokens::Args),
    /// Print series of numbers over time
    #[command(after_help = timeseries::EXAMPLES)]
    Timeseries(timeseries::Args),
    /// Show which program the control plane is
    #[command(after_help = "Examples:\n  naa lb version")]
    Version(Version),
    /// Copy what a control plane of naa has stored into one file
    #[command(after_help = store::EXAMPLES)]
    Backup(store::Backup),
    /// Put a backup in the place of what a control plane of naa has stored
    #[command(after_help = store::EXAMPLES)]
    Restore(store::Restore),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Free {
    #[command(flatten)]
    of: Of,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reset {
    /// Forget what syncs told of senders' event numbers
    #[arg(long)]
    sync: bool,
    /// Begin epochs anew: event numbers may be lower than before
    #[arg(long)]
    epochs: bool,
    /// Remove all senders
    #[arg(long)]
    senders: bool,
    /// End all worker sessions
    #[arg(long)]
    workers: bool,
    #[command(flatten)]
    of: Of,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Senders {
    #[command(subcommand)]
    what: Change,
}

#[derive(Clone, Debug, Subcommand)]
enum Change {
    /// Let segments from these addresses in
    #[command(after_help = "Examples:\n  naa lb senders add 10.9.0.5")]
    Add(Addresses),
    /// Let no more segments from these addresses in
    #[command(after_help = "Examples:\n  naa lb senders remove 10.9.0.5")]
    Remove(Addresses),
}

#[derive(Clone, Debug, clap::Args)]
struct Addresses {
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    of: Of,
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Version {
    #[command(flatten)]
    at: At,
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Reserve(args) => reserve::run(args),
        Command::Free(args) => {
            let (lb, connection) = args.of.connect()?;
            connection.free(&lb)?;
            args.of.at.done(&json!({ "freed": lb }), || format!("reservation {lb} has ended"))
        }
        Command::Status(args) => status::run(args),
        Command::Overview(args) => overview::run(args),
        Command::Extend(args) => reserve::extend(args),
        Command::Reset(args) => reset(args),
        Command::Senders(Senders { what }) => senders(what),
        Command::Workers(args) => share::run(args),
        Command::Tokens(args) => tokens::run(args),
        Command::Timeseries(args) => timeseries::run(args),
        Command::Version(args) => {
            let (_, connection) = args.at.connect()?;
            let pb::VersionReply { commit, build, compat_tag } = connection.version()?;
            let object = json!({ "commit": commit, "build": build, "compat_tag": compat_tag });
            args.at.done(&object, || format!("{commit}, {build}; speaks the API of {compat_tag}"))
        }
        Command::Backup(args) => store::backup(args),
        Command::Restore(args) => store::restore(args),
    }
}

fn reset(args: &Reset) -> anyhow::Result<()> {
    let &Reset { sync, epochs, senders, workers, .. } = args;
    if !(sync || epochs || senders || workers) {
        return Err(Usage::error("say what is to begin anew: --sync, --epochs, --senders, --workers"));
    }
    let (lb_id, connection) = args.of.connect()?;
    let request = pb::ResetLoadBalancerRequest { lb_id: lb_id.clone(), sync, epochs, senders, workers };
    connection.reset(request)?;
    let object =
        json!({ "lb": lb_id, "sync": sync, "epochs": epochs, "senders": senders, "workers": workers });
    args.of.at.done(&object, || format!("reservation {lb_id} began anew"))
}

fn senders(change: &Change) -> anyhow::Result<()> {
    let (Change::Add(args) | Change::Remove(args)) = change;
    let (lb, connection) = args.of.connect()?;
    let is_added = matches!(change, Change::Add(_));
    if is_added {
        connection.add_senders(&lb, &args.addresses)?;
    } else {
        connection.remove_senders(&lb, &args.addresses)?;
    }
    let what = if is_added { "added" } else { "removed" };
    args.of.at.done(&json!({ "lb": lb, what: args.addresses }), || {
        let addresses: Vec<_> = args.addresses.iter().map(ToString::to_string).collect();
        format!("{} {what}", addresses.join(", "))
    })
}
