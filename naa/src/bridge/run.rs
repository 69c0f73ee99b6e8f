//! Runs `naa bridge`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use ejfat_bridge::{Bridge, BridgeHandle};
use ejfat_lb::SharedDataPlane;
use naa_server::{
    Config, DEFAULT_PORT, Server, StartError,
    allow::{AllowList, Network},
    functions,
};
use serde_json::json;

use super::{BridgeArgs, exposed, report};
use crate::{
    Usage,
    ejfat::{
        site::{self, Joined, OfIni, bridge_state},
        status_line::StatusLine,
        values,
    },
    lb, metrics, provider, show, signals,
};

#[derive(Clone, Debug, clap::Args)]
#[group(id = "bridge_run")]
pub(super) struct Args {
    /// Where segments come; ports 19522 and 16384 unless told, 0: any; repeat for more. With an EJFAT URI the option may be left out:
    /// then it is any port of the address from which this machine sends to the load balancer, and with --ports N any N consecutive ones
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<String>,
    /// Local address where workers connect; a concrete one of this machine. It serves RDMA at the UDP port 4791 of this address, so
    /// each bridge of a machine needs another one, on loopback 127.0.0.2 and so on
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Networks that may connect, such as 10.9.0.0/24; repeat for more [default: everyone who reaches the address]. With
    /// --route tables they can replace the tables, so they must be named unless the address is loopback's
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// Rules of a load balancer whose members are workers, as `naa lb table --help` shows them; its first load balancer
    /// counts. They are changed with `naa lb table load FILE mrsp://ADDR`
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
    /// Offer the built-in functions of `naa serve`, too
    #[arg(long)]
    builtins: bool,
    #[command(flatten)]
    bridge: BridgeArgs,
    #[command(flatten)]
    provider: provider::Args,
    /// Serve counters at http://ADDR:PORT/metrics, to anybody who can reach it; a port alone is loopback's
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// End after so many seconds
    #[arg(short = 'd', long = "for", value_name = "SECONDS")]
    time: Option<f64>,
    /// Print JSON: an object when it is ready, one each second, one at the end
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_eof: bool,
    #[command(flatten, next_help_heading = "Control plane")]
    site: site::WorkerArgs,
}

/// Work requests of a worker's session: enough for a round trip's segments.
pub(crate) const STREAM_SENDS: u32 = 1024;

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let end = args.time.map(|time| values::wanted_seconds(time, "--for")).transpose()?;
    if args.tables.is_some() && !args.bridge.uses_tables() {
        return Err(Usage::error("--tables say who gets an event with --route tables only"));
    }
    if args.bridge.uses_tables() {
        lb::check_mrsp("--route tables", args.bind, &args.allow, false)?;
    }
    let wanted = args.site.wanted(&OfIni::default())?;
    let plane = args.bridge.uses_tables().then(|| tables(args)).transpose()?;
    let bridge = args.bridge.build(&listen(args)?, plane.as_ref())?;
    values::report_buffer(bridge.buffer()? as u64, args.bridge.buffer.into());
    let (handle, addresses, skipped) = (bridge.handle(), bridge.addresses(), bridge.skipped().to_vec());
    values::report_skipped(&skipped);
    let local = bridge.local().map(|path| format!("unix:{}", path.display()));
    let server = serve(args, bridge, plane.as_ref())?;
    let of = handle.clone();
    let metrics = args.metrics.map(|at| metrics::serve(at, exposed::text(of))).transpose()?;
    signals::on_hang_up()?;
    let ended = signals::end_channel(args.until_eof)?;
    let of = handle.clone();
    let join =
        |wanted| args.site.join(wanted, &OfIni::default(), &addresses, move || bridge_state(&of.load()));
    let mut joined = wanted.map(join).transpose()?;
    if args.json {
        let ready = json!({"event": "ready", "segments": addresses, "skipped": skipped, "workers": server.address(),
            "local": local, "device": server.device(), "provider": server.provider(), "why": server.why(),
            "metrics": metrics.map(|at| at.to_string()), "registered": joined.as_ref().map(Joined::json)});
        show::line(&ready.to_string())?;
    } else if !show::is_quiet() {
        let at = values::addresses(&addresses);
        show::line(&format!("segments at {at}; workers at {}: {}", server.address(), server.device()))?;
        local.iter().try_for_each(|at| show::line(&format!("workers of this machine at {at}")))?;
        joined.iter().try_for_each(|joined| show::line(&joined.line()))?;
        metrics.iter().try_for_each(|at| show::line(&format!("metrics at http://{at}/metrics")))?;
        show::line("Ctrl-C ends it")?;
    }
    let over = watch(args, (&server, &handle), joined.as_mut(), &ended, end)?;
    if let Some(joined) = &mut joined {
        // Returns when nothing is sent to the bridge any more; until then workers still get events.
        joined.leave();
    }
    // The reservation may also have ended while the bridge drained.
    let over = over.or_else(|| joined.as_ref().and_then(Joined::ended));
    server.shutdown(Duration::from_secs(1));
    let snapshot = handle.snapshot();
    show::line(&if args.json { report::end_json(&snapshot).to_string() } else { report::end(&snapshot) })?;
    over.map_or(Ok(()), |why| Err(anyhow::anyhow!("{why}")))
}

