//! The configuration of a site, in YAML.
//!
//! Everything may be left out: then there are four load balancers on loopback with a data plane in this process.

mod values;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use ejfat_control::{
    config::{AddressPolicy, Config, LivenessTimes, LoadBalancerConfig},
    control::Options,
    plane::PlaneId,
};
use naa_grpc::{ClientTls, Credentials, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

pub use values::{Length, MacAddress, PortRange, Stay};

use crate::planes::{Link, PlaneAddress};

/// Where gRPC is served, unless told otherwise.
pub const GRPC_PORT: u16 = 19_523;
/// The sync port of the first load balancer, unless told otherwise; those of others follow.
pub const SYNC_PORT: u16 = 19_531;
/// The load balancers that there are if none is configured.
const LOCAL_LBS: u8 = 4;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("cannot read {}: {source}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// With the line, where the text is not what it should be.
    #[error("{}: {why}", .path.display())]
    Text { path: PathBuf, why: String },
    #[error("{field}: {why}")]
    Value { field: String, why: String },
}

fn value(field: impl Into<String>, why: impl ToString) -> SettingsError {
    SettingsError::Value { field: field.into(), why: why.to_string() }
}

/// A site's control plane.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where gRPC is served: addresses with ports. 127.0.0.1:19523 unless told.
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// Where clients find the control plane, HOST or HOST:PORT, for the URIs that it makes: the first of `listen` unless told.
    pub public: Option<String>,
    /// Serve gRPC over TLS 1.3 only.
    pub tls: Option<TlsFiles>,
    /// The file with the admin token. Made with a random token if there is none; `admin-token` in the state folder unless told.
    pub admin_token_file: Option<PathBuf>,
    /// The file with what must not be lost; `control.db` in the state folder unless told.
    pub store: Option<PathBuf>,
    /// Serve /metrics, /healthz and /readyz over HTTP at this address.
    #[schemars(with = "Option<String>")]
    pub metrics: Option<SocketAddr>,
    /// Append each change, with who made it, to this file as a line of JSON.
    pub audit: Option<PathBuf>,
    /// What can be reserved.
    pub load_balancers: Vec<LoadBalancerSettings>,
    /// What forwards packets: the data plane of this process unless told.
    pub planes: Vec<PlaneSettings>,
    /// Slots of a calendar, a power of two; 512 unless told.
    pub slots: Option<u32>,
    /// How long a reservation lasts whose request names no end, such as 365d, or never; 365d unless told.
    pub default_stay: Option<Stay>,
    /// Which addresses workers may register.
    pub workers: WorkerSettings,
    /// When workers count as silent, and when their sessions end.
    pub liveness: LivenessSettings,
    /// How many of everything there may be.
    pub limits: LimitSettings,
    /// So many times the highest rate known, events may come while an epoch is installed, and none is split; 2 unless told.
    pub rate_factor: Option<f64>,
}

/// Files of certificates, as PEM.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// CAs of clients: clients without a certificate of one of these are refused.
    pub client_ca: Option<PathBuf>,
}

/// A load balancer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadBalancerSettings {
    /// Where senders send segments: at least one of both.
    #[schemars(with = "Option<String>")]
    pub ipv4: Option<Ipv4Addr>,
    #[schemars(with = "Option<String>")]
    pub ipv6: Option<Ipv6Addr>,
    /// The ports of segments, such as 19522 or 16384-32767; 19522 unless told.
    pub ports: Option<PortRange>,
    /// Where senders send syncs: the first addresses of `listen` unless told.
    #[schemars(with = "Option<String>")]
    pub sync_ipv4: Option<Ipv4Addr>,
    #[schemars(with = "Option<String>")]
    pub sync_ipv6: Option<Ipv6Addr>,
    /// 19531 for the first load balancer, and so on, unless told.
    pub sync_port: Option<u16>,
}

