//! `naa lb serve`.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{atomic::Ordering::Relaxed, mpsc::RecvTimeoutError},
    time::{Duration, Instant},
};

use ejfat::lb::{LbId, Rules};
use ejfat_cp::{Daemon, settings::Settings};
use serde_json::json;

use super::{figures, local};
use crate::{
    ejfat::{status_line::StatusLine, values},
    metrics, show, signals,
};

/// Serve the control plane of load balancers
///
/// Experiments reserve a load balancer, workers register with it and report how full they are, and senders report their newest
/// event number. Once a second the control plane decides from this which worker gets which events, so that no event is split.
/// Its clients are the programs of E2SAR, of udplbd and of naa, which find it by EJFAT_URI. Without a configuration it serves
/// loopback, with a data plane in the same process.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa lb serve                                  four load balancers on loopback, with a data plane
  naa lb serve --config site.yaml --check       shows the load balancers of a configuration, or its errors
  naa lb serve --config site.yaml --metrics 9100
  naa lb serve --schema > site.schema.json      for editors, which then know every field

A configuration, of which every field may be left out:
  listen: ['10.9.0.1:19523']
  public: lb.example.org                        the host of this control plane in URIs
  tls: {cert: lb.pem, key: lb.key}
  load_balancers:
    - {ipv4: 10.9.1.1, ipv6: 'fd00:9::1', ports: 16384-32767}
  planes:
    - {kind: naa, address: 'plane1:18010', token_file: plane1.token}

Reservations, tokens and sessions are in a file of the state folder: systemd's for a service, else $XDG_STATE_HOME/naa/lb \
or ~/.local/state/naa/lb. The admin token is beside it, in a file that only its owner can read. After a restart everything \
is as it was, and no worker session ends for 10 seconds. Certificate files are read again when they change. The audit \
file is opened again on SIGHUP, for log rotation; only in a terminal SIGHUP ends the program.")]
pub(super) struct Args {
    /// The site's configuration, as YAML
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve gRPC at this address instead of the configuration's; 19523 is the usual port of EJFAT sites; repeat for more
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<SocketAddr>,
    /// The state folder, which has the store and the admin token if the configuration names no other files for them
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Serve /metrics, /healthz and /readyz at http://ADDR:PORT; a port alone is loopback's
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Only show the load balancers and data planes of the configuration, or what is wrong with it
    #[arg(long)]
    check: bool,
    /// Only print the JSON schema of configurations
    #[arg(long)]
    schema: bool,
    /// Print JSON: an object when it is ready, one at the end
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_eof: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if args.schema {
        return Ok(show::line(&serde_json::to_string_pretty(&Settings::schema())?)?);
    }
    let mut settings = args.config.as_deref().map_or(Ok(Settings::default()), Settings::read)?;
    if !args.listen.is_empty() {
        settings.listen.clone_from(&args.listen);
    }
    if args.check {
        return check(args, &settings);
    }
    crate::kernel_process::raise_file_limit();
    let hang_up = signals::on_hang_up()?;
    let state = local::state_folder(args.state.as_deref())?;
    let daemon = Daemon::start(&settings, &state, values::seed())?;
    let metrics = match args.metrics.or(settings.metrics) {
        None => None,
        Some(at) => {
            let (core, ready, counters) =
                (daemon.core().clone(), daemon.core().clone(), daemon.syncs().counters.clone());
            let local = daemon.local().map(|(plane, forwarder)| (plane.clone(), forwarder.ports()));
            let certificate_ends = daemon.certificate_ends();
            let text = move || {
                let local = local.as_ref().map(|(plane, ports)| (&**plane, ports));
                figures::text(&core, &counters, certificate_ends(), local)
            };
            Some(metrics::serve_with_health(at, text, move || ready.ready())?)
        }
    };
    let ended = signals::end_channel(args.until_eof)?;
    local::put(&state, daemon.public(), daemon.token_file())?;
    ready(args, &daemon, metrics)?;
    let mut line = StatusLine::new(args.json);
    let mut next_backup = Instant::now();
    while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        if let Some(why) = daemon.ended() {
            anyhow::bail!(why);
        }
        if hang_up.swap(false, Relaxed) {
            daemon.reopen();
        }
        if let Some((to, every)) = settings.backups()
            && Instant::now() >= next_backup
        {
            if let Err(why) = daemon.backup(to) {
                tracing::warn!("the backup {} of the store was not written: {why}", to.display());
            }
            next_backup = Instant::now() + every;
        }
        daemon.look_at_certificate();
        line.update(|| figures::line(daemon.core()));
    }
    drop(line);
    let end = figures::json(daemon.core());
    let text = figures::line(daemon.core());
    daemon.stop();
    if args.json {
        return Ok(show::line(&end.to_string())?);
    }
    Ok(show::line(&text)?)
}

