//! The local address from which packets to a peer leave.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use roce_udp::ROCE_PORT;
use verbs::Error;

/// Returns the local address from which packets to `peer` leave, according to the routing table. The function sends no
/// packet.
///
/// If the peer is on the loopback network, the result is usually 127.0.0.1 or `::1`. The result can be the peer's own
/// address if an interface of this machine has this address.
///
/// # Errors
/// Fails with [`Error::NoDevice`] if no route leads to the peer.
pub fn source_for(peer: IpAddr) -> Result<IpAddr, Error> {
    let any = match peer {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let probe = || {
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        // Connecting a datagram socket only looks up the route to the peer, and sends no packet.
        socket.connect(SocketAddr::new(peer, ROCE_PORT))?;
        socket.local_addr()
    };
    match probe() {
        Ok(local) => Ok(local.ip()),
        Err(e) => {
            Err(Error::NoDevice(format!("no route leads to {peer} ({e}); `ip route get {peer}` shows why")))
        }
    }
}