/// A data plane.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum PlaneSettings {
    /// In this process, on ordinary UDP sockets.
    Local {},
    /// `naa lb forward` on another host, over `naa.lb.v1`.
    Naa {
        /// HOST:PORT
        address: String,
        token_file: Option<PathBuf>,
        tls: Option<ClientFiles>,
    },
    /// ESnet's SmartNIC, over `sn_p4.v2`.
    Smartnic {
        /// HOST:PORT
        address: String,
        token_file: Option<PathBuf>,
        tls: Option<ClientFiles>,
        /// The MAC address of its port.
        mac: MacAddress,
        /// The MAC address of the next hop on the way to workers.
        next_hop: MacAddress,
    },
}

/// What a client of a data plane trusts and shows.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFiles {
    /// CAs, as PEM; those of the system unless told.
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// Which addresses workers may register.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// Loopback addresses: yes if all of `listen` are, unless told.
    pub loopback: Option<bool>,
    /// Addresses that are routed within a site only: yes unless told.
    pub private: Option<bool>,
    /// Only the address from which the call comes: no unless told.
    pub own_only: Option<bool>,
}

/// Times by the control plane's own clock, such as 10s or 500ms.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LivenessSettings {
    /// From registration to the first state; 10s unless told.
    pub first_state: Option<Length>,
    /// Without a state for so long a worker gets no new events; 2s unless told.
    pub silent: Option<Length>,
    /// Without a state for so long a session ends; 60s unless told.
    pub ended: Option<Length>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Senders of one IP version, of all load balancers together; 256 unless told.
    pub senders: Option<usize>,
    /// Worker sessions of all load balancers together; 1024 unless told.
    pub workers: Option<u16>,
    /// Tokens that were made by CreateToken; 1024 unless told.
    pub tokens: Option<usize>,
    /// Entries of the audit log in the store; 10000 unless told.
    pub audit: Option<usize>,
    /// Connections over gRPC at a time; 1024 unless told.
    pub connections: Option<usize>,
}

