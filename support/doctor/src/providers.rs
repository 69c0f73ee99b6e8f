//! Finds out what each provider can do here, and which commands help if something is missing.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr},
};

use naa_udp::Held;
use serde::Serialize;

use crate::{
    check::{Check, CheckGroup, CheckLevel},
    machine::Machine,
    network, rdma,
    self_test::SelfTest,
};

/// An address at which a provider is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyAddress {
    /// The address of this machine.
    pub address: IpAddr,
    /// The name of the RDMA device or of the network interface.
    pub device: String,
}

/// An address at which a provider cannot serve.
#[derive(Clone, Debug, Serialize)]
pub struct CannotListen {
    /// The address of this machine.
    pub address: IpAddr,
    /// The reason, in a few words.
    pub why: String,
}

/// What a provider can do on this machine.
#[derive(Clone, Debug, Serialize)]
pub struct ProviderReport {
    /// `embedded` or `verbs`.
    pub name: &'static str,
    /// Whether the provider can serve and call here.
    pub ready: bool,
    /// The addresses at which it can serve and call.
    #[serde(serialize_with = "texts")]
    pub addresses: Vec<ReadyAddress>,
    /// Addresses from which the provider can call, but at which it cannot serve.
    pub cannot_listen: Vec<CannotListen>,
    /// The reason, in one line.
    pub why: String,
    /// What to type or to do, if anything helps.
    pub remedy: Option<String>,
    /// The result of the self-test, if there was one.
    pub self_test: Option<SelfTest>,
}

fn texts<S: serde::Serializer>(places: &[ReadyAddress], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(places.iter().map(|place| place.address))
}

/// Examines the embedded provider. `verbs` tells whether the verbs provider is ready.
pub(crate) fn embedded(machine: &Machine, verbs: bool) -> ProviderReport {
    let held = machine.holders();
    let (mut addresses, mut cannot_listen) = (Vec::new(), Vec::new());
    for entry in machine.usable_addresses() {
        let interface = machine.interface(&entry.interface);
        let fits = interface.mtu.is_none_or(|mtu| roce_udp::path_mtu(mtu, None).is_ok());
        if !interface.up || !fits {
            continue;
        }
        match held.iter().find(|held| holds(held, entry.address)) {
            None => addresses.push(ReadyAddress { address: entry.address, device: interface.name }),
            Some(held) => {
                let why = format!("UDP port 4791 is held by {}", network::holder(machine, held));
                cannot_listen.push(CannotListen { address: entry.address, why });
            }
        }
    }
    let ready = !addresses.is_empty() && machine.socket.is_ok();
    let why = match (&machine.socket, cannot_listen.first()) {
        (Err(why), _) => format!("not available: {why}"),
        (Ok(_), None) if addresses.is_empty() => {
            "not available: no interface that is up has an address".into()
        }
        (Ok(_), None) => format!("ready on {}", list(&addresses)),
        (Ok(_), Some(_)) if addresses.is_empty() => {
            format!("can only call other embedded ones: cannot listen on {}", refusals(&cannot_listen))
        }
        (Ok(_), Some(_)) => {
            format!("ready on {}; cannot listen on {}", list(&addresses), refusals(&cannot_listen))
        }
    };
    let remedy = (addresses.is_empty() && !cannot_listen.is_empty()).then(|| {
        let elsewhere = "run in another network namespace (`ip netns exec NAME ...`)";
        match machine.soft_roce() {
            Some(_) if verbs => format!("use --provider verbs here, or {elsewhere}"),
            Some(_) => {
                format!("{}modprobe -r rdma_rxe, which ends soft-RoCE here; or {elsewhere}", machine.sudo())
            }
            None => format!("stop what holds the port, or {elsewhere}"),
        }
    });
    ProviderReport { name: "embedded", ready, addresses, cannot_listen, why, remedy, self_test: None }
}

/// Whether a socket holds the port of an address. A socket on the unspecified address of IPv6 mostly holds the port of
/// IPv4, too.
fn holds(held: &Held, address: IpAddr) -> bool {
    held.address == address || held.address.is_unspecified() && (held.address.is_ipv6() || address.is_ipv4())
}

pub(crate) fn verbs(machine: &Machine, checks: &[Check]) -> ProviderReport {
    let served = rdma::served(machine);
    let is_bad = |check: &&Check| check.group == CheckGroup::Rdma && check.level == CheckLevel::Bad;
    let bad: Vec<_> = checks.iter().filter(is_bad).collect();
    let ready = |(address, device)| ReadyAddress { address, device };
    let addresses: Vec<_> = served.into_iter().map(ready).collect();
    let unavailable = |why: &str, remedy: Option<String>| (false, format!("not available: {why}"), remedy);
    let (ready, why, remedy) = if let Some(first) = bad.first() {
        (false, format!("not ready: {}", first.finding), first.remedy.clone())
    } else if !addresses.is_empty() {
        (true, format!("ready on {}", list(&addresses)), None)
    } else if machine.devices().is_empty() {
        unavailable("no RDMA device", Some(rdma::how_to_get_one(machine)))
    } else {
        let port = checks.iter().find(|check| check.name == "device" && check.level != CheckLevel::Ok);
        let remedy = port.and_then(|check| check.remedy.clone());
        unavailable(port.map_or("no RDMA device has an address here", |check| &check.finding), remedy)
    };
    let addresses = if ready { addresses } else { Vec::new() };
    let cannot_listen = Vec::new();
    ProviderReport { name: "verbs", ready, addresses, cannot_listen, why, remedy, self_test: None }
}

/// The places as text, such as `10.0.0.5 and fd00::5 (eth0), 127.0.0.1 (lo)`.
fn list(places: &[ReadyAddress]) -> String {
    let mut seen = HashSet::new();
    let devices = places.iter().map(|place| place.device.as_str()).filter(|device| seen.insert(*device));
    let of = |device: &str| {
        let its = places.iter().filter(|place| place.device == device);
        format!("{} ({device})", its.map(|place| place.address.to_string()).collect::<Vec<_>>().join(" and "))
    };
    devices.map(of).collect::<Vec<_>>().join(", ")
}

fn refusals(refused: &[CannotListen]) -> String {
    let all = refused.iter().map(|refused| refused.address.to_string()).collect::<Vec<_>>().join(", ");
    format!("{all}: {}", refused[0].why)
}

/// The address for the self-test: a loopback address that no other program uses, if there is one.
pub(crate) fn address_to_test(provider: &ProviderReport) -> Option<IpAddr> {
    let first = provider.addresses.first()?.address;
    let loopback = provider.addresses.iter().any(|place| place.address == Ipv4Addr::LOCALHOST);
    let free = (provider.name == "embedded" && loopback).then(roce_udp::free_loopback);
    Some(free.and_then(Result::ok).unwrap_or(first))
}
