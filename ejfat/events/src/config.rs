//! Where events come from, and what a worker asks for.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    str::FromStr,
    time::Duration,
};

use ejfat::ring::{Filter, Geometry, WorkerName};
use naa_host::{ProviderChoice, SessionConfig};

/// The default port of bridges that are services of an accelerator, which is the port of the accelerator.
pub const DEFAULT_PORT: u16 = naa_host::DEFAULT_PORT;

/// A bridge. Its text form is `ADDRESS`, `ADDRESS:PORT` or `unix:PATH`; IPv6 addresses with a port are in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BridgeAddress {
    /// A bridge that is reached by RDMA.
    Remote(SocketAddr),
    /// A bridge on this machine, with the path of its socket.
    Local(PathBuf),
}

/// The error for a text that is not the address of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no bridge; write ADDRESS, ADDRESS:PORT ([ADDRESS]:PORT for IPv6) or unix:PATH")]
pub struct BridgeAddressError(String);

impl FromStr for BridgeAddress {
    type Err = BridgeAddressError;

    fn from_str(text: &str) -> Result<Self, BridgeAddressError> {
        let wrong = || BridgeAddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(wrong()) } else { Ok(Self::Local(path.into())) };
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let with_port = |address: IpAddr| SocketAddr::new(address, DEFAULT_PORT);
        let address = text.parse().or_else(|_| bare.parse().map(with_port)).map_err(|_| wrong())?;
        Ok(Self::Remote(address))
    }
}

impl fmt::Display for BridgeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(address) => address.fmt(f),
            Self::Local(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Settings of a [`Worker`](crate::Worker).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The geometry of the ring. The default is 64 slots of 1 MiB. An event takes adjacent slots; an event that is
    /// larger than the ring never comes.
    pub geometry: Geometry,
    /// The selection of the events that the worker gets. By default, the worker gets all events.
    pub filter: Filter,
    /// A name that the bridge shows to people. The default is empty.
    pub name: WorkerName,
    /// Whether the bridge may give this worker events that another worker had when it ended. The default is no: this worker gets
    /// each event at most once. Set it in every worker, also in those that may end: the bridge keeps what a worker had only if that
    /// worker set it, or if another worker that set it is subscribed when the first one ends.
    /// [`Event::delivered_again`](crate::Event::delivered_again) says which events may have been used before, so the program has
    /// to read it. A bridge that does not know this option refuses
    /// ([`SubscribeRefusal::Version`](crate::SubscribeRefusal)).
    pub again: bool,
    /// Settings of the connection: how to wait, and how soon a dead bridge is noticed. The time limit of setting it up
    /// and the wait mode also apply to a bridge on the same machine.
    pub session: SessionConfig,
    /// The local address of the connection. If `local` is `None`, the address is that of `NAA_LOCAL_IP`. If `NAA_LOCAL_IP`
    /// is not set either, the address is the source address of the route to the bridge.
    pub local: Option<IpAddr>,
    /// The provider of the RDMA device. If `provider` is `None`, `NAA_PROVIDER` names the provider. If `NAA_PROVIDER` is
    /// not set either, the local address decides the provider.
    pub provider: Option<ProviderChoice>,
    /// The time for which the worker tries to connect again after the bridge has ended, 30 s by default. If `reconnect` is
    /// `None`, the worker does not try to connect again.
    pub reconnect: Option<Duration>,
}

/// The default acknowledgement timeout in [`SessionConfig`], 2.1 s. It is half of a call's, because events are lost
/// while the worker does not look for the bridge.
const ACK_TIMEOUT: u8 = 16;

impl Default for Config {
    fn default() -> Self {
        Self {
            geometry: Geometry::new(64, 1 << 20).expect("a ring of 64 MiB can be"),
            filter: Filter::default(),
            name: WorkerName::default(),
            again: false,
            session: SessionConfig { ack_timeout: ACK_TIMEOUT, ..SessionConfig::default() },
            local: None,
            provider: None,
            reconnect: Some(Duration::from_secs(30)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_read_as_written() {
        for (text, written) in [
            ("192.0.2.7", "192.0.2.7:12345"),
            ("192.0.2.7:9", "192.0.2.7:9"),
            ("::1", "[::1]:12345"),
            ("[::1]", "[::1]:12345"),
            ("[::1]:9", "[::1]:9"),
            ("unix:/run/bridge", "unix:/run/bridge"),
        ] {
            let address: BridgeAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
        for text in ["", "host", "unix:", "192.0.2.7:", "192.0.2.7:65536", "1:2"] {
            assert!(text.parse::<BridgeAddress>().is_err(), "{text}");
        }
    }
}
