//! Where a server serves that was not told where: NAAICE's binds all addresses, a device here is one of them.

use std::{fs, net::IpAddr};

use naa_host::{Error, LOCAL_IP_VARIABLE, variable};
use naa_provider::ProviderChoice;
use naa_udp::InterfaceAddress;

/// A local address and why it was taken, for people.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) address: IpAddr,
    pub(crate) why: String,
}

/// `NAA_LOCAL_IP`; else the first address of an RDMA device, unless the embedded provider is asked for; else the first
/// global address of an interface that is up; else 127.0.0.1.
pub(crate) fn choose(provider: ProviderChoice) -> Result<Chosen, Error> {
    if let Some(value) = variable(LOCAL_IP_VARIABLE)? {
        let address = value.trim().parse().map_err(|_| Error::Environment {
            name: LOCAL_IP_VARIABLE,
            value,
            problem: "not an IP address; `ip addr` lists this machine's".into(),
        })?;
        return Ok(Chosen { address, why: format!("which {LOCAL_IP_VARIABLE} names") });
    }
    let addresses = naa_udp::addresses().unwrap_or_default();
    let has_device = |address| provider != ProviderChoice::Embedded && is_of_device(address, provider);
    Ok(first_of(&addresses, has_device, is_up))
}

/// An RDMA device serves `address`.
fn is_of_device(address: IpAddr, provider: ProviderChoice) -> bool {
    naa_provider::choose(address, provider)
        .is_ok_and(|chosen| chosen.provider == naa_provider::Provider::Verbs)
}

fn first_of(
    addresses: &[InterfaceAddress],
    has_device: impl Fn(IpAddr) -> bool,
    is_up: impl Fn(&str) -> bool,
) -> Chosen {
    let global = || addresses.iter().filter(|entry| is_global(entry.address));
    if let Some(entry) = global().find(|entry| has_device(entry.address)) {
        let why = "the first that an RDMA device has".into();
        return Chosen { address: entry.address, why };
    }
    match global().find(|entry| is_up(&entry.interface)) {
        Some(entry) => {
            Chosen { address: entry.address, why: format!("the first of {}, which is up", entry.interface) }
        }
        None => Chosen { address: IpAddr::from([127, 0, 0, 1]), why: "as no network is up".into() },
    }
}

/// Others on the network can send there.
fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

/// Interfaces that cannot tell, such as tunnels, count as up.
fn is_up(interface: &str) -> bool {
    fs::read_to_string(format!("/sys/class/net/{interface}/operstate"))
        .is_ok_and(|state| matches!(state.trim(), "up" | "unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_others_can_reach_is_taken() {
        let list = [
            ("lo", "127.0.0.1"),
            ("eth0", "169.254.3.4"),
            ("eth0", "192.0.2.1"),
            ("eth1", "192.0.2.2"),
            ("eth1", "fe80::1"),
            ("rdma0", "2001:db8::1"),
        ];
        let entry = |(interface, address): (&str, &str)| InterfaceAddress {
            interface: interface.into(),
            address: address.parse().unwrap(),
        };
        let list: Vec<_> = list.into_iter().map(entry).collect();
        let taken = |device: &str, up: &str| {
            first_of(&list, |address| address.to_string() == device, |name| name == up).address.to_string()
        };
        assert_eq!(taken("", "eth0"), "192.0.2.1");
        assert_eq!(taken("", "eth1"), "192.0.2.2");
        assert_eq!(taken("", "none"), "127.0.0.1");
        assert_eq!(taken("192.0.2.2", "eth0"), "192.0.2.2");
        assert_eq!(taken("2001:db8::1", "eth0"), "2001:db8::1");
    }
}
