//! The configuration of a site, in YAML.
//!
//! All fields may be left out. Without any, there are four load balancers on loopback addresses, with a data plane in this
//! process.

mod place;
mod values;

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    num::NonZeroU64,
    path::{Path, PathBuf},
    time::Duration,
};

use ejfat::{Time, lb::Rules};
use ejfat_control::{
    config::{AddressPolicy, Config, ConfigError, LivenessTimes, LoadBalancerConfig},
    control::{BeginError, Control, ControlConfig},
    plane::PlaneId,
    registry::RestoreError,
};
use ejfat_lb::SharedDataPlane;
use naa_grpc::{ClientTls, Credentials, ServerTls};
use schemars::JsonSchema;
use serde::Deserialize;

pub use values::{Length, MacAddress, PortRange, Stay, length};

use crate::planes::{PlaneAddress, SmartNicNetwork};

/// The TCP port on which gRPC is served if `listen` is not set.
pub const GRPC_PORT: u16 = 19_523;
/// The default sync port of the first load balancer. The next ones have the next ports.
pub const SYNC_PORT: u16 = 19_531;
/// The default time between two backups.
const BACKUPS: Duration = Duration::from_secs(3600);
/// The shortest time between two backups that may be set.
const LEAST_BACKUPS: Duration = Duration::from_secs(1);
/// The number of load balancers if none is configured.
const LOCAL_LBS: u8 = 4;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The configuration file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The path of the configuration file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The text is not a valid configuration. `why` names the line.
    #[error("{}: {why}", .path.display())]
    Text {
        /// The path of the configuration file.
        path: PathBuf,
        /// The description of the problem, with the line.
        why: String,
    },
    /// A field of the configuration has a value that is not valid.
    #[error("{place}{field}: {why}")]
    Value {
        /// The file and the line, followed by a colon and a space. Empty if the configuration was not read from a file.
        place: String,
        /// The path of the field in the configuration.
        field: String,
        /// The reason why the value is not valid.
        why: String,
    },
}

/// The configuration of a site's control plane.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The file that the configuration was read from. Errors name its lines.
    #[serde(skip)]
    file: Option<place::File>,
    /// The addresses, with ports, on which gRPC is served. Default: 127.0.0.1:19523.
    #[schemars(with = "Vec<String>")]
    pub listen: Vec<SocketAddr>,
    /// The HOST or HOST:PORT at which clients find the control plane. It is written into EJFAT URIs. Default: the first of
    /// `listen`.
    pub public: Option<String>,
    /// The certificate with which gRPC is served over TLS 1.3. Default: gRPC is served without TLS.
    pub tls: Option<TlsFiles>,
    /// The file with the admin token. If it does not exist, it is made with a random token. Default: `admin-token` in the
    /// state folder.
    pub admin_token_file: Option<PathBuf>,
    /// The file of the store. Default: `control.db` in the state folder.
    pub store: Option<PathBuf>,
    /// The address at which /metrics, /healthz and /readyz are served over HTTP. Default: they are not served.
    /// A port alone is a port of 127.0.0.1.
    #[serde(deserialize_with = "values::metrics")]
    #[schemars(with = "Option<String>")]
    pub metrics: Option<SocketAddr>,
    /// The file to which each change, and who made it, is appended as a line of JSON. Default: there is no such file.
    pub audit: Option<PathBuf>,
    /// The file to which a backup of the store is written regularly while the control plane runs. `naa lb restore` restores it.
    /// Default: no backups are written.
    pub backup: Option<PathBuf>,
    /// The time between two backups. Default: 1h.
    pub backup_every: Option<Length>,
    /// The load balancers that can be reserved.
    pub load_balancers: Vec<LoadBalancerSettings>,
    /// The data planes that forward packets. Default: one in this process.
    pub planes: Vec<PlaneSettings>,
    /// The number of slots of a calendar, a power of two. Default: 512.
    pub slots: Option<u32>,
    /// How long a reservation lasts if its request gives no end: a length of time such as 90d, or never. Default: 365d.
    pub default_stay: Option<Stay>,
    /// The addresses that workers may register.
    pub workers: WorkerSettings,
    /// The times after which a worker counts as silent, and after which its session ends.
    pub liveness: LivenessSettings,
    /// The limits of senders, workers, tokens and connections.
    pub limits: LimitSettings,
    /// How far the rate of events may rise while an epoch is installed, as a multiple of the highest known rate, without an
    /// event being split over two workers. It is 1 to 100. Default: 2.
    pub rate_factor: Option<f64>,
}

