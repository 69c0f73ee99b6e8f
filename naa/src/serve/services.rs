//! Services of EJFAT beside the functions: reassembly, and the load balancer.

use std::{os::unix::fs::FileTypeExt as _, path::PathBuf, sync::Arc};

use ejfat::lb::Rules;
use ejfat_bridge::Bridge;
use ejfat_lb::{Forwarder, ForwarderConfig, Plane};
use ejfat_udp::{Event, ReceiverConfig};
use naa_server::function::Function;
use naa_services::{Reassembly, Sink, SinkError};

use crate::{
    bridge,
    ejfat::{sink, values},
};

#[derive(Clone, Debug, clap::Args)]
#[group(id = "service_options")]
pub(super) struct Args {
    /// Reassemble EJFAT's events that come to this address; port 19522 unless told. Function 72 tells the counters
    #[arg(long, value_name = "ADDR[:PORT]", requires = "events")]
    reassemble: Option<String>,
    /// Where they go: a folder or a named pipe, for whose reader the server waits first. In a folder an event is a file
    /// DATA_ID-EVENT, or DATA_ID-EVENT.2 and so on if anything has that name; it appears when it is complete, and is on
    /// disk about a second later. When events cannot be written, reassembly ends; the exit status of the server is 1 then
    #[arg(long, value_name = "DIR|PIPE", requires = "reassemble")]
    events: Option<PathBuf>,
    /// Forward EJFAT's segments that come to this address to workers, by tables that hosts load (functions 64 to 67,
    /// `naa lb table load FILE mrsp://...`); port 19522 unless told. Unless --bind is a loopback address, --allow has to name
    /// the networks of these hosts
    #[arg(long, value_name = "ADDR[:PORT]")]
    forward: Vec<String>,
    /// Put EJFAT's events that come to this address into memory of workers that subscribe (function 80), as `naa bridge`
    /// does, which has more settings; port 19522 unless told
    #[arg(long, value_name = "ADDR[:PORT]")]
    bridge: Vec<String>,
    /// Workers of this machine subscribe at this UNIX socket
    #[arg(long, value_name = "PATH", requires = "bridge")]
    bridge_local: Option<PathBuf>,
}

/// They run until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Services {
    reassembly: Option<Arc<Reassembly>>,
    forwarder: Option<Forwarder>,
    /// Where segments come.
    bridge: Vec<std::net::SocketAddr>,
}

/// What the server is to have.
pub(super) struct Started {
    pub(super) services: Services,
    /// What hosts call of them.
    pub(super) functions: Vec<Arc<dyn Function>>,
    pub(super) bridge: Option<Bridge>,
}

/// Receive buffer of a service's sockets.
const BUFFER: usize = 8 << 20;

impl Args {
    /// Hosts can replace a load balancer's tables.
    pub(super) fn has_tables(&self) -> bool {
        !self.forward.is_empty()
    }

    /// Starts them, but the bridge, which runs in the server's loop.
    pub(super) fn start(&self) -> anyhow::Result<Started> {
        let (mut services, mut functions) = (Services::default(), Vec::new());
        let bridge = (!self.bridge.is_empty()).then(|| self.bridge()).transpose()?;
        if let Some(bridge) = &bridge {
            services.bridge = bridge.addresses()?;
            functions.extend(naa_services::bridge(&bridge.handle()));
            functions.push(Bridge::function());
        }
        if let Some((at, events)) = self.reassemble.as_ref().zip(self.events.as_ref()) {
            let reassembly = ejfat::reassembly::Config { seed: values::seed(), ..Default::default() };
            let listen = vec![values::address(at)?];
            let config = ReceiverConfig { listen, buffer: Some(BUFFER), by_source: true, reassembly };
            let service = Arc::new(Reassembly::start(config, Box::new(Events(open(events)?)))?);
            functions.push(naa_services::reassembly_counters(service.clone()));
            services.reassembly = Some(service);
        }
        if !self.forward.is_empty() {
            let listen = self.forward.iter().map(|at| values::address(at)).collect::<anyhow::Result<_>>()?;
            let plane = Arc::new(Plane::new(Rules::default(), values::seed()));
            services.forwarder = Some(Forwarder::start(&ForwarderConfig { listen, buffer: BUFFER }, &plane)?);
            functions.extend(naa_services::lb(&plane));
        }
        Ok(Started { services, functions, bridge })
    }

    fn bridge(&self) -> anyhow::Result<Bridge> {
        let config = bridge::Settings::usual(self.bridge_local.clone()).config(&self.bridge, None)?;
        bridge::build(config)
    }
}

impl Services {
    /// What runs where.
    pub(super) fn lines(&self) -> Vec<String> {
        let at = |addresses: &[std::net::SocketAddr]| {
            addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let reassembly = self.reassembly.iter().map(|of| format!("reassembling at {}", at(of.addresses())));
        let forwarder = self.forwarder.iter().map(|of| format!("forwarding at {}", at(of.addresses())));
        let bridge =
            (!self.bridge.is_empty()).then(|| format!("events from {} to workers", at(&self.bridge)));
        reassembly.chain(forwarder).chain(bridge).collect()
    }

    /// Ends what writes, and waits until that is on disk. Why it ended before, if it did.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        match self.reassembly.as_ref().and_then(|of| of.end()) {
            Some(why) => anyhow::bail!("reassembly ended: {why}"),
            None => Ok(()),
        }
    }

    pub(super) fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "reassembling": self.reassembly.as_ref().map(|of| of.addresses()),
            "bridging": (!self.bridge.is_empty()).then_some(&self.bridge),
            "forwarding": self.forwarder.as_ref().map(|of| of.addresses()),
        })
    }
}

struct Events(Box<dyn sink::Sink + Send>);

impl Sink for Events {
    fn event(&mut self, event: &Event<'_>) -> Result<(), SinkError> {
        // With its causes, in one line.
        self.0.event(event).map_err(|error| format!("{error:#}").into())
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.0.finish().map_err(|error| format!("{error:#}").into())
    }
}

fn open(path: &PathBuf) -> anyhow::Result<Box<dyn sink::Sink + Send>> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo());
    Ok(if is_pipe { Box::new(sink::Pipe::open(path)?) } else { Box::new(sink::Folder::new(path)?) })
}
