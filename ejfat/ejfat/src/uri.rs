//! EJFAT URIs. An EJFAT URI contains the addresses of the control plane and of a load balancer, and a token for using
//! them.
//!
//! ```text
//! ejfat[s]://[token@]host:port/[lb/<id>][?data=<ip>[:port[-port]]][&sync=<ip>:<port>][&sessionid=<id>]
//! ```
//!
//! The scheme `ejfats` stands for TLS. Programs read the URI from the environment variable EJFAT_URI. The parser
//! accepts all forms that E2SAR and udplbd write. A data address can have a port, a range of ports or no port, and an
//! IPv6 address can be written with or without brackets. The parser also accepts several `sync` addresses, `&` instead
//! of `?`, percent-encoding, and unknown keys. All URIs are written in one form, even URIs that were parsed from
//! another accepted form.

mod percent;

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
};

use crate::wire::DATA_PORT;

/// The name of the environment variable that contains the URI.
pub const VARIABLE: &str = "EJFAT_URI";

/// The parts of an EJFAT URI.
#[derive(Clone, PartialEq, Eq)]
pub struct EjfatUri {
    /// True if the scheme is `ejfats`, which stands for TLS.
    pub tls: bool,
    /// The token of an administrator, of a reservation or of a worker session. The URI does not show the kind of the
    /// token.
    pub token: Option<String>,
    /// The host name of the control plane, or its IP address without brackets.
    pub host: String,
    /// The TCP port of the control plane.
    pub port: u16,
    /// The id of the reservation.
    pub lb_id: Option<String>,
    /// The IPv4 address to which segments are sent.
    pub data_v4: Option<DataAddress<Ipv4Addr>>,
    /// The IPv6 address to which segments are sent.
    pub data_v6: Option<DataAddress<Ipv6Addr>>,
    /// The addresses to which sync datagrams are sent.
    pub sync: Vec<SocketAddr>,
    /// The id of a worker session.
    pub session: Option<String>,
    /// The keys that this parser does not support, with their values, in the order in which they stand in the URI.
    pub other: Vec<(String, String)>,
}

/// A data address, which is an address of a load balancer to which segments are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataAddress<A> {
    /// The IP address of the load balancer.
    pub ip: A,
    /// The UDP ports of the address. A sender may use any port of this range.
    pub ports: RangeInclusive<u16>,
}

impl<A: Copy + Into<IpAddr>> DataAddress<A> {
    /// Returns the IP address together with the first of the UDP ports.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip.into(), *self.ports.start())
    }
}

/// The reason why a text is not an EJFAT URI.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// The scheme is neither `ejfat` nor `ejfats`.
    #[error("an EJFAT URI begins with ejfat:// or ejfats://")]
    Scheme,
    /// The URI has no host.
    #[error("the URI names no host; write ejfat://[token@]host:port/...")]
    Host,
    /// The text at the position of the port, which is not a valid port. The text is empty if the port is missing.
    #[error("{}; write host:port with a port of 1 to 65535", without_port(.0))]
    Port(String),
    /// The text at the position of the host is not a host name or an IP address.
    #[error("{0:?} is neither a host's name nor an address; write IPv6 addresses in brackets")]
    HostName(String),
    /// The path is not `/lb/` with the id of a reservation. The variant contains the path of the URI.
    #[error("the path {0:?} is not /lb/<id>")]
    Path(String),
    /// A percent sign is not followed by two hexadecimal digits, or the decoded bytes are not UTF-8.
    #[error("{0:?} is percent-encoded wrongly")]
    Percent(String),
    /// The value of a key is not valid.
    #[error("{key}={value:?} is no {expected}")]
    Value {
        /// The key, which is `data` or `sync`.
        key: &'static str,
        /// The value of the key, after percent-decoding.
        value: String,
        /// A description of the valid values, for the text of the error.
        expected: &'static str,
    },
    /// The URI has two different data addresses of the same IP version. The variant contains the second address.
    #[error("there are two different data addresses of one IP version, {0:?} is the second")]
    TwoData(String),
}