impl Settings {
    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, or is none; with the line.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|why| SettingsError::Text { path: path.to_owned(), why })
    }

    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_yaml_ng::from_str(text).map_err(|why| why.to_string())
    }

    /// The JSON schema of a configuration.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    pub fn listen(&self) -> Vec<SocketAddr> {
        if self.listen.is_empty() {
            return vec![(Ipv4Addr::LOCALHOST, GRPC_PORT).into()];
        }
        self.listen.clone()
    }

    fn is_loopback(&self) -> bool {
        self.listen().iter().all(|at| at.ip().is_loopback())
    }

    fn first_v4(&self) -> Option<Ipv4Addr> {
        self.listen().iter().find_map(|at| match at.ip() {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        })
    }

    fn first_v6(&self) -> Option<Ipv6Addr> {
        self.listen().iter().find_map(|at| match at.ip() {
            IpAddr::V6(ip) => Some(ip),
            IpAddr::V4(_) => None,
        })
    }

    fn load_balancers(&self) -> Vec<LoadBalancerSettings> {
        if !self.load_balancers.is_empty() {
            return self.load_balancers.clone();
        }
        let local = |n| LoadBalancerSettings {
            ipv4: Some(Ipv4Addr::new(127, 0, 0, 1 + n)),
            ipv6: (n == 0).then_some(Ipv6Addr::LOCALHOST),
            ..LoadBalancerSettings::default()
        };
        (0..LOCAL_LBS).map(local).collect()
    }

    /// What the control plane decides by.
    pub fn config(&self) -> Config {
        let standard = Config::default();
        let lb = |(at, of): (usize, LoadBalancerSettings)| LoadBalancerConfig {
            data_v4: of.ipv4,
            data_v6: of.ipv6,
            data_ports: of.ports.map_or(ejfat::wire::DATA_PORT..=ejfat::wire::DATA_PORT, |ports| ports.0),
            sync_v4: of.sync_ipv4.or(self.first_v4()),
            sync_v6: of.sync_ipv6.or(self.first_v6()),
            sync_port: of.sync_port.unwrap_or(SYNC_PORT.saturating_add(at as u16)),
        };
        let policy = AddressPolicy::default();
        let times = LivenessTimes::default();
        Config {
            load_balancers: self.load_balancers().into_iter().enumerate().map(lb).collect(),
            default_stay: self.default_stay.map_or(standard.default_stay, |stay| stay.0),
            slots: self.slots.unwrap_or(standard.slots),
            most_senders: self.limits.senders.unwrap_or(standard.most_senders),
            most_members: self.limits.workers.unwrap_or(standard.most_members),
            most_tokens: self.limits.tokens.unwrap_or(standard.most_tokens),
            most_audit: self.limits.audit.unwrap_or(standard.most_audit),
            addresses: AddressPolicy {
                loopback: self.workers.loopback.unwrap_or_else(|| self.is_loopback()),
                private: self.workers.private.unwrap_or(policy.private),
                own_only: self.workers.own_only.unwrap_or(policy.own_only),
            },
            liveness: LivenessTimes {
                first_state: self.liveness.first_state.map_or(times.first_state, |length| length.0),
                silent: self.liveness.silent.map_or(times.silent, |length| length.0),
                ended: self.liveness.ended.map_or(times.ended, |length| length.0),
                ..times
            },
            ..standard
        }
    }

    pub fn options(&self) -> Result<Options, SettingsError> {
        let mut options = Options::default();
        if let Some(factor) = self.rate_factor {
            if !(1.0..=100.0).contains(&factor) {
                return Err(value("rate_factor", format!("{factor} is not from 1 to 100")));
            }
            options.margins.rate_factor = factor;
        }
        Ok(options)
    }

    /// The data planes. `local` is the one of this process, if one is wanted.
    ///
    /// # Errors
    /// If a file of theirs cannot be used.
    pub fn planes(
        &self,
        local: impl Fn() -> PlaneAddress,
    ) -> Result<BTreeMap<PlaneId, PlaneAddress>, SettingsError> {
        let of = |(at, of): (usize, &PlaneSettings)| {
            let wrong = |why: String| value(format!("planes[{at}]"), why);
            let address = match of {
                PlaneSettings::Local {} => local(),
                PlaneSettings::Naa { address, token_file, tls } => PlaneAddress::Staged {
                    address: address.clone(),
                    credentials: credentials(token_file.as_deref(), tls.as_ref()).map_err(wrong)?,
                },
                PlaneSettings::Smartnic { address, token_file, tls, mac, next_hop } => {
                    PlaneAddress::SmartNic {
                        address: address.clone(),
                        credentials: credentials(token_file.as_deref(), tls.as_ref()).map_err(wrong)?,
                        link: Link { mac: mac.0, next_hop: next_hop.0, addresses: self.data_addresses() },
                    }
                }
            };
            Ok((PlaneId(at as u16), address))
        };
        if self.planes.is_empty() {
            return Ok(BTreeMap::from([(PlaneId(0), local())]));
        }
        self.planes.iter().enumerate().map(of).collect()
    }

    /// Whether a data plane runs in this process.
    pub fn has_local_plane(&self) -> bool {
        self.planes.is_empty() || self.planes.iter().any(|plane| matches!(plane, PlaneSettings::Local {}))
    }

    fn data_addresses(&self) -> Vec<(ejfat::lb::LbId, IpAddr)> {
        let config = self.config();
        let of = |(lb, of): (_, &LoadBalancerConfig)| {
            let v4 = of.data_v4.map(IpAddr::V4);
            v4.into_iter().chain(of.data_v6.map(IpAddr::V6)).map(move |ip| (lb, ip)).collect::<Vec<_>>()
        };
        config.load_balancers().flat_map(of).collect()
    }

    pub fn server_tls(&self) -> Option<ServerTls> {
        let of = |of: &TlsFiles| ServerTls {
            cert: of.cert.clone(),
            key: of.key.clone(),
            client_ca: of.client_ca.clone(),
        };
        self.tls.as_ref().map(of)
    }

    /// Host and port of the URIs that are made.
    ///
    /// # Errors
    /// If `public` is no host.
    pub fn public(&self) -> Result<(String, u16), SettingsError> {
        let first = self.listen()[0];
        let Some(text) = &self.public else {
            if first.ip().is_unspecified() {
                return Err(value(
                    "public",
                    "`listen` has no concrete address first; say where clients find it",
                ));
            }
            return Ok((first.ip().to_string(), first.port()));
        };
        let uri: ejfat::uri::EjfatUri = format!("ejfat://{text}/")
            .parse()
            .or_else(|_| format!("ejfat://{text}:{}/", first.port()).parse())
            .map_err(|why: ejfat::uri::UriError| value("public", why))?;
        Ok((uri.host, uri.port))
    }
}