fn check(args: &Args, settings: &Settings) -> anyhow::Result<()> {
    settings.check()?;
    if let Some(warning) = settings.certificate_warning() {
        tracing::warn!("{warning}");
    }
    let config = settings.config();
    let (host, port) = settings.public()?;
    let local = || ejfat_lb::SharedDataPlane::new(Rules::default(), 0);
    let planes = settings.planes(|| ejfat_cp::PlaneAddress::Local(local().into()))?;
    let lb = |(id, of): (LbId, &ejfat_control::config::LoadBalancerConfig)| {
        json!({
            "lb": id.get(), "ipv4": of.data_v4, "ipv6": of.data_v6,
            "ports": [of.data_ports.start(), of.data_ports.end()],
            "sync_ipv4": of.sync_v4, "sync_ipv6": of.sync_v6, "sync_port": of.sync_port,
        })
    };
    let lbs: Vec<_> = config.load_balancers().map(lb).collect();
    let names: Vec<_> = planes.values().map(ejfat_cp::PlaneAddress::name).collect();
    if args.json {
        let listen: Vec<_> = settings.listen().iter().map(ToString::to_string).collect();
        let checked = json!({ "listen": listen, "public": format!("{host}:{port}"), "load_balancers": lbs, "planes": names });
        return Ok(show::line(&checked.to_string())?);
    }
    for (id, of) in config.load_balancers() {
        let v4 = of.data_v4.map(|ip| ip.to_string());
        let at: Vec<_> = v4.into_iter().chain(of.data_v6.map(|ip| ip.to_string())).collect();
        let (first, last) = (of.data_ports.start(), of.data_ports.end());
        let ports = if first == last { first.to_string() } else { format!("{first}-{last}") };
        show::line(&format!(
            "load balancer {}: {} port {ports}, syncs at port {}",
            id.get(),
            at.join(" and "),
            of.sync_port
        ))?;
    }
    for name in names {
        show::line(&format!("data plane: {name}"))?;
    }
    Ok(show::line(&format!("clients find it at {host}:{port}"))?)
}

fn ready(args: &Args, daemon: &Daemon, metrics: Option<SocketAddr>) -> anyhow::Result<()> {
    let public = daemon.public();
    let (scheme, place) = local::place(public);
    let token_file = daemon.token_file().display();
    let addresses: Vec<_> = daemon.addresses().iter().map(ToString::to_string).collect();
    if args.json {
        let ready = json!({
            "event": "ready", "addresses": addresses, "token_file": token_file.to_string(),
            "store": daemon.store().display().to_string(),
            "metrics": metrics.map(|at| at.to_string()),
            "data_plane": daemon.local().map(|(_, forwarder)| forwarder.addresses().iter().map(ToString::to_string).collect::<Vec<_>>()),
        });
        return Ok(show::line(&ready.to_string())?);
    }
    if show::is_quiet() {
        return Ok(());
    }
    show::line(&format!("control plane at {}; Ctrl-C ends", addresses.join(", ")))?;
    if let Some((_, forwarder)) = daemon.local() {
        show::line(&format!("data plane of this process at {}", values::addresses(forwarder.addresses())))?;
    }
    if let Some(at) = metrics {
        show::line(&format!("metrics at {at}"))?;
    }
    show::line(&format!("export EJFAT_URI=\"{scheme}://$(cat {token_file})@{place}/\""))?;
    Ok(())
}
