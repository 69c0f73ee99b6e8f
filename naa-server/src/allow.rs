//! The networks from which hosts may connect.

use std::{net::IpAddr, str::FromStr};

/// The length in bits of the prefix `::ffff:0:0/96`, which all IPv4-mapped IPv6 addresses have.
const MAPPED_BITS: u8 = 96;

/// An IP network, which is given by an address and a prefix length in bits.
///
/// A text that names a network of IPv4-mapped IPv6 addresses is parsed as the network of these IPv4 addresses:
/// `::ffff:10.0.0.0/104` becomes `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// The reason why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadNetwork {
    /// The text before `/` is not an IP address, or the text after `/` is not a valid prefix length. A prefix length is
    /// a number from 0 to 32 for IPv4, and from 0 to 128 for IPv6. The variant contains the text that was to be parsed
    /// as a network.
    #[error("{0:?} is no network; write it like 10.9.0.0/24, fd00:9::/64 or 10.9.0.7")]
    Nonsense(String),
    /// The address is an IPv4-mapped IPv6 address, and the prefix length is less than 96, so the network would also
    /// contain IPv6 addresses that are not IPv4-mapped. The variant contains the text that was to be parsed as a
    /// network.
    #[error(
        "{0:?} is wider than IPv4: at least 96 bits of a mapped address count; write it like 10.9.0.0/24"
    )]
    WiderThanMapped(String),
}

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork::Nonsense(text.into());
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let written: IpAddr = address.parse().map_err(|_| bad())?;
        let widest: u8 = if written.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(widest), |b| b.parse().map_err(|_| bad()))?;
        if bits > widest {
            return Err(bad());
        }
        let address = written.to_canonical();
        // The first 96 bits of an IPv4-mapped IPv6 address are always the same, and the last 32 bits are the IPv4
        // address. So the prefix length of the IPv4 network is the written prefix length minus 96.
        let prefix = if address == written { 0 } else { MAPPED_BITS };
        let bits = bits.checked_sub(prefix).ok_or_else(|| BadNetwork::WiderThanMapped(text.into()))?;
        Ok(Self { address, bits })
    }
}

impl Network {
    /// Returns true if the address `peer` is in the network. If `peer` is an IPv4-mapped IPv6 address, the method
    /// checks the IPv4 address that `peer` contains. An IPv4 network contains no IPv6 address, and an IPv6 network
    /// contains no IPv4 address.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                same_prefix(net.to_bits().into(), peer.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => same_prefix(net.to_bits(), peer.to_bits(), 128, self.bits),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, width: u32, bits: u8) -> bool {
    // If `bits` is 0 and `width` is 128 (IPv6), `checked_shr` returns `None` for the shift by 128 bits. The result is
    // then true, because prefixes of 0 bits are always equal. If `width` is 32 (IPv4), the shift is by at most 32 bits,
    // and `checked_shr` never returns `None`.
    (a ^ b).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

/// The networks from which hosts may connect. An empty list lets all hosts connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Network>);

impl AllowList {
    /// Returns an empty list, which lets all hosts connect.
    pub const fn everyone() -> Self {
        Self(Vec::new())
    }

    /// Returns a list that lets a host connect only if the host's address is in one of `networks`. If `networks` is
    /// empty, all hosts may connect.
    pub fn only(networks: Vec<Network>) -> Self {
        Self(networks)
    }

    /// Returns true if a host with the address `peer` may connect.
    pub fn permits(&self, peer: IpAddr) -> bool {
        self.0.is_empty() || self.0.iter().any(|network| network.contains(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_their_addresses() {
        let list = AllowList::only(vec!["10.9.0.0/24".parse().unwrap(), "fd00:9::1".parse().unwrap()]);
        for (peer, allowed) in [
            ("10.9.0.255", true),
            ("10.9.1.0", false),
            ("::ffff:10.9.0.1", true),
            ("fd00:9::1", true),
            ("fd00:9::2", false),
        ] {
            assert_eq!(list.permits(peer.parse().unwrap()), allowed, "{peer}");
        }
        assert!("0.0.0.0/0".parse::<Network>().unwrap().contains("8.8.8.8".parse().unwrap()));
        assert!(AllowList::everyone().permits("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "x/8", "::/129", "::ffff:10.0.0.0/129"] {
            assert_eq!(text.parse::<Network>(), Err(BadNetwork::Nonsense(text.into())));
        }
    }

    #[test]
    fn a_network_of_mapped_addresses_is_one_of_ipv4() {
        for (mapped, same) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.9.0.7", "10.9.0.7/32"),
            ("::ffff:10.9.0.7/128", "10.9.0.7"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(mapped.parse::<Network>(), same.parse::<Network>(), "{mapped}");
        }
        let network: Network = "::ffff:10.0.0.0/104".parse().unwrap();
        for (peer, is_inside) in
            [("10.255.0.1", true), ("::ffff:10.1.2.3", true), ("11.0.0.1", false), ("::1", false)]
        {
            assert_eq!(network.contains(peer.parse().unwrap()), is_inside, "{peer}");
        }
        for wide in ["::ffff:10.0.0.0/95", "::ffff:10.0.0.0/24", "::ffff:0.0.0.0/0"] {
            assert_eq!(wide.parse::<Network>(), Err(BadNetwork::WiderThanMapped(wide.into())));
        }
    }
}
