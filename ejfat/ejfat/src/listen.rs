//! The addresses and UDP ports at which segments are received, as users write them on command lines.
//!
//! ```text
//! ADDR             both customary ports; each must be free
//! ADDR:PORT        that port, which must be free; 0: any
//! ADDR[:PORT], N   N ports from PORT, or 19522, on: the first must be free, others that are not are skipped
//! ADDR, A-B        the ports from A to B that are free
//! ```

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use crate::wire::DATA_PORTS;

/// One UDP port, or a range of UDP ports, at which segments are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// One port, which must be free. If the port is 0, the operating system chooses a free port.
    Port(SocketAddr),
    /// All free ports from the first to the last port.
    Range {
        /// The IP address at which segments are received.
        ip: IpAddr,
        /// The lowest port of the range.
        first: u16,
        /// The highest port of the range.
        last: u16,
    },
}

/// A user's choice of the UDP ports at which segments are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// The number of requested ports. The first port is the port of the address. If the address has no port, the first
    /// port is the first default port of [`DATA_PORTS`], which is 19522. If the port of the address is 0, the operating
    /// system chooses all ports.
    Count(u16),
    /// All ports from the first to the last port.
    Range {
        /// The lowest port of the range.
        first: u16,
        /// The highest port of the range.
        last: u16,
    },
}

/// The maximum number of UDP ports that a user can choose for one address. A data plane accepts packets to the same
/// number of UDP ports, which are the ports 16384 to 32767.
pub const MOST_PORTS: u16 = 16_384;

/// The reason why a text is not a valid address or choice of ports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenError {
    /// The text is not an IP address with or without a port.
    #[error("{0:?} is no IP address, with or without a port")]
    Address(String),
    /// The text is an IPv6 address with a port and without brackets.
    #[error(
        "{text:?} is no IP address with a port: put brackets around the IPv6 address, as in [{ip}]:{port}"
    )]
    Brackets {
        /// The text that is not a valid address.
        text: String,
        /// The IPv6 address with which `text` begins.
        ip: String,
        /// The UDP port with which `text` ends.
        port: u16,
    },
    /// The text is neither a number of ports from 1 to [`MOST_PORTS`] nor a range of at most [`MOST_PORTS`] ports.
    #[error(
        "write how many ports, from 1 to {MOST_PORTS}, or the first and the last one, such as 16384-16399"
    )]
    Ports,
    /// The address has a port, although a range of ports was given, too.
    #[error("{text} has a port, and so has the range {first}-{last}; write one of both")]
    Both {
        /// The text of the address with its port.
        text: String,
        /// The lowest port of the range.
        first: u16,
        /// The highest port of the range.
        last: u16,
    },
    /// The last port would be above 65535.
    #[error("there are no {count} ports from {first} on; the last one is 65535")]
    Beyond {
        /// The first requested port.
        first: u16,
        /// The number of requested ports.
        count: u16,
    },
}

impl FromStr for PortChoice {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        let number = |text: &str| text.trim().parse::<u16>().ok().filter(|&port| port > 0);
        let choice = match text.split_once('-') {
            None => number(text).map(Self::Count).filter(|_| number(text) <= Some(MOST_PORTS)),
            Some((first, last)) => number(first).zip(number(last)).and_then(|(first, last)| {
                let count = last.checked_sub(first)?;
                (count < MOST_PORTS).then_some(Self::Range { first, last })
            }),
        };
        choice.ok_or(ListenError::Ports)
    }
}

impl fmt::Display for PortChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Range { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// Parses an IP address with or without brackets, and with or without a port.
///
/// # Errors
/// Fails with [`ListenError::Brackets`] if the text is an IPv6 address with a port and without brackets. Fails with
/// [`ListenError::Address`] for every other text that is not an address.
pub fn ip_and_port(text: &str) -> Result<(IpAddr, Option<u16>), ListenError> {
    if let Ok(at) = text.parse::<SocketAddr>() {
        return Ok((at.ip(), Some(at.port())));
    }
    if let Ok(ip) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text).parse() {
        return Ok((ip, None));
    }
    Err(without_brackets(text).unwrap_or_else(|| ListenError::Address(text.to_owned())))
}

