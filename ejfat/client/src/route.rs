//! The source address of what this machine sends.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
};

/// An error: this machine has no route to an address.
#[derive(Debug, thiserror::Error)]
#[error("this machine has no route to {to}: {source}; `ip route get {to}` says which it takes")]
pub struct RouteError {
    /// The IP address to which this machine has no route.
    pub to: IpAddr,
    source: io::Error,
}

/// Returns the source address of datagrams that this machine sends to `to`. It sends nothing.
///
/// # Errors
/// If there is no route.
pub fn source_towards(to: SocketAddr) -> Result<IpAddr, RouteError> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = || {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(to)?;
        socket.local_addr()
    };
    source().map(|at| at.ip()).map_err(|source| RouteError { to: to.ip(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_loopback_it_is_loopback() {
        assert_eq!(source_towards("127.0.0.1:1".parse().unwrap()).unwrap(), Ipv4Addr::LOCALHOST);
    }
}