/// The files of the server's certificate and key, and of the CAs of clients, in PEM.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The file with the server's certificate, and with the certificates between it and its CA, in PEM.
    pub cert: PathBuf,
    /// The file with the private key of the certificate, in PEM.
    pub key: PathBuf,
    /// The CAs of clients. Clients without a certificate of one of these CAs are refused. Default: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

/// The configuration of a load balancer.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoadBalancerSettings {
    /// The IPv4 address to which senders send segments. One of `ipv4` and `ipv6` must be set, or both.
    #[schemars(with = "Option<String>")]
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address to which senders send segments.
    #[schemars(with = "Option<String>")]
    pub ipv6: Option<Ipv6Addr>,
    /// The UDP ports to which senders send segments, such as 19522 or 16384-32767. Default: 19522.
    pub ports: Option<PortRange>,
    /// The IPv4 address to which senders send sync datagrams. Default: the first IPv4 address of `listen`.
    #[schemars(with = "Option<String>")]
    pub sync_ipv4: Option<Ipv4Addr>,
    /// The IPv6 address to which senders send sync datagrams. Default: the first IPv6 address of `listen`.
    #[schemars(with = "Option<String>")]
    pub sync_ipv6: Option<Ipv6Addr>,
    /// The UDP port to which senders send sync datagrams. Default: 19531 for the first load balancer, 19532 for the second,
    /// and so on.
    pub sync_port: Option<u16>,
}

/// The configuration of a data plane.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, tag = "kind", rename_all = "snake_case")]
pub enum PlaneSettings {
    /// A data plane in this process, on ordinary UDP sockets.
    Local {},
    /// A data plane of `naa lb forward`, which is programmed by `naa.lb.v1`.
    Naa {
        /// The address of the data plane, as `HOST:PORT`.
        address: String,
        /// The file with the token that the data plane demands. Default: the control plane sends no token to the data
        /// plane.
        token_file: Option<PathBuf>,
        /// The files for TLS to the data plane. Default: the connection has no TLS.
        tls: Option<ClientFiles>,
    },
    /// ESnet's SmartNIC, which is programmed by `sn_p4.v2`.
    Smartnic {
        /// The address of the SmartNIC's agent, as `HOST:PORT`.
        address: String,
        /// The file with the token that the SmartNIC's agent demands. Default: the control plane sends no token to the
        /// agent.
        token_file: Option<PathBuf>,
        /// The files for TLS to the SmartNIC's agent. Default: the connection has no TLS.
        tls: Option<ClientFiles>,
        /// The MAC address of the SmartNIC's port.
        mac: MacAddress,
        /// The MAC address of the next hop on the way to workers.
        next_hop: MacAddress,
    },
}

/// The files for TLS to a data plane: the CAs to trust, and the control plane's own certificate and key.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ClientFiles {
    /// The CAs to trust, in PEM. Default: the CAs of the system.
    pub ca: Option<PathBuf>,
    /// The file with the control plane's own certificate, in PEM. If `cert` is set, `key` must be set, too.
    /// Default: the control plane sends no certificate to the data plane.
    pub cert: Option<PathBuf>,
    /// The file with the private key of the control plane's own certificate, in PEM. If `key` is set, `cert` must be
    /// set, too.
    pub key: Option<PathBuf>,
}

/// The addresses that workers may register.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerSettings {
    /// Whether workers may register loopback addresses. Default: yes if all addresses of `listen` are loopback addresses.
    pub loopback: Option<bool>,
    /// Whether workers may register addresses that are only routed within a site. Default: yes.
    pub private: Option<bool>,
    /// Whether a worker may register only the address from which its call comes. Default: no.
    pub own_only: Option<bool>,
}

/// Times of workers' states, by the control plane's own clock. A time is a number followed by ms, s, m, h or d.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LivenessSettings {
    /// The longest time from the registration of a worker to its first state. Default: 10s.
    pub first_state: Option<Length>,
    /// The time without a state after which a worker gets no new events. Default: 2s.
    pub silent: Option<Length>,
    /// The time without a state after which a worker's session ends. Default: 60s.
    pub ended: Option<Length>,
}