fn credentials(token_file: Option<&Path>, tls: Option<&ClientFiles>) -> Result<Credentials, String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map(|text| text.trim().to_owned())
            .map_err(|why| format!("cannot read {}: {why}", path.display()))
    };
    let token = token_file.map(read).transpose()?;
    let tls = tls
        .map(|files| ClientTls { ca: files.ca.clone(), identity: files.cert.clone().zip(files.key.clone()) });
    Credentials::new(token.as_deref(), tls.as_ref()).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nothing_is_a_site_on_loopback() {
        for text in ["", "# nothing\n"] {
            let settings = Settings::parse(text).unwrap();
            let config = settings.config();
            assert_eq!(config.load_balancers.len(), 4);
            assert!(config.addresses.loopback && settings.has_local_plane());
            assert_eq!(settings.public().unwrap(), ("127.0.0.1".to_owned(), GRPC_PORT));
            assert!(ejfat_control::registry::Registry::new(config, "root").is_ok());
        }
    }

    #[test]
    fn a_whole_site_is_understood() {
        let settings = Settings::parse(
            "listen: ['10.0.0.1:19523', '[fd00::1]:19523']
public: lb.example.org
tls: {cert: lb.pem, key: lb.key}
load_balancers:
  - {ipv4: 10.1.0.1, ipv6: 'fd00:1::1', ports: 16384-32767}
  - {ipv4: 10.1.0.2, ports: 19522, sync_port: 20000}
planes:
  - {kind: naa, address: 'plane:18010'}
  - {kind: smartnic, address: 'nic:8440', mac: '02:00:00:00:00:01', next_hop: '02:00:00:00:00:02'}
default_stay: never
workers: {own_only: true}
liveness: {silent: 1500ms, ended: 2m}
limits: {workers: 512}
rate_factor: 3",
        )
        .unwrap();
        let config = settings.config();
        assert_eq!(settings.public().unwrap(), ("lb.example.org".to_owned(), GRPC_PORT));
        assert_eq!(config.load_balancers[0].data_ports, 16_384..=32_767);
        assert_eq!(config.load_balancers[1].sync_port, 20_000);
        assert_eq!(config.load_balancers[0].sync_v6, "fd00::1".parse().ok());
        assert_eq!((config.default_stay, config.most_members), (None, 512));
        assert_eq!(config.liveness.silent, Duration::from_millis(1500));
        assert!(!config.addresses.loopback && config.addresses.own_only && !settings.has_local_plane());
        assert_eq!(settings.planes(|| unreachable!()).unwrap().len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let error = |text: &str| Settings::parse(text).unwrap_err();
        for (text, said) in [
            ("listen: [x]", "line 1"),
            ("slots: 512\nslotz: 3", "slotz"),
            ("slots: 512\nslotz: 3", "line 2"),
            ("load_balancers:\n  - {ports: 9-1}", "9-1"),
            ("liveness:\n  silent: soon", "line 2"),
            ("planes: [{kind: magic}]", "magic"),
        ] {
            assert!(error(text).contains(said), "{text:?}: {}", error(text));
        }
    }

    #[test]
    fn the_schema_names_every_field() {
        let schema = Settings::schema().to_string();
        for field in ["listen", "rate_factor", "sync_ipv6", "next_hop", "first_state", "client_ca"] {
            assert!(schema.contains(field), "{field}");
        }
    }
}