/// Recognises an IPv6 address with a port but without brackets, such as `fd00::1:16384`. The returned error shows the
/// address with brackets, which is the correct spelling. A port of at most four digits can also be the last group of an
/// IPv6 address. The text `fd00::1:9100`, for example, is a valid address without a port, so the caller does not pass
/// it to this function.
fn without_brackets(text: &str) -> Option<ListenError> {
    let (ip, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let ip: std::net::Ipv6Addr = ip.parse().ok()?;
    Some(ListenError::Brackets { text: text.to_owned(), ip: ip.to_string(), port })
}

/// Returns the UDP ports at which segments are received. `text` is an address with or without a port, and `ports` is an
/// optional choice of ports.
///
/// # Errors
/// Fails with the errors of [`ip_and_port`]. Fails with [`ListenError::Both`] if `text` has a port and `ports` is a
/// range. Fails with [`ListenError::Beyond`] if the last port would be above 65535.
pub fn listen(text: &str, ports: Option<PortChoice>) -> Result<Vec<Listen>, ListenError> {
    let (ip, port) = ip_and_port(text)?;
    match (ports, port) {
        (None, None) => Ok(DATA_PORTS.map(|port| Listen::Port(SocketAddr::new(ip, port))).to_vec()),
        (None, Some(port)) => Ok(vec![Listen::Port(SocketAddr::new(ip, port))]),
        (Some(PortChoice::Range { first, last }), None) => Ok(vec![Listen::Range { ip, first, last }]),
        (Some(PortChoice::Range { first, last }), Some(_)) => {
            Err(ListenError::Both { text: text.to_owned(), first, last })
        }
        (Some(PortChoice::Count(count)), Some(0)) => {
            Ok(vec![Listen::Port(SocketAddr::new(ip, 0)); count.into()])
        }
        (Some(PortChoice::Count(count)), port) => {
            let first = port.unwrap_or(DATA_PORTS[0]);
            let last = first.checked_add(count - 1).ok_or(ListenError::Beyond { first, count })?;
            let rest = (count > 1).then(|| Listen::Range { ip, first: first + 1, last });
            Ok([Listen::Port(SocketAddr::new(ip, first))].into_iter().chain(rest).collect())
        }
    }
}

/// Calls `bind` for each port. If `bind` fails for a port of a range and `is_busy` returns true for the error of
/// `bind`, the port is in use and is skipped. Returns the results of the successful calls of `bind`, and the addresses
/// of the skipped ports.
///
/// # Errors
/// If `bind` fails for a [`Listen::Port`], the error of `bind` is returned. If `bind` fails for all ports of a range,
/// the last error of `bind` is returned. An error of `bind` for which `is_busy` returns false is returned at once.
pub fn bind_all<T, E>(
    listen: &[Listen],
    mut bind: impl FnMut(SocketAddr) -> Result<T, E>,
    is_busy: impl Fn(&E) -> bool,
) -> Result<(Vec<T>, Vec<SocketAddr>), E> {
    let (mut bound, mut skipped) = (Vec::new(), Vec::new());
    for listen in listen {
        match *listen {
            Listen::Port(at) => bound.push(bind(at)?),
            Listen::Range { ip, first, last } => {
                let (before, mut busy) = (bound.len(), None);
                for at in (first..=last).map(|port| SocketAddr::new(ip, port)) {
                    match bind(at) {
                        Ok(port) => bound.push(port),
                        Err(error) if is_busy(&error) => {
                            busy = Some(error);
                            skipped.push(at);
                        }
                        Err(error) => return Err(error),
                    }
                }
                if let Some(error) = busy.filter(|_| bound.len() == before) {
                    return Err(error);
                }
            }
        }
    }
    Ok((bound, skipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Listen {
        Listen::Port(text.parse().unwrap())
    }

    #[test]
    fn an_address_alone_has_both_customary_ports() {
        assert_eq!(listen("10.0.0.1", None), Ok(vec![at("10.0.0.1:19522"), at("10.0.0.1:16384")]));
        assert_eq!(listen("fd00::1", None), Ok(vec![at("[fd00::1]:19522"), at("[fd00::1]:16384")]));
        assert_eq!(listen("[fd00::1]:9", None), Ok(vec![at("[fd00::1]:9")]));
    }

    #[test]
    fn ports_are_a_number_or_a_range() {
        let ip = "10.0.0.1".parse().unwrap();
        let choice = |text: &str| Some(text.parse::<PortChoice>().unwrap());
        let range = |first, last| Listen::Range { ip, first, last };
        assert_eq!(listen("10.0.0.1:100", choice("4")), Ok(vec![at("10.0.0.1:100"), range(101, 103)]));
        assert_eq!(listen("10.0.0.1", choice("2")), Ok(vec![at("10.0.0.1:19522"), range(19523, 19523)]));
        assert_eq!(listen("10.0.0.1", choice("16384-32767")), Ok(vec![range(16384, 32767)]));
        assert_eq!(listen("10.0.0.1:0", choice("2")), Ok(vec![at("10.0.0.1:0"); 2]));
        for wrong in ["0", "16385", "2-1", "1-16385", "-", "1-", "a", "", "0-5"] {
            assert_eq!(wrong.parse::<PortChoice>(), Err(ListenError::Ports), "{wrong}");
        }
        assert!(matches!(listen("10.0.0.1:7", choice("7-8")), Err(ListenError::Both { .. })));
        assert!(matches!(listen("10.0.0.1:65535", choice("2")), Err(ListenError::Beyond { .. })));
        assert_eq!(listen("10.0.0.1:65535", choice("1")), Ok(vec![at("10.0.0.1:65535")]));
    }

    #[test]
    fn an_ipv6_address_with_a_port_and_no_brackets_is_told_where_they_go() {
        let wrong = listen("fd00::1:16384", None).unwrap_err().to_string();
        assert!(wrong.contains("[fd00::1]:16384"), "{wrong}");
        assert!(matches!(listen("10.0.0.300", None), Err(ListenError::Address(_))));
    }

    #[test]
    fn busy_ports_of_ranges_are_skipped_and_others_are_errors() {
        let ip = "10.0.0.1".parse().unwrap();
        let bind = |at: SocketAddr| if at.port().is_multiple_of(2) { Ok(at.port()) } else { Err("busy") };
        let range = |first, last| Listen::Range { ip, first, last };
        let (bound, skipped) = bind_all(&[at("10.0.0.1:2"), range(3, 6)], bind, |_| true).unwrap();
        assert_eq!((bound, skipped.len()), (vec![2, 4, 6], 2));
        assert_eq!(bind_all(&[at("10.0.0.1:1")], bind, |_| true), Err("busy"));
        assert_eq!(bind_all(&[range(3, 3)], bind, |_| true), Err("busy"));
        assert_eq!(bind_all(&[range(3, 6)], bind, |_| false), Err("busy"), "of another kind");
    }
}
