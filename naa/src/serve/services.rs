//! EJFAT's services that run beside the functions: reassembly, and the load balancer.

use std::{collections::BTreeSet, os::unix::fs::FileTypeExt as _, path::PathBuf, sync::Arc, time::Duration};

use clap::ArgGroup;
use ejfat::lb::Rules;
use ejfat_bridge::{Bridge, BridgeHandle};
use ejfat_lb::{Forwarder, ForwarderConfig, SharedDataPlane};
use ejfat_udp::{ReceivedEvent, ReceiverConfig};
use naa_server::function::Handler;
use naa_services::{EventSink, Reassembly, SinkError};

use crate::{
    bridge,
    ejfat::{
        limits::Limits,
        sink,
        site::{self, Joined, OfIni, Wanted},
        values,
    },
};

/// The options that need a service that is a worker. `--uri` is not one of them, because EJFAT_URI may be in the environment of any
/// server.
const OF_WORKERS: [&str; 8] = [
    "no_control_plane",
    "control_plane_ca",
    "address",
    "name",
    "weight",
    "min_factor",
    "max_factor",
    "state_period",
];

#[derive(Clone, Debug, clap::Args)]
#[group(id = "service_options")]
#[command(
    group = ArgGroup::new("reassembling").args(["reassemble", "bridge"]).multiple(true),
    mut_group("reassembly_limits", |limits| limits.requires("reassembling")),
    mut_args(|option| if OF_WORKERS.contains(&option.get_id().as_str()) { option.requires("reassembling") } else { option })
)]
pub(super) struct Args {
    /// Reassemble EJFAT's events that come to this address; ports 19522 and 16384 unless told. Function 72 tells the counters
    #[arg(long, value_name = "ADDR[:PORT]", requires = "events")]
    reassemble: Option<String>,
    /// Where they go: a folder or a named pipe, for whose reader the server waits first. In a folder an event is a file
    /// DATA_ID-EVENT, or DATA_ID-EVENT.2 and so on if anything has that name; it appears when it is complete, and is on
    /// disk about a second later. When events cannot be written, the server ends with exit status 1, so that a supervisor starts it again
    #[arg(long, value_name = "DIR|PIPE", requires = "reassemble")]
    events: Option<PathBuf>,
    /// Forward EJFAT's segments that come to this address to workers, by tables that hosts load (functions 64 to 67,
    /// `naa lb table load FILE mrsp://...`); ports 19522 and 16384 unless told. Unless --bind is a loopback address, --allow has to name
    /// the networks of these hosts
    #[arg(long, value_name = "ADDR[:PORT]")]
    forward: Vec<String>,
    /// Put EJFAT's events that come to this address into memory of workers that subscribe (function 80), as `naa bridge`
    /// does, which has more settings; ports 19522 and 16384 unless told
    #[arg(long, value_name = "ADDR[:PORT]")]
    bridge: Vec<String>,
    /// Workers of this machine subscribe at this UNIX socket
    #[arg(long, value_name = "PATH", requires = "bridge")]
    bridge_local: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten, next_help_heading = "Control plane, with --reassemble or --bridge")]
    site: site::WorkerArgs,
}

/// The services, which run until this is dropped.
#[derive(Debug, Default)]
pub(super) struct RunningServices {
    reassembly: Option<Arc<Reassembly>>,
    forwarder: Option<Forwarder>,
    /// The addresses at which the bridge receives segments.
    bridge: Vec<std::net::SocketAddr>,
    bridge_handle: Option<BridgeHandle>,
    /// The reservation of which to be a worker, until the services have registered.
    wanted: Option<Wanted>,
    joined: Vec<Joined>,
    /// The reasons for ended reservations that were already logged.
    logged: BTreeSet<String>,
}

/// The started services, and what the server needs of them.
pub(super) struct ServiceParts {
    pub(super) services: RunningServices,
    /// The functions by which hosts call the services.
    pub(super) functions: Vec<Handler>,
    pub(super) bridge: Option<Bridge>,
}

/// The receive buffer of a service's sockets, in bytes.
const BUFFER: usize = 8 << 20;

impl Args {
    /// Whether hosts can replace a load balancer's tables.
    pub(super) fn has_tables(&self) -> bool {
        !self.forward.is_empty()
    }

    /// Starts the services, except the bridge, which runs in the server loop.
    pub(super) fn start(&self) -> anyhow::Result<ServiceParts> {
        let (mut services, mut functions) = (RunningServices::default(), Vec::new());
        if self.reassemble.is_some() || !self.bridge.is_empty() {
            services.wanted = self.site.wanted(&OfIni::default())?;
        }
        let bridge = (!self.bridge.is_empty()).then(|| self.bridge()).transpose()?;
        if let Some(bridge) = &bridge {
            services.bridge = bridge.addresses();
            services.bridge_handle = Some(bridge.handle());
            values::report_skipped(bridge.skipped());
            functions.extend(naa_services::bridge(&bridge.handle()));
            functions.push(Bridge::function());
        }
        if let Some((at, events)) = self.reassemble.as_ref().zip(self.events.as_ref()) {
            let usual = ejfat::reassembly::Config { seed: values::seed(), ..Default::default() };
            let reassembly = self.limits.apply(usual, 1);
            let listen = values::listen(std::slice::from_ref(at), None)?.concat();
            let config = ReceiverConfig { listen, buffer: Some(BUFFER), reassembly };
            let service = Arc::new(Reassembly::start(config, Box::new(Events(open(events)?)))?);
            functions.push(naa_services::reassembly_counters(service.clone()));
            services.reassembly = Some(service);
        }
        if !self.forward.is_empty() {
            let listen = values::listen(&self.forward, None)?;
            let plane = Arc::new(SharedDataPlane::new(Rules::default(), values::seed()));
            services.forwarder = Some(Forwarder::start(&ForwarderConfig { listen, buffer: BUFFER }, &plane)?);
            functions.extend(naa_services::lb(&plane));
        }
        Ok(ServiceParts { services, functions, bridge })
    }

