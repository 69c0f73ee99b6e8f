//! `naa lb forward`.

use std::{
    net::SocketAddr,
    num::NonZeroU64,
    path::PathBuf,
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};

use ejfat::{
    lb::{LbId, Rules},
    listen::{Listen, PortChoice},
};
use ejfat_lb::{ForwardError, Forwarder, ForwarderConfig, PortCounters, SharedDataPlane, grpc, message};
use ejfat_udp::Ports;
use naa_server::{
    Config, Server,
    allow::{AllowList, Network},
    functions,
};
use serde_json::json;

use super::{callers, counts, engine::Engine, location};
use crate::{
    ejfat::{status_line::StatusLine, values},
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
  NAA_LB_TOKEN=$(cat token) naa lb forward --listen 10.9.0.1 --listen fd00:9::1 --grpc 10.9.0.1:18010 --metrics 9100
  naa lb forward --listen 10.9.0.1 --grpc 10.9.0.1:18010 --tls-cert lb.pem --tls-key lb.key --tls-client-ca clients.pem
  naa lb forward --listen 10.9.0.1 --serve 10.9.0.1 --allow 10.9.0.0/24
                                                            then: naa lb table load lb.yaml mrsp://10.9.0.1

`naa lb table --help` shows a file. Whoever programs the tables decides where all segments go. At an address that others
reach, --grpc wants --token, --tls-client-ca or --allow, and --serve wants --allow; with --token or --tls-client-ca, --serve
wants --allow everywhere. The token and the certificates of callers cover each request over gRPC, to read or to change, and
nothing else: not MRSP, which has no authentication, not --metrics, and not segments, whose senders the tables name. Without
--tls-cert nothing is encrypted, so who reads the network can read the token; with it, gRPC is. --allow goes by source
addresses. Files of certificates are looked at twice a second. What is new in them is used once all of it has stayed the same
for half a second; if it cannot be used, the log says so once, and the certificate that was read before stays in use.")]
pub(super) struct Args {
    /// Where segments come; ports 19522 and 16384 unless told; repeat for more, each has a thread
    #[arg(long, value_name = "ADDR[:PORT]", required = true)]
    listen: Vec<String>,
    /// So many ports from each --listen on, or the ports from A to B, up to 16384: 16384-32767 are those of the P4 data
    /// plane. Ports that are somebody else's are skipped, and named; the first of a number must be free. A port costs an
    /// open file and a few KiB of the kernel's memory
    #[arg(long, value_name = "N|A-B")]
    ports: Option<PortChoice>,
    /// Rules to begin with
    #[arg(long, value_name = "FILE")]
    tables: Option<PathBuf>,
    /// Be programmed over gRPC at this address
    #[arg(long, value_name = "ADDR:PORT")]
    grpc: Option<SocketAddr>,
    /// What callers over gRPC must show in each request; it covers gRPC only
    #[arg(long, env = super::callers::TOKEN_VARIABLE, hide_env_values = true, value_parser = super::callers::token)]
    token: Option<String>,
    /// Serve gRPC over TLS 1.3 only, with this certificate and those between it and its CA, as PEM. Its file and the two
    /// below are read again when they change: new connections get the new certificate, the others go on
    #[arg(long, value_name = "FILE", requires_all = ["grpc", "tls_key"])]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM, not encrypted
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// CAs, as PEM: callers over gRPC must show a certificate of one of them
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Take changes only with this term or a higher one, also before any came: terms are not kept when this ends. Give the
    /// newest term of the control plane that programs this, so that one that was replaced cannot do it after a restart
    #[arg(long, value_name = "NUMBER")]
    least_term: Option<NonZeroU64>,
    /// How many load balancers the tables may have, numbered from 0; ESnet's SmartNICs have 8
    #[arg(long, value_name = "NUMBER", default_value_t = LbId::P4_COUNT as u8,
        value_parser = clap::value_parser!(u8).range(1..=LbId::COUNT as i64))]
    load_balancers: u8,
    /// What decides where packets go
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: Engine,
    /// Be programmed over MRSP at this address: an accelerator with functions 64 to 67; port 12345 unless told
    #[arg(long, value_name = "ADDR[:PORT]")]
    serve: Option<String>,
    /// Networks that may connect over gRPC and MRSP, such as 10.9.0.0/24; repeat for more
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// Offer the built-in functions of `naa serve` over MRSP, too
    #[arg(long, requires = "serve")]
    builtins: bool,
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
    let mrsp = args.serve.as_deref().map(values::ip_and_port).transpose()?;
    let mrsp = mrsp.map(|(ip, port)| SocketAddr::new(ip, port.unwrap_or(naa_server::DEFAULT_PORT)));
    if let Some(at) = mrsp {
        callers::check_mrsp("--serve", at.ip(), &args.allow, args.callers_show())?;
    }
    if let Some(at) = args.grpc {
        callers::check_grpc(at.ip(), &args.allow, args.callers_show())?;
    }
    let rules = args.tables.as_ref().map(location::read).transpose()?.unwrap_or_default();
    let listen = values::listen(&args.listen, args.ports)?;
    warn_of_gaps(&rules, args)?;
    if let Some(lb) = rules.highest_lb().map(LbId::get).filter(|lb| *lb >= args.load_balancers) {
        anyhow::bail!(
            "the tables have load balancer {lb}, which is not below --load-balancers {}; give a higher number",
            args.load_balancers
        );
    }
    let plane = SharedDataPlane::new(rules, values::seed()).with_load_balancers(args.load_balancers.into());
    let plane = args.engine.put_into(plane)?;
    let plane = Arc::new(match args.least_term {
        Some(least) => plane.with_least_term(least),
        None => plane,
    });
    let config = ForwarderConfig { listen, buffer: args.buffer as usize };
    let forwarder = Forwarder::start(&config, &plane).map_err(|error| explained(error, &config.listen))?;
    values::report_skipped(forwarder.skipped());
    values::report_buffer(forwarder.buffer() as u64 / 2, args.buffer.into());
    let grpc = args.grpc.map(|at| grpc::serve_to(grpc_callers(args), at, plane.clone())).transpose()?;
    let server = mrsp.map(|at| serve(args, at, &plane)).transpose()?;
    let (of, ports) = (plane.clone(), forwarder.ports());
    let text = move || counts::metrics(&message::of_counters(&of.counters()), &ports.counters());
    let metrics = args.metrics.map(|at| metrics::serve(at, text)).transpose()?;

    signals::on_hang_up()?;
    let ended = signals::end_channel(args.until_eof)?;
    let grpc_at = grpc.as_ref().map(grpc::GrpcServer::address);
    ready(args, &forwarder, grpc_at, server.as_ref().map(Server::address), metrics)?;
    let mut line = StatusLine::new(args.json);
    while ended.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
        if let Some(why) = forwarder.ended() {
            anyhow::bail!(why);
        }
        if let Some(why) = grpc.as_ref().and_then(grpc::GrpcServer::ended) {
            anyhow::bail!(why);
        }
        if let Some(why) = server.as_ref().and_then(Server::ended) {
            anyhow::bail!("the MRSP server ended: {why}");
        }
        line.update(|| counts::line(&message::of_counters(&plane.counters())));
    }
    drop(line);
    if let Some(server) = server {
        server.shutdown(Duration::from_secs(1));
    }
    let counters = message::of_counters(&plane.counters());
    if args.json {
        let mut end = counts::json(&counters);
        end["event"] = "end".into();
        let port = |of: &PortCounters| json!({"address": of.at, "datagrams": of.packets, "bytes": of.bytes});
        end["ports"] = forwarder.ports().counters().iter().map(port).collect();
        return Ok(show::line(&end.to_string())?);
    }
    show::line(&counts::line(&counters))?;
    Ok(show::line(&counts::table(&counters))?)
}

