//! `naa serve`: the accelerator in software.

mod exposed;
mod services;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::mpsc,
    time::Duration,
};

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use naa_kernels::Kernels;
use naa_server::{
    Config, DEFAULT_PORT, Server,
    allow::{AllowList, Network},
    function::{Handler, Registry},
    functions, kernel,
    loop_service::LoopService,
};
use services::ServiceParts;
use verbs::WaitMode;

use crate::{kernel_process, metrics, provider, show};

/// The path MTUs of InfiniBand.
const PATH_MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

/// Serve functions to hosts that connect
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  naa serve                                   on loopback, for programs on this machine\n  \
    naa serve --bind 10.9.0.2 --allow 10.9.0.0/24\n  \
    naa serve --bind 10.9.0.2 --provider verbs  on the RDMA device with that address, or not at all\n  \
    naa serve --kernels ./libscale.so           own functions, in C: naa_kernel.h says how\n\nRoCE has no authentication: whoever reaches the address and is \
    allowed may call every function.\n\nIf the reservation of --reassemble or --bridge ended or its token was revoked, an error line \
    says so, and the server goes on."
)]
pub(crate) struct Args {
    /// Local address to serve on; a concrete one of this machine
    #[arg(short, long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,
    #[arg(short, long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Networks that may connect, such as 10.9.0.0/24; repeat for more [default: everyone who reaches the address]
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// Memory of all sessions together, in MiB [default: 16384, or half of this machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    memory: Option<u64>,
    /// Memory of all sessions of one peer together, in MiB: of one IPv4 address, or of the /64 network of an IPv6
    /// address. An eighth of --memory is kept for peers that have little. With kernels, the open files that regions need
    /// are divided alike [default: half of --memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    per_peer_memory: Option<u64>,
    /// Memory of one session, in MiB; over verbs, what its host can write counts twice
    #[arg(long, value_name = "MIB", default_value_t = 8 << 10, value_parser = clap::value_parser!(u64).range(1..))]
    session_memory: u64,
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_sessions: usize,
    /// Sessions of one peer
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_sessions_per_peer: usize,
    /// Calls of one peer that wait for a worker or run there, those included that it gave up and that still run
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    per_peer_calls: usize,
    /// Memory regions per session, at most 255
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..))]
    max_regions: u8,
    /// Parameters of a session whose layout has them share regions; 0: take no layouts, as an accelerator that knows none
    #[arg(long, value_name = "N", default_value_t = 255)]
    max_slots: u8,
    /// Worker threads for long calls [default: one per core]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    workers: Option<usize>,
    /// Seconds a call may take
    #[arg(long, value_name = "SECONDS", default_value_t = 3600.0)]
    call_time: f64,
    /// Seconds between probes of silent hosts; 0 for none
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    probe_interval: f64,
    /// How the server waits: spin has the lowest latency and takes a core
    #[arg(long, value_enum, default_value_t = super::Wait::Adaptive)]
    wait: super::Wait,
    /// Largest payload per packet, of the embedded provider [default: what the interface allows]
    #[arg(long, value_name = "BYTES",
          value_parser = PossibleValuesParser::new(PATH_MTUS).try_map(|text| text.parse::<u32>()))]
    path_mtu: Option<u32>,
    /// Serve the kernels of a shared object too, in processes of their own; repeat for more
    #[arg(long, value_name = "LIBRARY")]
    kernels: Vec<PathBuf>,
    /// Memory a process of kernels may have beside its session's, in MiB [default: any]
    #[arg(long, value_name = "MIB", requires = "kernels", value_parser = clap::value_parser!(u64).range(16..))]
    kernel_memory: Option<u64>,
    #[command(flatten, next_help_heading = "Services of EJFAT")]
    services: services::Args,
    #[command(flatten, next_help_heading = "Options")]
    provider: provider::Args,
    /// Serve counters, in all and of each peer, at http://ADDR:PORT/metrics, to anybody who can reach it; a port alone
    /// is loopback's
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = metrics::address)]
    metrics: Option<SocketAddr>,
    /// Print one JSON object when ready, and one at the end
    #[arg(long)]
    json: bool,
    /// End when standard input does, so that the server goes with the program that started it
    #[arg(long, hide = true)]
    until_eof: bool,
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let seconds = |s: f64, what: &str| {
            Duration::try_from_secs_f64(s).with_context(|| format!("{what} {s} is no time in seconds"))
        };
        let mut config = Config::new(SocketAddr::new(self.bind, self.port));
        if !self.allow.is_empty() {
            config.allow = AllowList::only(self.allow.clone());
        }
        config.memory = self.memory.map_or(config.memory, |mib| mib.saturating_mul(1 << 20));
        config.per_peer_memory = self.per_peer_memory.map(|mib| mib.saturating_mul(1 << 20));
        config.limits.max_session_bytes = self.session_memory.saturating_mul(1 << 20);
        config.limits.max_regions = self.max_regions;
        config.limits.max_slots = self.max_slots;
        config.max_sessions = self.max_sessions;
        config.max_sessions_per_peer = self.max_sessions_per_peer;
        config.pool.pool_threads = self.workers.unwrap_or(config.pool.pool_threads);
        config.pool.per_peer = self.per_peer_calls;
        config.call_time = seconds(self.call_time, "--call-time")?;
        config.probe_interval = seconds(self.probe_interval, "--probe-interval")?;
        config.wait = WaitMode::from(self.wait);
        config.provider = Some(self.provider.choice()?);
        config.device.max_path_mtu = self.path_mtu;
        Ok(config)
    }

    /// The registry of the built-in functions, the services, and the kernels of libraries.
    fn registry(&self, services: Vec<Handler>) -> anyhow::Result<Registry> {
        if self.kernels.is_empty() {
            return Ok(functions::registry(services)?);
        }
        kernel_process::raise_file_limit();
        let memory = self.kernel_memory.map_or(0, |mib| mib.saturating_mul(1 << 20));
        let kernels = Kernels::load(kernel_process::launch(memory), &self.kernels)
            .context("cannot serve the kernels")?;
        Ok(functions::registry(services.into_iter().chain(kernel::handlers(&kernels)))?)
    }
}