    fn bridge(&self) -> anyhow::Result<Bridge> {
        let args = bridge::BridgeArgs::usual(self.bridge_local.clone(), self.limits.clone());
        args.build(&self.bridge, None)
    }
}

impl RunningServices {
    /// Registers the services that receive events, if there is a URI. They must receive already.
    ///
    /// # Errors
    /// If a service cannot be registered.
    pub(super) fn join(&mut self, args: &Args) -> anyhow::Result<()> {
        let Some(wanted) = self.wanted.take() else { return Ok(()) };
        let ini = OfIni::default();
        if let Some(reassembly) = &self.reassembly {
            let gauge = reassembly.gauge().clone();
            let state = move || site::state(&gauge);
            self.joined.push(args.site.join(wanted.clone(), &ini, reassembly.addresses(), state)?);
        }
        if let Some(handle) = self.bridge_handle.clone() {
            let state = move || site::bridge_state(&handle.load());
            self.joined.push(args.site.join(wanted, &ini, &self.bridge, state)?);
        }
        Ok(())
    }

    /// Drains the registered services, and waits until they have left. They go on receiving meanwhile.
    pub(super) fn leave(&mut self) {
        // `retain_mut` asks each of them, so that all drain at the same time.
        while !self.joined.is_empty() {
            self.joined.retain_mut(|joined| !joined.has_left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Logs once for each reason that services will not get events any more. The server goes on.
    pub(super) fn log_ended_reservations(&mut self) {
        for why in self.joined.iter_mut().filter_map(Joined::is_over) {
            if self.logged.insert(why.clone()) {
                tracing::error!(
                    "{why}; this server goes on, and gets no events from the load balancer until it is started again with another \
                     EJFAT URI"
                );
            }
        }
    }

    /// Lines that say which service runs at which address.
    pub(super) fn lines(&self) -> Vec<String> {
        let at = |addresses: &[std::net::SocketAddr]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let reassembly = self.reassembly.iter().map(|of| format!("reassembling at {}", at(of.addresses())));
        let forwarder = self.forwarder.iter().map(|of| format!("forwarding at {}", at(of.addresses())));
        let bridge =
            (!self.bridge.is_empty()).then(|| format!("events from {} to workers", at(&self.bridge)));
        let joined = self.joined.iter().map(Joined::line);
        reassembly.chain(forwarder).chain(bridge).chain(joined).collect()
    }

    /// Why a service ended by itself, if one did. The program is to end then, with a failure, so that a supervisor starts
    /// it again.
    pub(super) fn ended(&self) -> Option<String> {
        let reassembly = || self.reassembly.as_ref()?.snapshot().ended.map(reassembly_ended);
        let forwarder = || self.forwarder.as_ref()?.ended();
        let bridge = || {
            let why = self.bridge_handle.as_ref()?.snapshot().failed?;
            Some(format!("the bridge ended: segments cannot be received any more: {why}"))
        };
        reassembly().or_else(forwarder).or_else(bridge)
    }

    /// Ends the reassembly and waits until its events are on disk.
    ///
    /// # Errors
    /// If a service ended by itself. `failed` is the reason if it was noticed before; otherwise this checks once more.
    pub(super) fn end(&self, failed: Option<String>) -> anyhow::Result<()> {
        let late = self.reassembly.as_ref().and_then(|of| of.end()).map(reassembly_ended);
        match failed.or(late).or_else(|| self.ended()) {
            Some(why) => Err(anyhow::anyhow!(why)),
            None => Ok(()),
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "reassembling": self.reassembly.as_ref().map(|of| of.addresses()),
            "bridging": (!self.bridge.is_empty()).then_some(&self.bridge),
            "forwarding": self.forwarder.as_ref().map(|of| of.addresses()),
            "registered": self.joined.iter().map(Joined::json).collect::<Vec<_>>(),
        })
    }
}

fn reassembly_ended(why: String) -> String {
    format!("reassembly ended: {why}")
}

struct Events(Box<dyn sink::EventSink + Send>);

impl EventSink for Events {
    fn event(&mut self, event: &ReceivedEvent<'_>) -> Result<(), SinkError> {
        // The text has the error and its causes in one line.
        self.0.event(event).map_err(|error| format!("{error:#}").into())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.0.finish().map_err(|error| format!("{error:#}").into())
    }
}

fn open(path: &PathBuf) -> anyhow::Result<Box<dyn sink::EventSink + Send>> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    Ok(if is_pipe { Box::new(sink::Pipe::open(path)?) } else { Box::new(sink::FolderSink::new(path)?) })
}
