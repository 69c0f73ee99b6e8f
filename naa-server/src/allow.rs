//! The networks from which hosts may connect.

use std::{net::IpAddr, str::FromStr};

/// An address prefix: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no network; write it like 10.9.0.0/24, fd00:9::/64 or 10.9.0.7")]
pub struct BadNetwork(String);

impl FromStr for Network {
    type Err = BadNetwork;

    fn from_str(text: &str) -> Result<Self, BadNetwork> {
        let bad = || BadNetwork(text.into());
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| bad())?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(widest), |b| b.parse().map_err(|_| bad()))?;
        if bits > widest { Err(bad()) } else { Ok(Self { address, bits }) }
    }
}

impl Network {
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address.to_canonical(), peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                same_prefix(net.to_bits().into(), peer.to_bits().into(), 32, self.bits)
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => same_prefix(net.to_bits(), peer.to_bits(), 128, self.bits),
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, width: u32, bits: u8) -> bool {
    // If `bits` is 0 and `width` is 128 (IPv6), `checked_shr` returns `None` for the shift by 128 bits, and the
    // prefixes are equal. If `width` is 32 (IPv4), the shift is by at most 32 bits, and `checked_shr` never returns
    // `None`.
    (a ^ b).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

/// The networks from which hosts may connect. An empty list lets all hosts connect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Network>);

impl AllowList {
    pub const fn everyone() -> Self {
        Self(Vec::new())
    }

    pub fn only(networks: Vec<Network>) -> Self {
        Self(networks)
    }

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
        for text in ["", "10.0.0.0/33", "10.0.0/8", "x/8", "::/129"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