/// Prints a line each second, for people or programs, until the bridge is to end. Returns the reason if the reservation ended.
fn watch(
    args: &Args,
    (server, handle): (&Server, &BridgeHandle),
    mut joined: Option<&mut Joined>,
    ended: &mpsc::Receiver<()>,
    end: Option<Duration>,
) -> anyhow::Result<Option<String>> {
    let (begin, mut line) = (Instant::now(), StatusLine::new(args.json));
    let mut next = begin + Duration::from_secs(1);
    let mut before = handle.snapshot();
    let mut told_of_none = joined.is_none();
    while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        let now = Instant::now();
        if end.is_some_and(|end| begin.elapsed() >= end) {
            break;
        }
        let over = joined.as_deref_mut().and_then(Joined::is_over);
        if over.is_some() {
            return Ok(over);
        }
        if now < next {
            continue;
        }
        next += Duration::from_secs(1);
        let snapshot = handle.snapshot();
        if let Some(why) = server.ended() {
            anyhow::bail!("the bridge ended: {why}");
        }
        if let Some(why) = &snapshot.failed {
            anyhow::bail!("segments cannot be received any more: {why}");
        }
        if snapshot.workers.is_empty() && !std::mem::replace(&mut told_of_none, true) {
            tracing::warn!(
                "no worker has subscribed, so the bridge reports that it is not ready, and the load balancer sends no events to it"
            );
        }
        if args.json {
            show::line(&report::json("status", &snapshot).to_string())?;
        } else {
            line.update(|| report::line(&before, &snapshot));
        }
        before = snapshot;
    }
    Ok(None)
}

/// The addresses at which segments are received.
fn listen(args: &Args) -> anyhow::Result<Vec<String>> {
    if args.listen.is_empty() {
        Ok(vec![args.site.own_listen(args.bridge.ports)?])
    } else {
        Ok(args.listen.clone())
    }
}

fn tables(args: &Args) -> anyhow::Result<Arc<SharedDataPlane>> {
    let rules = args.tables.as_ref().map(lb::read_rules).transpose()?.unwrap_or_default();
    Ok(Arc::new(SharedDataPlane::new(rules, values::seed())))
}

fn serve(args: &Args, bridge: Bridge, plane: Option<&Arc<SharedDataPlane>>) -> anyhow::Result<Server> {
    let mut config = Config::new(SocketAddr::new(args.bind, args.port));
    config.provider = Some(args.provider.choice()?);
    if !args.allow.is_empty() {
        config.allow = AllowList::only(args.allow.clone());
    }
    config.max_sessions = args.bridge.max_workers as usize + 16;
    config.max_sessions_per_peer = config.max_sessions;
    config.stream_sends = STREAM_SENDS;
    let services = naa_services::bridge(&bridge.handle());
    let tables = plane.map(naa_services::lb).into_iter().flatten();
    let functions = services.into_iter().chain(tables).chain([Bridge::function()]);
    let registry =
        if args.builtins { functions::registry(functions) } else { functions::services(functions) };
    Server::start_with(config, registry?, Some(Box::new(bridge))).map_err(|error| match error {
        StartError::Device { source: verbs::Error::AddressInUse { .. }, .. } => anyhow::Error::from(error)
            .context("--bind names the address where workers connect, and it is taken"),
        error => error.into(),
    })
}