/// Explains why ports cannot be bound in the words of the receivers, which name what helps if an IPv6 address lacks its
/// brackets, or if there are more ports than files may be open. To find out, the ports are bound once more.
fn explained(error: ForwardError, listen: &[Vec<Listen>]) -> anyhow::Error {
    let again = listen.iter().map(|listen| Ports::bind(listen, None)).collect::<Result<Vec<_>, _>>();
    match again {
        Err(why @ (ejfat_udp::Error::NotLocal { .. } | ejfat_udp::Error::Files { .. })) => why.into(),
        _ => error.into(),
    }
}

/// Warns of packets that the rules would drop, although they were probably meant to be forwarded.
fn warn_of_gaps(rules: &Rules, args: &Args) -> anyhow::Result<()> {
    for text in args.listen.iter().filter(|_| args.tables.is_some()) {
        let (address, _) = values::ip_and_port(text)?;
        if rules.get(&ejfat::lb::RuleKey::Destination { address }).is_none() {
            tracing::warn!(
                "no rule gives {address} to a load balancer: its packets are dropped until one does"
            );
        }
    }
    if args.tables.is_none() && args.grpc.is_none() && args.serve.is_none() {
        tracing::warn!("there are no rules and no way to load any; add --tables, --grpc or --serve");
    }
    Ok(())
}

