//! Which of the bound ports a worker registers.

use std::net::{IpAddr, SocketAddr};

use ejfat::wire::DATA_PORTS;
use ejfat_client::PortRange;

/// The address and the ports that a worker registers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The address with the first port.
    pub(super) at: SocketAddr,
    /// How many ports, from that one on.
    pub(super) ports: PortRange,
    /// How many bound ports are not registered, so that the load balancer sends nothing to them.
    pub(super) left_out: usize,
}

/// Returns the bound address to register: the first one of the IP version in which the load balancer sends, or of any version if
/// `v6` is `None`. The unspecified address stands for all addresses of this machine.
pub(super) fn address(bound: &[SocketAddr], v6: Option<bool>) -> Option<IpAddr> {
    let fits = |at: &&SocketAddr| v6.is_none_or(|v6| at.is_ipv6() == v6);
    bound.iter().find(fits).map(SocketAddr::ip)
}

/// Returns the longest run of consecutive ports, cut to a power of two, among the bound ports at which segments to `ip` arrive.
/// Returns `None` if there is no such port.
pub(super) fn ports(bound: &[SocketAddr], ip: IpAddr) -> Option<Chosen> {
    let here = |at: &&SocketAddr| at.ip() == ip || (at.ip().is_unspecified() && at.is_ipv4() == ip.is_ipv4());
    let ports: Vec<u16> = bound.iter().filter(here).map(SocketAddr::port).collect();
    let mut best: Option<(u16, PortRange)> = None;
    for run in ports.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let range = PortRange::within(run.len());
        // If several runs have the same length, the first one is taken.
        if best.is_none_or(|(_, longest)| range.ports() > longest.ports()) {
            best = Some((run[0], range));
        }
    }
    // A receiver binds the two customary ports by default. One of them is enough, so the other one gives no warning.
    let left_out = if ports == DATA_PORTS { 0 } else { ports.len() };
    best.map(|(first, range)| Chosen {
        at: SocketAddr::new(ip, first),
        ports: range,
        left_out: left_out.saturating_sub(range.ports().into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(all: &[&str]) -> Vec<SocketAddr> {
        all.iter().map(|at| at.parse().unwrap()).collect()
    }

    fn chosen(bound: &[&str], ip: &str) -> Option<(String, u16, usize)> {
        let chosen = ports(&at(bound), ip.parse().unwrap())?;
        Some((chosen.at.to_string(), chosen.ports.ports(), chosen.left_out))
    }

    #[test]
    fn the_longest_run_of_a_power_of_two_is_registered() {
        let both = ["10.0.0.1:19522", "10.0.0.1:16384"];
        assert_eq!(
            chosen(&both, "10.0.0.1"),
            Some(("10.0.0.1:19522".into(), 1, 0)),
            "the two customary ports"
        );
        let five = ["10.0.0.1:19522", "10.0.0.1:100", "10.0.0.1:101", "10.0.0.1:102", "10.0.0.1:103"];
        assert_eq!(chosen(&five, "10.0.0.1"), Some(("10.0.0.1:100".into(), 4, 1)));
        assert_eq!(chosen(&five[..4], "10.0.0.1"), Some(("10.0.0.1:100".into(), 2, 2)), "three are no power");
        assert_eq!(chosen(&five, "10.0.0.2"), None, "nothing comes there");
    }

    #[test]
    fn bound_to_all_addresses_any_of_the_same_ip_version_will_do() {
        assert_eq!(chosen(&["0.0.0.0:7"], "10.0.0.2"), Some(("10.0.0.2:7".into(), 1, 0)));
        assert_eq!(chosen(&["0.0.0.0:7"], "fd00::1"), None);
        let bound = at(&["0.0.0.0:7", "[fd00::1]:8"]);
        assert_eq!(address(&bound, Some(true)), Some("fd00::1".parse().unwrap()));
        assert_eq!(address(&bound, None), Some("0.0.0.0".parse().unwrap()));
        assert_eq!(address(&bound[..1], Some(true)), None);
    }
}
