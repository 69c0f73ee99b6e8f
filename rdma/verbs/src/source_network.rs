//! Source networks, among which a server's resources are divided.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// The length in bits of the network prefix that identifies the source network of an IPv6 address. All addresses of a
/// /64 network are one source network, because sites give a whole /64 network to one machine.
const IPV6_BITS: u32 = 64;

/// A source network: an IPv4 address, or the /64 network of an IPv6 address. All connections from one source network
/// share the part of a server's resources that the source network may have. The link-local addresses of all neighbours
/// are one source network, because a machine can give itself any number of link-local addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceNetwork(IpAddr);

impl From<IpAddr> for SourceNetwork {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() & (u128::MAX << (128 - IPV6_BITS));
                Ipv6Addr::from_bits(network).into()
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

impl fmt::Display for SourceNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(address) => address.fmt(f),
            IpAddr::V6(network) => write!(f, "{network}/{IPV6_BITS}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(address: &str) -> SourceNetwork {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn an_ipv6_peer_is_a_network_and_an_ipv4_peer_an_address() {
        assert_eq!(network("fd00:9::1"), network("fd00:9::ffff:2"));
        assert_ne!(network("fd00:9::1"), network("fd00:9:0:1::1"));
        assert_ne!(network("10.9.0.1"), network("10.9.0.2"));
        assert_eq!(network("::ffff:10.9.0.1"), network("10.9.0.1"));
        assert_eq!(
            (network("10.9.0.1").to_string(), network("fd00:9::1").to_string()),
            ("10.9.0.1".into(), "fd00:9::/64".into())
        );
    }
}