impl EjfatUri {
    /// Creates a URI that contains only the control plane's address.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            tls: false,
            token: None,
            host: host.into(),
            port,
            lb_id: None,
            data_v4: None,
            data_v6: None,
            sync: Vec::new(),
            session: None,
            other: Vec::new(),
        }
    }

    /// Returns the address to which segments are sent. If the URI has an IPv4 and an IPv6 address, `prefer_v6` selects
    /// the IPv6 address.
    pub fn data(&self, prefer_v6: bool) -> Option<SocketAddr> {
        let v4 = self.data_v4.as_ref().map(DataAddress::address);
        let v6 = self.data_v6.as_ref().map(DataAddress::address);
        if prefer_v6 { v6.or(v4) } else { v4.or(v6) }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), UriError> {
        match key {
            "data" => self.add_data(value)?,
            "sync" => {
                let wrong =
                    || wrong("sync", value, "IP address with a port, as 10.0.0.1:19531 or [::1]:19531");
                let (ip, ports) = address(value).ok_or_else(wrong)?;
                let ports = ports.filter(|ports| ports.start() == ports.end()).ok_or_else(wrong)?;
                let at = SocketAddr::new(ip, *ports.start());
                if !self.sync.contains(&at) {
                    self.sync.push(at);
                }
            }
            "sessionid" => self.session = Some(value.to_owned()),
            _ => self.other.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn add_data(&mut self, value: &str) -> Result<(), UriError> {
        let (ip, ports) = address(value)
            .ok_or_else(|| wrong("data", value, "IP address with or without a port or PORT-PORT"))?;
        let ports = ports.unwrap_or(DATA_PORT..=DATA_PORT);
        let new = match ip {
            IpAddr::V4(ip) => put(&mut self.data_v4, DataAddress { ip, ports }),
            IpAddr::V6(ip) => put(&mut self.data_v6, DataAddress { ip, ports }),
        };
        if new { Ok(()) } else { Err(UriError::TwoData(value.to_owned())) }
    }
}

fn without_port(text: &str) -> String {
    if text.is_empty() {
        "the port of the control plane is missing".into()
    } else {
        format!("{text:?} is no port of the control plane")
    }
}

/// Stores a data address. Returns false if a different data address is stored already.
fn put<A: Copy + PartialEq>(place: &mut Option<DataAddress<A>>, data: DataAddress<A>) -> bool {
    *place.get_or_insert_with(|| DataAddress { ip: data.ip, ports: data.ports.clone() }) == data
}

fn wrong(key: &'static str, value: &str, expected: &'static str) -> UriError {
    UriError::Value { key, value: value.to_owned(), expected }
}

/// Parses an address of the form `ip`, `ip:port`, `ip:first-last`, `[ip]`, `[ip]:port` or `[ip]:first-last`. An IPv6
/// address without brackets cannot have a port.
fn address(text: &str) -> Option<(IpAddr, Option<RangeInclusive<u16>>)> {
    if let Ok(ip) = text.parse() {
        return Some((ip, None));
    }
    let (ip, port) = match text.strip_prefix('[') {
        Some(inside) => {
            let (ip, rest) = inside.split_once(']')?;
            (IpAddr::V6(ip.parse().ok()?), rest)
        }
        None => {
            let (ip, _) = text.split_once(':')?;
            (IpAddr::V4(ip.parse().ok()?), &text[ip.len()..])
        }
    };
    let Some(ports) = port.strip_prefix(':') else {
        return port.is_empty().then_some((ip, None));
    };
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((ip, Some(first..=last)))
}

/// Parses a port number. Port 0 is refused, because no datagram can be sent to port 0.
fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && port != 0)
}

