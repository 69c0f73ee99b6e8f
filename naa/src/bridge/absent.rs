//! Where no bridge runs: how to start one.

use std::net::SocketAddr;

use anyhow::anyhow;
use mrsp::ReturnCode;
use naa_host::Error;
use naa_services::HostError;
use verbs::RejectReason;

/// An error of a command that wants a bridge. Where nothing answers, or a server without a bridge, it says how to start one.
pub(crate) fn explained(error: anyhow::Error) -> anyhow::Error {
    match of_host(&error) {
        Some(&Error::ConnectionRefused { peer, reason: RejectReason::INVALID_SERVICE_ID, said: None }) => {
            anyhow!("no program serves at {peer}; {}, or correct the address", start(peer))
        }
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

/// Those of calls and of subscriptions stand for it, so it is not among their causes.
fn of_host(error: &anyhow::Error) -> Option<&Error> {
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(HostError::Session(error)), _) | (_, Some(naa_events::Error::Session(error))) => Some(error),
        _ => None,
    }
}

/// Segments usually come to the address at which workers connect.
fn start(peer: SocketAddr) -> String {
    let (ip, port) = (peer.ip(), peer.port());
    let listen = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let port = if port == naa_server::DEFAULT_PORT { String::new() } else { format!(" --port {port}") };
    format!("start one there with `naa bridge --listen {listen} --bind {ip}{port}`")
}

#[cfg(test)]
mod tests {
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
    fn other_errors_stay_as_they_are() {
        let peer = "10.9.0.2:12345".parse().unwrap();
        let error = Error::PeerGone { peer, why: naa_host::Gone::Silent, function: None };
        let said = error.to_string();
        assert_eq!(explained(HostError::Session(error).into()).to_string(), said);
    }
}
