//! Tells how to start a bridge, for commands that found none.

use std::net::SocketAddr;

use anyhow::anyhow;
use mrsp::ReturnCode;
use naa_host::{Error, Party};
use verbs::RejectReason;

use crate::exit::host_error;

/// Adds how to start a bridge to an error if nothing answered or the server has no bridge. Other errors stay as they are.
pub(crate) fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.chain().find_map(host_error) {
        Some(&Error::ConnectionRefused { peer, reason: RejectReason::INVALID_SERVICE_ID, said: None }) => {
            anyhow!("{}; {}, or correct the address", nobody_at(peer), start(peer))
        }
        Some(Error::NoneReached { name, tried }) => match absent_everywhere(tried) {
            Some(peer) => {
                let start = start(peer);
                anyhow!("no bridge answers at {name}; {start}, or correct the name: {}", each(tried))
            }
            None => error,
        },
        Some(&Error::Unreachable { peer, .. }) => {
            error.context(format!("no bridge answers at {peer}; {}, or correct the address", start(peer)))
        }
        Some(&Error::Function { peer, code: ReturnCode::UNKNOWN_FUNCTION, .. }) => {
            anyhow!(
                "the server at {peer} has no bridge; end it and {}, or give the address of a bridge",
                start(peer)
            )
        }
        _ => error,
    }
}

/// The first of a name's addresses at which nothing answers. `None` if there is none, or if an accelerator answers at
/// another address.
fn absent_everywhere(tried: &[(SocketAddr, Error)]) -> Option<SocketAddr> {
    let is_absent =
        |(_, error): &&(SocketAddr, Error)| is_nobody(error) || matches!(error, Error::Unreachable { .. });
    let answers = tried.iter().any(|of| !is_absent(&of) && of.1.party() == Party::Accelerator);
    tried.iter().find(is_absent).filter(|_| !answers).map(|(peer, _)| *peer)
}

/// Whether no program listens at the port.
fn is_nobody(error: &Error) -> bool {
    matches!(error, Error::ConnectionRefused { reason: RejectReason::INVALID_SERVICE_ID, said: None, .. })
}

fn nobody_at(peer: SocketAddr) -> String {
    format!("no program serves at {peer}")
}

/// Why each address cannot be used, without the advice to start a server, because that would have no bridge.
fn each(tried: &[(SocketAddr, Error)]) -> String {
    let why = |(peer, error): &(SocketAddr, Error)| {
        let (at, text) = (peer.to_string(), error.to_string());
        match error {
            error if is_nobody(error) => nobody_at(*peer),
            _ if text.starts_with(&at) => text,
            _ => format!("{at}: {text}"),
        }
    };
    tried.iter().map(why).collect::<Vec<_>>().join("; ")
}

/// The command that starts a bridge. Segments usually come to the address at which workers connect.
fn start(peer: SocketAddr) -> String {
    let (ip, port) = (peer.ip(), peer.port());
    let listen = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let port = if port == naa_server::DEFAULT_PORT { String::new() } else { format!(" --port {port}") };
    format!("start one there with `naa bridge --listen {listen} --bind {ip}{port}`")
}

#[cfg(test)]
mod tests {
    use naa_services::HostError;
    use verbs::Unreachable;

    use super::*;

    #[test]
    fn an_address_where_nothing_answers_gets_a_bridge() {
        for (peer, command) in [
            ("10.9.0.2:12345", "naa bridge --listen 10.9.0.2 --bind 10.9.0.2`"),
            ("[fd00:9::2]:7000", "naa bridge --listen [fd00:9::2] --bind fd00:9::2 --port 7000`"),
        ] {
            let (peer, device) = (peer.parse().unwrap(), "lo".to_owned());
            let error = Error::Unreachable { peer, why: Unreachable::NoAnswer, device };
            let said = format!("{:#}", explained(HostError::Session(error).into()));
            assert!(said.contains(command) && said.contains("nothing answers"), "{said}");
        }
    }

    #[test]
    fn a_name_with_several_addresses_gets_a_bridge_too() {
        let [first, second] = ["[::1]:7000", "127.0.0.1:7000"].map(|at| at.parse().unwrap());
        let refused = |peer| {
            let reason = RejectReason::INVALID_SERVICE_ID;
            (peer, Error::ConnectionRefused { peer, reason, said: None })
        };
        let silent = Error::Unreachable { peer: second, why: Unreachable::NoAnswer, device: "lo".into() };
        for last in [refused(second), (second, silent)] {
            let error = Error::NoneReached { name: "localhost".into(), tried: vec![refused(first), last] };
            let said = format!("{:#}", explained(error.into()));
            assert!(said.contains("naa bridge --listen [::1] --bind ::1 --port 7000`"), "{said}");
            assert!(said.contains("localhost") && said.contains("127.0.0.1:7000"), "{said}");
            assert!(!said.contains("naa serve"), "{said}");
        }
        let gone = Error::PeerGone { peer: second, why: naa_host::Gone::Disconnected, function: None };
        let error =
            Error::NoneReached { name: "localhost".into(), tried: vec![refused(first), (second, gone)] };
        let said = error.to_string();
        assert_eq!(explained(error.into()).to_string(), said, "something answers");
        let alone = format!("{:#}", explained(refused(first).1.into()));
        assert!(alone.contains("naa bridge --listen [::1] --bind ::1 --port 7000`"), "{alone}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let peer = "10.9.0.2:12345".parse().unwrap();
        let error = Error::PeerGone { peer, why: naa_host::Gone::Silent, function: None };
        let said = error.to_string();
        assert_eq!(explained(HostError::Session(error).into()).to_string(), said);
    }
}
