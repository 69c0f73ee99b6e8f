//! Where an accelerator is.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use naa_host::DEFAULT_PORT;

use super::result::Problem;

/// The addresses that `text` stands for: "10.9.0.1", "10.9.0.1:12345", "fd00::1", "[fd00::1]:12345", "host",
/// "host:12345". The list is never empty.
pub(crate) fn resolve(text: &str) -> Result<Vec<SocketAddr>, Problem> {
    const FORMS: &str =
        "use \"10.9.0.1\", \"[fd00::1]\" or a host's name, with \":PORT\" for another port than 12345";
    let bad = |problem: &str| Problem::argument(format!("address {text:?}: {problem}; {FORMS}"));
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, DEFAULT_PORT)]);
    }
    let (host, port) = match text.rsplit_once(':') {
        None => (text, DEFAULT_PORT),
        Some((host, port)) => match port.parse() {
            Ok(port) if port > 0 => (host, port),
            _ => return Err(bad(&format!("{port:?} is no port"))),
        },
    };
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    if host.is_empty() || host.contains([':', '[', ']', ' ']) {
        return Err(bad("it cannot be read"));
    }
    let failed = |error| Problem::Name { name: host.to_owned(), error };
    let found: Vec<_> = (host, port).to_socket_addrs().map_err(failed)?.collect();
    if found.is_empty() {
        return Err(failed(std::io::Error::other("it has no address")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_read() {
        for (text, expected) in [
            ("10.9.0.1", "10.9.0.1:12345"),
            (" 10.9.0.1:7 ", "10.9.0.1:7"),
            ("fd00::1", "[fd00::1]:12345"),
            ("[fd00::1]", "[fd00::1]:12345"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            assert_eq!(resolve(text).unwrap(), [expected.parse().unwrap()], "{text}");
        }
        assert!(resolve("localhost:7").unwrap().iter().all(|address| address.port() == 7));
        for text in [
            "",
            ":",
            ":7",
            "10.9.0.1:",
            "10.9.0.1:0",
            "10.9.0.1:70000",
            "[fd00::1]7",
            "a b",
            "[::1:7",
            "[::1",
            "::1]",
        ] {
            assert!(matches!(resolve(text), Err(Problem::Argument(_))), "{text}");
        }
    }
}