impl FromStr for EjfatUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.trim().split_once("://").ok_or(UriError::Scheme)?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "ejfat" => false,
            "ejfats" => true,
            _ => return Err(UriError::Scheme),
        };
        let authority_end = rest.find(['/', '?', '&']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(authority_end);
        // The character `#` does not begin a fragment, because a token may contain `#`.
        let (token, host) = match authority.rsplit_once('@') {
            Some((token, host)) => (Some(percent::decode(token)?).filter(|token| !token.is_empty()), host),
            None => (None, authority),
        };
        let (host, port) = host_and_port(host)?;
        let mut uri = Self { tls, token, ..Self::new(host, port) };
        // The query may begin with `&`, because E2SAR prints `/lb/1&sessionid=1`.
        let (path, query) = rest.split_at(rest.find(['?', '&']).unwrap_or(rest.len()));
        uri.lb_id = lb_id(path)?;
        for pair in query.split(['?', '&']).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            uri.set(&percent::decode(key)?, &percent::decode(value)?)?;
        }
        Ok(uri)
    }
}

/// Parses a host and a port. The text is percent-decoded first, because E2SAR encodes the brackets of an IPv6 address.
fn host_and_port(text: &str) -> Result<(String, u16), UriError> {
    let wrong = || UriError::HostName(text.to_owned());
    let decoded = percent::decode(text)?;
    let (host, port) = match decoded.strip_prefix('[') {
        Some(inside) => {
            let (host, rest) = inside.split_once(']').ok_or_else(wrong)?;
            let host: Ipv6Addr = host.parse().map_err(|_| wrong())?;
            (host.to_string(), rest.strip_prefix(':').unwrap_or_default())
        }
        None => {
            let (host, port) = decoded.rsplit_once(':').unwrap_or((&decoded, ""));
            if host.contains(['[', ']', ':']) {
                return Err(wrong());
            }
            (host.to_owned(), port)
        }
    };
    if host.is_empty() {
        return Err(UriError::Host);
    }
    Ok((host, number(port).ok_or_else(|| UriError::Port(port.to_owned()))?))
}

/// Returns the part of the path after `/lb/`, which is the id of the reservation.
fn lb_id(path: &str) -> Result<Option<String>, UriError> {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (None, ..) | (Some("lb"), None, _) => Ok(None),
        (Some("lb"), Some(id), None) => percent::decode(id).map(Some),
        _ => Err(UriError::Path(path.to_owned())),
    }
}

impl fmt::Display for EjfatUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls { "ejfats://" } else { "ejfat://" })?;
        if let Some(token) = &self.token {
            write!(f, "{}@", percent::encode(token))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}/", self.host, self.port)?;
        } else {
            write!(f, "{}:{}/", percent::encode(&self.host), self.port)?;
        }
        if let Some(id) = &self.lb_id {
            write!(f, "lb/{}", percent::encode(id))?;
        }
        let mut separator = '?';
        let mut pair = |key: &str, value: &str| {
            write!(f, "{separator}{key}={value}")?;
            separator = '&';
            Ok(())
        };
        for sync in &self.sync {
            pair("sync", &sync.to_string())?;
        }
        if let Some(DataAddress { ip, ports }) = &self.data_v4 {
            pair("data", &format!("{ip}:{}", range_text(ports)))?;
        }
        if let Some(DataAddress { ip, ports }) = &self.data_v6 {
            pair("data", &format!("[{ip}]:{}", range_text(ports)))?;
        }
        if let Some(session) = &self.session {
            pair("sessionid", &percent::encode(session))?;
        }
        self.other.iter().try_for_each(|(key, value)| pair(&percent::encode(key), &percent::encode(value)))
    }
}

fn range_text(ports: &RangeInclusive<u16>) -> String {
    let (first, last) = (ports.start(), ports.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// Shows the URI without the token, for logs.
impl fmt::Debug for EjfatUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "hidden".to_owned());
        write!(f, "EjfatUri({})", Self { token, ..self.clone() })
    }
}

#[cfg(test)]
mod tests;
