//! A bridge, as it is served here.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use ejfat::{bridge, listen::Listen, reassembly, ring::DeliveryMode};
use ejfat_bridge::{Bridge, BridgeConfig, BridgeHandle};
use naa_provider::ProviderChoice;
use naa_server::{Config, Server, functions};

use super::counts::Counts;

/// Ports of bridges, on addresses that are theirs alone: a bridge that is started again has the same.
pub(super) const SEGMENTS: u16 = 19_522;
pub(super) const WORKERS: u16 = 12_345;
/// What the system grants without privileges in most places is less, and is told by lost segments.
const BUFFER: usize = 4 << 20;
const WAITING: u32 = 256;
const OPEN: u32 = 1024;
const STREAM_SENDS: u32 = 1024;

#[derive(Clone, Debug)]
pub(super) struct BridgeProcessConfig {
    pub(super) bind: IpAddr,
    pub(super) provider: ProviderChoice,
    pub(super) placing: DeliveryMode,
    pub(super) local: PathBuf,
    pub(super) instance: u64,
}

impl BridgeProcessConfig {
    /// Where workers subscribe.
    pub(super) fn workers(&self) -> SocketAddr {
        SocketAddr::new(self.bind, WORKERS)
    }

    pub(super) fn segments(&self) -> SocketAddr {
        SocketAddr::new(self.bind, SEGMENTS)
    }
}

/// A bridge in this process.
#[derive(Debug)]
pub(super) struct Serving {
    server: Server,
    handle: BridgeHandle,
}

impl Serving {
    pub(super) fn start(config: &BridgeProcessConfig) -> Result<Self, String> {
        let reassembly = reassembly::Config {
            slots: OPEN + WAITING,
            max_open: OPEN,
            max_open_per_source: OPEN,
            max_event: 1 << 20,
            memory: 512 << 20,
            // Emulated processors stand still now and then.
            timeout: Duration::from_secs(2),
            seed: config.instance,
            ..reassembly::Config::default()
        };
        let dispatch = bridge::Config { most_waiting: WAITING, ..bridge::Config::default() };
        let bridge = BridgeConfig {
            buffer: Some(BUFFER),
            reassembly,
            dispatch,
            placing: config.placing,
            local: Some(config.local.clone()),
            ..BridgeConfig::new(vec![Listen::Port(config.segments())])
        };
        let bridge = Bridge::new(bridge, config.instance).map_err(|e| e.to_string())?;
        let handle = bridge.handle();
        let mut server = Config::new(config.workers());
        server.provider = Some(config.provider);
        server.stream_sends = STREAM_SENDS;
        let registry = functions::registry([Bridge::function()]).map_err(|e| e.to_string())?;
        let server =
            Server::start_with(server, registry, Some(Box::new(bridge))).map_err(|e| e.to_string())?;
        Ok(Self { server, handle })
    }

    pub(super) fn counts(&self) -> Counts {
        Counts::of(&self.handle.snapshot())
    }

    /// The provider and why that, for people.
    pub(super) fn why(&self) -> &str {
        self.server.why()
    }

    pub(super) fn end(self) {
        self.server.shutdown(Duration::from_secs(1));
    }
}
