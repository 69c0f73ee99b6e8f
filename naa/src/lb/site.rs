//! The commands that call the control plane of an EJFAT site: reservations, senders, workers, tokens and figures.

mod overview;
mod reserve;
mod share;
mod status;
mod store;
mod timeseries;
mod tokens;
mod when;

use std::net::IpAddr;

use anyhow::anyhow;
use clap::Subcommand;
use ejfat::uri::{EjfatUri, VARIABLE};
use ejfat_client::{ClientError, Connection, messages as pb};
use serde_json::json;

use super::local;
use crate::{
    Usage,
    ejfat::site::{UriArgs, with_ca_option},
    show,
};

const URI: &str = "An EJFAT URI: where the control plane is, a reservation, and a token for it [default: that of the control \
                   plane that this user started on this machine by `naa lb serve`]";

/// Where the control plane is, and how results are printed.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("uri", |uri| uri.help(URI)))]
pub(super) struct At {
    #[command(flatten)]
    control_plane: UriArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Which reservation, where its control plane is, and how results are printed.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Of {
    /// The number of the reservation, as `naa lb overview` shows it [default: the URI's]
    #[arg(long, value_name = "ID")]
    lb: Option<String>,
    #[command(flatten)]
    at: At,
}

impl At {
    fn connect(&self) -> anyhow::Result<(EjfatUri, Connection)> {
        let uri = self.control_plane.uri()?.or_else(local::find).ok_or_else(|| {
            Usage::error(format!(
                "say which control plane: --uri or {VARIABLE}; `naa lb serve` starts one, and prints its URI"
            ))
        })?;
        let connection = self.control_plane.connect(&uri)?;
        Ok((uri, connection))
    }

    /// Prints the JSON object with --json, and else the text.
    fn done(&self, object: &serde_json::Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        show::line(&if self.json { object.to_string() } else { text() })?;
        Ok(())
    }
}

impl Of {
    fn connect(&self) -> anyhow::Result<(String, Connection)> {
        let (uri, connection) = self.at.connect()?;
        let lb = self.lb.clone().or(uri.lb_id);
        let is_given = self.at.control_plane.uri()?.is_some();
        let lb = lb.ok_or_else(|| {
            let why = if is_given {
                "the EJFAT URI names no reservation".to_owned()
            } else {
                format!("{VARIABLE} is not set, so no reservation is named")
            };
            Usage::error(format!(
                "{why}; `eval \"$(naa lb reserve NAME)\"` sets a URI that names one, or name a reservation by --lb ID"
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
    /// End a reservation, with its worker sessions and its senders
    #[command(after_help = "Examples:\n  naa lb free")]
    Free(Of),
    /// Show what each worker gets, and why
    #[command(after_help = status::EXAMPLES)]
    Status(status::Args),
    /// Show all reservations that the token may read
    #[command(after_help = overview::EXAMPLES)]
    Overview(overview::Args),
    /// Set the end of a reservation
    #[command(after_help = "Examples:\n  naa lb extend 2h\n  naa lb extend never")]
    Extend(reserve::Extend),
    /// Reset parts of a reservation
    #[command(
        after_help = "Examples:\n  naa lb reset --sync --epochs        after the senders began their event numbers again"
    )]
    Reset(Reset),
    /// Add or remove addresses from which segments come
    #[command(
        subcommand,
        after_help = "Examples:\n  naa lb senders add 10.9.0.5 fd00:9::5\n  naa lb senders remove 10.9.0.5"
    )]
    Senders(Change),
    /// End worker sessions, or set which slots they demand
    #[command(subcommand, after_help = share::EXAMPLES)]
    Workers(share::Command),
    /// Make, show and revoke tokens
    #[command(subcommand, after_help = tokens::EXAMPLES)]
    Tokens(tokens::Command),
    /// Print time series of a control plane
    #[command(after_help = timeseries::EXAMPLES)]
    Timeseries(timeseries::Args),
    /// Show name and version of the control plane's program
    #[command(after_help = "Examples:\n  naa lb version")]
    Version(At),
    /// Copy the store of a control plane of naa into one file
    #[command(after_help = store::EXAMPLES)]
    Backup(store::Backup),
    /// Replace the store of a control plane of naa by a backup
    #[command(after_help = store::EXAMPLES)]
    Restore(store::Restore),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Reset {
    /// Forget the event numbers that senders reported by sync datagrams
    #[arg(long)]
    sync: bool,
    /// Begin with a first epoch again: event numbers may be lower than before
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

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Change {
    /// Let the load balancer take segments from these addresses
    #[command(after_help = "Examples:\n  naa lb senders add 10.9.0.5")]
    Add(Addresses),
    /// Let the load balancer take no more segments from these addresses
    #[command(after_help = "Examples:\n  naa lb senders remove 10.9.0.5")]
    Remove(Addresses),
}

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Addresses {
    /// IP addresses of senders
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<IpAddr>,
    #[command(flatten)]
    of: Of,
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    execute(command).map_err(|error| match error.downcast::<ClientError>() {
        Ok(error) => anyhow!(with_ca_option(&error)),
        Err(other) => other,
    })
}

fn execute(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Reserve(args) => reserve::run(args),
        Command::Free(of) => {
            let (lb, connection) = of.connect()?;
            connection.free(&lb)?;
            of.at.done(&json!({ "freed": lb }), || format!("reservation {lb} has ended"))
        }
        Command::Status(args) => status::run(args),
        Command::Overview(args) => overview::run(args),
        Command::Extend(args) => reserve::extend(args),
        Command::Reset(args) => reset(args),
        Command::Senders(change) => senders(change),
        Command::Workers(command) => share::run(command),
        Command::Tokens(command) => tokens::run(command),
        Command::Timeseries(args) => timeseries::run(args),
        Command::Version(at) => {
            let (_, connection) = at.connect()?;
            let pb::VersionReply { commit, build, compat_tag } = connection.version()?;
            let object = json!({ "commit": commit, "build": build, "compat_tag": compat_tag });
            at.done(&object, || format!("{commit}, {build}; speaks the API of {compat_tag}"))
        }
        Command::Backup(args) => store::backup(args),
        Command::Restore(args) => store::restore(args),
    }
}

fn reset(args: &Reset) -> anyhow::Result<()> {
    let &Reset { sync, epochs, senders, workers, .. } = args;
    if !(sync || epochs || senders || workers) {
        return Err(Usage::error("say what to reset: --sync, --epochs, --senders, --workers"));
    }
    let (lb_id, connection) = args.of.connect()?;
    let request = pb::ResetLoadBalancerRequest { lb_id: lb_id.clone(), sync, epochs, senders, workers };
    connection.reset(request)?;
    let object =
        json!({ "lb": lb_id, "sync": sync, "epochs": epochs, "senders": senders, "workers": workers });
    let all = [(sync, "event numbers"), (epochs, "epochs"), (senders, "senders"), (workers, "workers")];
    let parts: Vec<_> = all.into_iter().filter_map(|(is_reset, part)| is_reset.then_some(part)).collect();
    args.of.at.done(&object, || format!("these parts of reservation {lb_id} are reset: {}", parts.join(", ")))
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