/// Waits until `ended` asks the program to end, or a service ends by itself. Returns why the service ended.
///
/// # Errors
/// If the server ended by itself, so that a supervisor starts the program again.
fn wait(
    ended: &mpsc::Receiver<()>,
    server: &Server,
    services: &mut services::RunningServices,
) -> anyhow::Result<Option<String>> {
    while ended.recv_timeout(Duration::from_millis(200)) == Err(mpsc::RecvTimeoutError::Timeout) {
        if let Some(why) = server.ended() {
            anyhow::bail!("the server ended: {why}");
        }
        let failed = services.ended();
        if failed.is_some() {
            return Ok(failed);
        }
        services.log_ended_reservations();
    }
    Ok(None)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.services.has_tables() {
        crate::lb::check_mrsp("--forward", args.bind, &args.allow, false)?;
    }
    let ServiceParts { mut services, functions, bridge } = args.services.start()?;
    let registry = args.registry(functions)?;
    let count = registry.iter().count();
    let mut config = args.config()?;
    config.stream_sends = crate::bridge::STREAM_SENDS;
    let loop_service = bridge.map(|bridge| Box::new(bridge) as Box<dyn LoopService>);
    let server = Server::start_with(config, registry, loop_service)?;
    let stats = server.stats().clone();
    let metrics = args.metrics.map(|at| metrics::serve(at, exposed::text(stats))).transpose()?;
    crate::signals::on_hang_up()?;
    let ended = crate::signals::end_channel(args.until_eof)?;
    services.join(&args.services)?;
    if args.json {
        let ready = serde_json::json!({"event": "ready", "address": server.address().to_string(),
            "device": server.device(), "provider": server.provider(), "why": server.why(),
            "functions": count, "services": services.json(),
            "metrics": metrics.map(|at| at.to_string())});
        show::line(&ready.to_string())?;
    } else if !show::is_quiet() {
        show::line(&format!("serving {count} functions at {}: {}", server.address(), server.device()))?;
        services.lines().iter().try_for_each(|line| show::line(line))?;
        metrics.iter().try_for_each(|at| show::line(&format!("metrics at {at}")))?;
        show::line(&format!("`naa functions --server {}` lists them; Ctrl-C ends", server.address()))?;
    }
    let why = wait(&ended, &server, &mut services)?;
    if why.is_none() {
        services.leave();
    }
    let (stats, peers) = (server.stats().clone(), server.stats().peers());
    // The server ends before the summary is made, so that the summary counts the calls which this ends.
    server.shutdown(Duration::from_secs(5));
    let summary = if args.json { exposed::end(&stats, &peers).to_string() } else { exposed::summary(&stats) };
    let ended = services.end(why);
    show::line(&summary)?;
    ended
}
