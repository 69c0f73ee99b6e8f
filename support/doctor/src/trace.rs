//! A server that tells which packets its device refuses.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use naa_host::ProviderChoice;
use naa_provider::{RefusedPacket, Trace};
use naa_server::{Config, Server, functions};

/// A server with the embedded provider, whose device records the packets that it refuses.
#[derive(Debug)]
pub struct Traced {
    server: Server,
    trace: Trace,
    counts: BTreeMap<&'static str, u64>,
}

/// The packets that were refused since the last look.
#[derive(Clone, Debug)]
pub struct RefusedPackets {
    /// The first packets.
    pub packets: Vec<RefusedPacket>,
    /// The number of packets after the first ones.
    pub more: u64,
}

impl Traced {
    /// Starts a server with the built-in functions on a port of `address` that the operating system picks.
    ///
    /// # Errors
    /// Fails if the server cannot start.
    pub fn start(address: IpAddr) -> anyhow::Result<Self> {
        let trace = Trace::default();
        let mut config = Config::new(SocketAddr::new(address, 0));
        config.provider = Some(ProviderChoice::Embedded);
        config.device.trace = Some(trace.clone());
        let server = Server::start(config, functions::builtins()?)?;
        Ok(Self { server, trace, counts: BTreeMap::new() })
    }

    /// The address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Takes the packets that were refused since the last call, `most` of them with their headers. A peer decides how many
    /// packets are refused.
    pub fn take(&mut self, most: usize) -> RefusedPackets {
        let mut taken = self.trace.take();
        for packet in &taken.packets {
            *self.counts.entry(packet.cause.name()).or_default() += 1;
        }
        let more = taken.packets.len().saturating_sub(most) as u64 + taken.missed;
        if more > 0 {
            *self.counts.entry("not recorded").or_default() += taken.missed;
        }
        taken.packets.truncate(most);
        RefusedPackets { packets: taken.packets, more }
    }

    /// Ends the server. Returns the number of refused packets that were taken, by the name of the cause.
    pub fn end(self) -> BTreeMap<&'static str, u64> {
        self.server.shutdown(Duration::from_secs(1));
        self.counts
    }
}
