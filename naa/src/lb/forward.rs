//! `naa lb forward`.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};

use ejfat::lb::{LbId, Rules};
use ejfat_lb::{Forwarder, ForwarderConfig, Plane, grpc, message};
use naa_server::{Config, Server, functions};
use serde_json::{Value, json};

use super::{counts, place};
use crate::{
    ejfat::{tell::Line, values},
    metrics, provider, show, signals,
};

/// Forward segments to workers by tables
///
/// Listens on concrete addresses of this machine, which the tables give to load balancers, and sends from them. Tables come
/// from a file, and change over gRPC (naa's own service, and the one of ESnet's SmartNICs, so that their control plane can
/// program this) or over MRSP, as an accelerator's services. No privileges, no copies of payload.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  naa lb forward --listen 10.9.0.1 --tables lb.yaml
  naa lb forward --listen 10.9.0.1 --listen fd00:9::1 --grpc 10.9.0.1:18010 --metrics 127.0.0.1:9100
  naa lb forward --listen 10.9.0.1 --serve 10.9.0.1         then: naa lb table load lb.yaml mrsp://10.9.0.1

`naa lb table --help` shows a file. Whoever reaches the gRPC or MRSP address can program the tables: keep them to a network
you trust, and use --token.")]
pub(super) struct Args {
    /// Where segments come; port 19522 unless told; repeat for more, each has a thread
    #[arg(long, value_name = "ADDR[:PORT]", required = true)]
    listen: Vec<String>,
    /// Rules to begin with
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
    /// Be programmed over gRPC at this address
    #[arg(long, value_name = "ADDR:PORT")]
    grpc: Option<SocketAddr>,
    /// What callers over gRPC must show
    #[arg(long, env = "NAA_LB_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Be programmed over MRSP at this address: an accelerator with functions 64 to 67; port 12345 unless told
    #[arg(long, value_name = "ADDR[:PORT]")]
    serve: Option<String>,
    #[command(flatten)]
    provider: provider::Args,
    /// Serve counters at http://ADDR:PORT/metrics, to anybody who can reach it; a port alone is loopback's
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Receive buffer of each address; K and M are KiB and MiB
    #[arg(short, long, value_name = "BYTES", default_value = "8M", value_parser = values::size)]
    buffer: u32,
    /// Print JSON: an object when it is ready, one at the end
    #[arg(long)]
    json: bool,
    /// End when standard input does
    #[arg(long, hide = true)]
    until_eof: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let rules = args.tables.as_ref().map(place::read).transpose()?.unwrap_or_default();
    let listen = args.listen.iter().map(|text| values::address(text)).collect::<anyhow::Result<Vec<_>>>()?;
    warn_of_gaps(&rules, &listen, args);
    let plane = Arc::new(Plane::new(rules, values::seed()));
    let forwarder = Forwarder::start(&ForwarderConfig { listen, buffer: args.buffer as usize }, &plane)?;
    if forwarder.buffer() / 2 < args.buffer as usize {
        tracing::warn!(
            "the receive buffer is {} instead of {}: bursts may be lost; raise it with \
             `sysctl net.core.rmem_max={}`",
            show::bytes(forwarder.buffer() as u64 / 2),
            show::bytes(args.buffer.into()),
            args.buffer
        );
    }
    let grpc = args.grpc.map(|at| grpc::serve(at, plane.clone(), args.token.clone())).transpose()?;
    let server = args.serve.as_deref().map(|at| serve(args, at, &plane)).transpose()?;
    let of = plane.clone();
    let text = move || counts::metrics(&message::of_counters(&of.counters()));
    let metrics = args.metrics.map(|at| metrics::serve(at, text)).transpose()?;

    let (told, ended) = mpsc::channel();
    if args.until_eof {
        let told = told.clone();
        signals::on_stdin_end(move || {
            let _ = told.send(());
        })?;
    }
    signals::on_terminate(move || {
        let _ = told.send(());
    })?;
    let grpc_at = grpc.as_ref().map(grpc::Server::address);
    ready(args, &forwarder, grpc_at, server.as_ref().map(Server::address), metrics)?;
    let mut line = Line::new(args.json);
    while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        if let Some(why) = forwarder.ended() {
            anyhow::bail!(why);
        }
        line.tell(|| counts::line(&message::of_counters(&plane.counters())));
    }
    drop(line);
    if let Some(server) = server {
        server.shutdown(Duration::from_secs(1));
    }
    let counters = message::of_counters(&plane.counters());
    if args.json {
        let mut end = counts::json(&counters);
        end["event"] = "end".into();
        return Ok(show::line(&end.to_string())?);
    }
    show::line(&counts::line(&counters))?;
    Ok(show::line(&counts::table(&counters))?)
}

/// What would be dropped although it was meant to work.
fn warn_of_gaps(rules: &Rules, listen: &[SocketAddr], args: &Args) {
    let own = |at: &SocketAddr| rules.get(&ejfat::lb::RuleKey::Destination { address: at.ip() }).is_some();
    if let Some(at) = listen.iter().find(|at| args.tables.is_some() && !own(at)) {
        tracing::warn!(
            "no rule gives {} to a load balancer: its packets are dropped until one does",
            at.ip()
        );
    }
    if args.tables.is_none() && args.grpc.is_none() && args.serve.is_none() {
        tracing::warn!("there are no rules and no way to load any; add --tables, --grpc or --serve");
    }
}

/// The accelerator whose services program the tables.
fn serve(args: &Args, at: &str, plane: &Arc<Plane>) -> anyhow::Result<Server> {
    let (ip, port) = values::ip_and_port(at)?;
    let mut config = Config::new(SocketAddr::new(ip, port.unwrap_or(naa_server::DEFAULT_PORT)));
    config.provider = Some(args.provider.choice()?);
    Ok(Server::start(config, functions::registry(naa_services::lb(plane))?)?)
}

fn ready(
    args: &Args,
    forwarder: &Forwarder,
    grpc: Option<SocketAddr>,
    mrsp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    if args.json {
        let addresses: Vec<_> = forwarder.addresses().iter().map(ToString::to_string).collect();
        let mut ready = json!({ "event": "ready", "addresses": addresses });
        for (name, at) in [("grpc", grpc), ("mrsp", mrsp), ("metrics", metrics)] {
            ready[name] = at.map_or(Value::Null, |at| at.to_string().into());
        }
        return Ok(show::line(&ready.to_string())?);
    }
    let at: Vec<_> = forwarder.addresses().iter().map(ToString::to_string).collect();
    let lbs = LbId::COUNT;
    show::line(&format!(
        "forwarding at {} by the tables of up to {lbs} load balancers; Ctrl-C ends",
        at.join(", ")
    ))?;
    for (what, at) in [("gRPC", grpc), ("MRSP", mrsp), ("metrics", metrics)] {
        if let Some(at) = at {
            show::line(&format!("{what} at {at}"))?;
        }
    }
    Ok(())
}