/// The limits of a control plane.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// The most senders of one IP version, of all load balancers together. Default: 256.
    pub senders: Option<usize>,
    /// The most worker sessions, of all load balancers together. Default: 1024. One load balancer has at most one for each of its slots.
    pub workers: Option<u16>,
    /// The most tokens that were made by CreateToken. Default: 1024.
    pub tokens: Option<usize>,
    /// The most entries of the audit log that the store keeps. Default: 10000.
    pub audit: Option<usize>,
    /// The most gRPC connections at a time, at each address of `listen`. Default: 1024.
    pub connections: Option<usize>,
}

impl Settings {
    /// Reads a configuration from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a valid configuration; the error names the line.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
        let settings = Self::parse(&text);
        let settings = settings.map_err(|why| SettingsError::Text { path: path.to_owned(), why })?;
        Ok(Self { file: Some(place::File { path: path.to_owned(), text }), ..settings })
    }

    /// Checks the configuration as far as possible without a store and without sockets: that its values fit each other, and
    /// that the files of the certificate and of data planes' credentials can be used.
    ///
    /// # Errors
    /// The first field that is wrong, with its line.
    pub fn check(&self) -> Result<(), SettingsError> {
        let mut options = self.options()?;
        let planes = self.planes(|| PlaneAddress::Local(SharedDataPlane::new(Rules::default(), 0).into()))?;
        options.planes = planes.iter().map(|(id, address)| (*id, address.kind())).collect();
        let nothing: [(Vec<u8>, Vec<u8>); 0] = [];
        let (root, first) = ("any token", NonZeroU64::MIN);
        Control::begin(self.config(), options, root, nothing, first, Time::default())
            .map_err(|why| self.value(field_of(&why), why))?;
        self.public()?;
        let certificate = self.server_tls().map(|tls| tls.load()).transpose();
        certificate.map(drop).map_err(|why| self.value("tls", why))
    }

    /// What keeps clients away that check the certificate, now or soon. `None`: nothing, or there is no certificate that can be used.
    pub fn certificate_warning(&self) -> Option<String> {
        let (tls, (host, _)) = (self.server_tls()?, self.public().ok()?);
        let warning = tls.load().ok()?.warning(&host)?;
        Some(format!("the certificate of {} {warning}", tls.cert.display()))
    }

    fn value(&self, field: impl Into<String>, why: impl ToString) -> SettingsError {
        let field = field.into();
        let place = self.file.as_ref().map(|file| file.place(&field)).unwrap_or_default();
        SettingsError::Value { place, field, why: why.to_string() }
    }

    /// Reads a configuration from a text.
    ///
    /// # Errors
    /// What is wrong in the text, and in which line.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_yaml_ng::from_str(text).map_err(|why| place::explained(text, &why.to_string()))
    }

    /// The JSON schema of a configuration.
    pub fn schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }

    /// The addresses on which gRPC is served, with the default.
    pub fn listen(&self) -> Vec<SocketAddr> {
        if self.listen.is_empty() {
            return vec![(Ipv4Addr::LOCALHOST, GRPC_PORT).into()];
        }
        self.listen.clone()
    }

    /// The file to which backups are written, and the time between two of them.
    pub fn backups(&self) -> Option<(&Path, Duration)> {
        let every = self.backup_every.map_or(BACKUPS, |every| every.0);
        self.backup.as_deref().map(|file| (file, every.max(LEAST_BACKUPS)))
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

    /// The configuration for [`ejfat_control`], with the defaults of the fields that are not set.
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

    /// The options for [`ejfat_control`].
    ///
    /// # Errors
    /// If `rate_factor` is not from 1 to 100.
    pub fn options(&self) -> Result<ControlConfig, SettingsError> {
        let mut options = ControlConfig::default();
        if let Some(factor) = self.rate_factor {
            if !(1.0..=100.0).contains(&factor) {
                return Err(self.value("rate_factor", format!("{factor} is not from 1 to 100")));
            }
            options.margins.rate_factor = factor;
        }
        Ok(options)
    }

    /// The data planes. `local` makes the address of the one in this process, and is called only if one is configured.
    ///
    /// # Errors
    /// If a file with a token or a certificate cannot be used.
    pub fn planes(
        &self,
        local: impl Fn() -> PlaneAddress,
    ) -> Result<BTreeMap<PlaneId, PlaneAddress>, SettingsError> {
        let of = |(at, of): (usize, &PlaneSettings)| {
            let wrong = |why: String| self.value(format!("planes[{at}]"), why);
            let address = match of {
                PlaneSettings::Local {} => local(),
                PlaneSettings::Naa { address, token_file, tls } => PlaneAddress::Staged {
                    address: address.clone(),
                    credentials: credentials(token_file.as_deref(), tls.as_ref()).map_err(wrong)?,
                },
                PlaneSettings::Smartnic { address, token_file, tls, mac, next_hop } => {
                    let addresses = self.data_addresses();
                    PlaneAddress::SmartNic {
                        address: address.clone(),
                        credentials: credentials(token_file.as_deref(), tls.as_ref()).map_err(wrong)?,
                        network: SmartNicNetwork { mac: mac.0, next_hop: next_hop.0, addresses },
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
        let of = |(lb, of): (_, &LoadBalancerConfig)| of.data_addresses().map(move |ip| (lb, ip));
        config.load_balancers().flat_map(of).collect()
    }

    /// The files of the server's certificate, if gRPC is served over TLS.
    pub fn server_tls(&self) -> Option<ServerTls> {
        let TlsFiles { cert, key, client_ca } = self.tls.clone()?;
        Some(ServerTls { cert, key, client_ca })
    }

    /// The host and port that are written into EJFAT URIs.
    ///
    /// # Errors
    /// If `public` is not a HOST or HOST:PORT, or is not set although the first address of `listen` stands for all addresses.
    pub fn public(&self) -> Result<(String, u16), SettingsError> {
        let first = self.listen()[0];
        let Some(text) = &self.public else {
            if first.ip().is_unspecified() {
                return Err(
                    self.value("public", "`listen` has no concrete address first; say where clients find it")
                );
            }
            return Ok((first.ip().to_string(), first.port()));
        };
        let uri: ejfat::uri::EjfatUri = format!("ejfat://{text}/")
            .parse()
            .or_else(|_| format!("ejfat://{text}:{}/", first.port()).parse())
            .map_err(|why: ejfat::uri::UriError| self.value("public", why))?;
        Ok((uri.host, uri.port))
    }
}

/// Returns the field of the configuration that an error is about.
fn field_of(why: &BeginError) -> String {
    let config = match why {
        BeginError::Config(config) | BeginError::Restore(RestoreError::Config(config)) => config,
        // A registry without records has no other errors.
        BeginError::Restore(_) => return "slots".to_owned(),
    };
    match config {
        ConfigError::NoAddress(at) | ConfigError::Ports(at) => format!("load_balancers[{at}]"),
        ConfigError::LoadBalancers(_) | ConfigError::SameAddress(_) | ConfigError::SameSync(_) => {
            "load_balancers".to_owned()
        }
        ConfigError::Slots(_) => "slots".to_owned(),
        ConfigError::Senders(_) => "limits.senders".to_owned(),
        ConfigError::Members(_) => "limits.workers".to_owned(),
        ConfigError::Changes(_) => "limits".to_owned(),
        ConfigError::SmartNic { .. } => "planes".to_owned(),
        ConfigError::NoRootToken => "admin_token_file".to_owned(),
    }
}

fn credentials(token_file: Option<&Path>, tls: Option<&ClientFiles>) -> Result<Credentials, String> {
    let read = |path: &Path| {
        let text = std::fs::read_to_string(path);
        text.map(|text| text.trim().to_owned())
            .map_err(|why| format!("cannot read {}: {why}", path.display()))
    };
    let token = token_file.map(read).transpose()?;
    let identity = |files: &ClientFiles| match (files.cert.clone(), files.key.clone()) {
        (Some(_), None) => Err("`tls` has `cert` but no `key`; set both or neither".to_owned()),
        (None, Some(_)) => Err("`tls` has `key` but no `cert`; set both or neither".to_owned()),
        (cert, key) => Ok(cert.zip(key)),
    };
    let tls =
        tls.map(|files| Ok::<_, String>(ClientTls { ca: files.ca.clone(), identity: identity(files)? }));
    let tls = tls.transpose()?;
    Credentials::new(token.as_deref(), tls.as_ref()).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests;
