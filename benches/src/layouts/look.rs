//! What this machine has: providers, and what figures depend on.

use std::net::IpAddr;

use anyhow::{Context as _, bail};
use naa_measure::energy::Counters;
use naa_provider::{Provider as Kind, ProviderChoice};
use nix::ifaddrs::getifaddrs;
use roce_udp::free_loopback;

use super::grid::DevicePair;
use crate::placement::{self, CpuPlacement};

/// Providers, and why others are not measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Available {
    pub(crate) providers: Vec<DevicePair>,
    pub(crate) remarks: Vec<String>,
}

/// The available providers of `wanted`, or all if `wanted` is empty. Verbs uses the address `bind` if it is set,
/// otherwise the first address of an RDMA device.
///
/// # Errors
/// If one that was asked for is not available, or none is.
pub(crate) fn providers(wanted: &[Kind], bind: Option<IpAddr>) -> anyhow::Result<Available> {
    let mut found = Available::default();
    for kind in [Kind::Embedded, Kind::Verbs] {
        let is_wanted = wanted.contains(&kind) || (kind == Kind::Verbs && bind.is_some());
        if !is_wanted && !wanted.is_empty() {
            continue;
        }
        let provider = match kind {
            Kind::Embedded => embedded(),
            Kind::Verbs => verbs(bind),
        };
        match provider {
            Ok(provider) => found.providers.push(provider),
            Err(why) if is_wanted => {
                return Err(why.context(format!("the {kind} provider cannot be measured")));
            }
            Err(why) => found.remarks.push(format!("the {kind} provider is not measured: {why:#}")),
        }
    }
    if found.providers.is_empty() {
        bail!("no provider can be measured: {}", found.remarks.join("; "));
    }
    Ok(found)
}

fn embedded() -> anyhow::Result<DevicePair> {
    free_loopback()?;
    Ok(DevicePair { name: "embedded", address: None })
}

fn verbs(bind: Option<IpAddr>) -> anyhow::Result<DevicePair> {
    let address = match bind {
        Some(address) => {
            naa_provider::choose(address, ProviderChoice::Verbs)?;
            address
        }
        None => local_addresses()?
            .into_iter()
            .find(|&address| is_rdma(address))
            .context("no address of this machine is an RDMA device's")?,
    };
    Ok(DevicePair { name: "verbs", address: Some(address) })
}

fn is_rdma(address: IpAddr) -> bool {
    naa_provider::choose(address, ProviderChoice::Auto).is_ok_and(|chosen| chosen.provider == Kind::Verbs)
}

/// The addresses of this machine that need no scope.
fn local_addresses() -> anyhow::Result<Vec<IpAddr>> {
    let interfaces = getifaddrs().context("cannot list the addresses of this machine")?;
    let address = |address: nix::sys::socket::SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    let all = interfaces.filter_map(|interface| interface.address.and_then(address));
    let is_scoped = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Ok(all.filter(|address| !is_scoped(address)).collect())
}

/// Energy counters, or why there are none, in words.
pub(crate) fn counters() -> (Option<Counters>, String) {
    match Counters::open() {
        Ok(counters) => {
            let names = counters.names().collect::<Vec<_>>().join(", ");
            (Some(counters), format!("energy of {names}"))
        }
        Err(why) => (None, format!("no energy: {why}")),
    }
}

/// What figures depend on, in a line each: the same whenever it is asked.
pub(crate) fn machine(placement: &CpuPlacement, energy: String) -> Vec<String> {
    let [cpus, kernel] = placement::machine();
    let memory = region::physical_memory().unwrap_or_default() as f64 / f64::from(1 << 30);
    let ends = if placement.near.is_empty() {
        "the kernel places the two ends".into()
    } else {
        format!("host on CPUs {:?}, server on CPUs {:?}", placement.near, placement.far)
    };
    vec![
        cpus,
        format!("{memory:.0} GiB of memory"),
        kernel,
        format!("naa {}", env!("CARGO_PKG_VERSION")),
        ends,
        energy,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_provider_is_there_and_others_are_told_of() {
        let found = providers(&[], None).unwrap();
        assert_eq!(found.providers[0], DevicePair { name: "embedded", address: None });
        assert_eq!(found.providers.len() + found.remarks.len(), 2, "{found:?}");
        let only = providers(&[Kind::Embedded], None).unwrap();
        assert_eq!((only.providers.len(), only.remarks.len()), (1, 0));
    }

    #[test]
    fn what_was_asked_for_is_not_left_out() {
        // Nobody's.
        let error = providers(&[], Some("192.0.2.1".parse().unwrap())).unwrap_err();
        assert!(format!("{error:#}").contains("the verbs provider cannot be measured"), "{error:#}");
    }

    #[test]
    fn a_machine_is_told_in_lines() {
        let lines = machine(&CpuPlacement::default(), "no energy: none".into());
        assert_eq!(lines.len(), 6);
        assert!(lines.iter().all(|line| !line.is_empty() && !line.contains('\n')), "{lines:?}");
        assert_eq!(lines, machine(&CpuPlacement::default(), "no energy: none".into()));
    }
}
