//! A cache of recently used flows.

use std::net::{IpAddr, SocketAddr};

use super::{Flow, WarmFlow};

const SLOTS: usize = 32;

/// A direct-mapped cache of the flows of recent packets. The index is computed from the parts of the addresses that
/// differ between peers. Only the constructor allocates memory.
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
            // There are more flows than slots, so flows replace each other in the cache.
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
