//! Caches that save time when ICRCs are computed. The packets from one address and UDP port to another often have the
//! same lengths and IP identifications. Intermediate values of the ICRCs of such packets are therefore kept and used
//! again.

use std::net::{IpAddr, SocketAddr};

use crc32fast::Hasher;

use super::{Flow, Icrc};
use crate::wire::Bth;

/// A [`Flow`] with a cache of intermediate values of ICRCs. An intermediate value covers only the bytes of a
/// packet before the BTH. The value depends only on the addresses and UDP ports of the packet, the length of
/// the datagram, and the IP identification.
#[derive(Clone, Debug)]
pub struct WarmFlow {
    flow: Flow,
    /// A direct-mapped cache of intermediate values of ICRCs. The index of an entry is the IP identification modulo
    /// [`STATES`]. An entry is a key (length of the datagram and IP identification) and the intermediate value for this key.
    states: [(u32, u32); STATES],
}

/// The number of intermediate values that are kept for each flow. The datagrams of a super-packet have the IP
/// identifications from 0 on, and roce-udp puts at most 64 datagrams into a super-packet.
const STATES: usize = 64;

/// The key of an empty entry in the cache of a [`WarmFlow`]. The upper 16 bits of a key are the length of the datagram.
/// In `NEVER`, this length is 65535. No packet has this key, because a datagram of 65535 bytes does not fit into an IP
/// packet.
const NEVER: u32 = u32::MAX;

impl WarmFlow {
    /// Makes a `WarmFlow` with an empty cache.
    pub const fn new(flow: Flow) -> Self {
        Self { flow, states: [(NEVER, 0); STATES] }
    }

    pub(super) const fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Begins the ICRC of a packet as [`Icrc::begin`] does, but uses a cached intermediate value if possible.
    pub fn begin(&mut self, ip_id: u16, datagram_len: usize, bth: &[u8; Bth::LEN]) -> Icrc {
        let key = u32::from(datagram_len as u16) << 16 | u32::from(ip_id);
        let slot = &mut self.states[usize::from(ip_id) % STATES];
        if slot.0 != key {
            *slot = (key, self.flow.before_bth(ip_id, datagram_len).finalize());
        }
        let mut hasher = Hasher::new_with_initial(slot.1);
        hasher.update(&masked(bth));
        Icrc(hasher)
    }
}

/// Returns the BTH in the form that the ICRC covers: all bits of byte 4 are set to 1. Routers can change two of these
/// bits (FECN and BECN), and the ICRC must not depend on bits that change on the way.
pub(super) fn masked(bth: &[u8; Bth::LEN]) -> [u8; Bth::LEN] {
    let mut masked = *bth;
    masked[4] = 0xff;
    masked
}

const SLOTS: usize = 32;

/// A direct-mapped cache of the [`WarmFlow`]s of recent packets. The index of a [`WarmFlow`] is computed from both UDP
/// ports and the last bytes of both IP addresses, so two peers usually have different indexes. Only the constructor
/// allocates memory.
#[derive(Clone, Debug)]
pub struct FlowCache(Box<[Option<Entry>; SLOTS]>);

#[derive(Clone, Debug)]
struct Entry {
    from: SocketAddr,
    to: SocketAddr,
    warm: WarmFlow,
}

impl Default for FlowCache {
    fn default() -> Self {
        Self(Box::new([const { None }; SLOTS]))
    }
}

impl FlowCache {
    /// Returns the flow of packets from `from` to `to`; `None` if one address is IPv4 and the other address is IPv6.
    pub fn get(&mut self, from: SocketAddr, to: SocketAddr) -> Option<&mut WarmFlow> {
        let slot = &mut self.0[slot(from, to)];
        if slot.as_ref().is_none_or(|entry| entry.from != from || entry.to != to) {
            *slot = Some(Entry { from, to, warm: WarmFlow::new(Flow::new(from, to)?) });
        }
        slot.as_mut().map(|entry| &mut entry.warm)
    }
}

fn slot(from: SocketAddr, to: SocketAddr) -> usize {
    let last = |addr: SocketAddr| match addr.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(ip) => ip.octets()[15],
    };
    (usize::from(last(from)) + usize::from(last(to)) + usize::from(from.port()) + usize::from(to.port()))
        % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icrc::compute;

    #[test]
    fn remembered_flows_give_the_same_icrc() {
        let address = |n: u8, port| SocketAddr::from(([10, 0, 0, n], port));
        let mut cache = FlowCache::default();
        for round in 0..3 {
            // There are more flows than entries in the cache, so flows replace each other in the cache.
            for n in 0..100_u8 {
                let (from, to) = (address(n, 4791), address(200, 4791 + round));
                let flow = Flow::new(from, to).unwrap();
                for (id, len) in [(0, 16), (1, 4112), (17, 4112), (1, 1040)] {
                    let packet = vec![n; len - 4];
                    let mut icrc = cache.get(from, to).unwrap().begin(id, len, packet.first_chunk().unwrap());
                    icrc.update(&packet[12..]);
                    assert_eq!(icrc.finish(), compute(&flow, id, &packet, std::iter::empty()));
                }
            }
        }
    }

    #[test]
    fn families_do_not_mix() {
        let (v4, v6) = ("10.0.0.1:1".parse().unwrap(), "[fd00::1]:1".parse().unwrap());
        assert!(FlowCache::default().get(v4, v6).is_none());
    }
}