fn grpc_callers(args: &Args) -> grpc::Callers {
    let allow = args.allow_list();
    let permits = Box::new(move |from| allow.permits(from));
    grpc::Callers { token: args.token.clone(), permits: Some(permits), tls: args.tls() }
}

impl Args {
    fn tls(&self) -> Option<grpc::ServerTls> {
        let files = self.tls_cert.clone().zip(self.tls_key.clone());
        files.map(|(cert, key)| grpc::ServerTls { cert, key, client_ca: self.tls_client_ca.clone() })
    }

    /// Whether callers over gRPC must show a token or a certificate.
    fn callers_show(&self) -> bool {
        self.token.is_some() || self.tls_client_ca.is_some()
    }

    /// The networks that may call; everyone if none are named.
    fn allow_list(&self) -> AllowList {
        if self.allow.is_empty() { AllowList::everyone() } else { AllowList::only(self.allow.clone()) }
    }
}

/// The accelerator whose services program the tables.
fn serve(args: &Args, at: SocketAddr, plane: &Arc<SharedDataPlane>) -> anyhow::Result<Server> {
    let mut config = Config::new(at);
    config.provider = Some(args.provider.choice()?);
    config.allow = args.allow_list();
    let services = naa_services::lb(plane);
    let registry = if args.builtins { functions::registry(services) } else { functions::services(services) };
    Ok(Server::start(config, registry?)?)
}

fn ready(
    args: &Args,
    forwarder: &Forwarder,
    grpc: Option<SocketAddr>,
    mrsp: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
) -> anyhow::Result<()> {
    if args.json {
        let (addresses, skipped) = (forwarder.addresses(), forwarder.skipped());
        let ready = json!({"event": "ready", "addresses": addresses, "skipped": skipped, "grpc": grpc, "mrsp": mrsp,
            "metrics": metrics});
        return Ok(show::line(&ready.to_string())?);
    }
    if show::is_quiet() {
        return Ok(());
    }
    let at = values::addresses(forwarder.addresses());
    let lbs = args.load_balancers;
    show::line(&format!("forwarding at {at} by the tables of up to {lbs} load balancers; Ctrl-C ends"))?;
    let over = if args.tls_cert.is_some() { "gRPC over TLS" } else { "gRPC" };
    for (what, at) in [(over, grpc), ("MRSP", mrsp), ("metrics", metrics)] {
        if let Some(at) = at {
            show::line(&format!("{what} at {at}"))?;
        }
    }
    Ok(())
}
