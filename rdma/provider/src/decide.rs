//! The decision between the providers, and the facts on which the decision is based.

use std::{fmt, net::IpAddr};

use verbs::Error;
use verbs_ibv::{Owner, RdmaDevice};

use crate::ProviderChoice;

/// A provider: an RDMA stack behind the driver interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Provider {
    /// The verbs provider: rdma-core, for NICs and the Linux kernel's soft-RoCE.
    Verbs,
    /// The embedded provider: the RoCEv2 stack of this project, on UDP sockets.
    Embedded,
}

impl Provider {
    /// Returns the provider's name, as in `DeviceAttr::provider`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Embedded => "embedded",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The facts about this machine from which [`decide`] chooses a provider.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) devices: Vec<RdmaDevice>,
    pub(crate) owner: Option<Owner>,
    /// The reason why rdma-core cannot be used, with the remedy.
    pub(crate) missing: Option<String>,
}

impl Machine {
    pub(crate) fn look(local: IpAddr, choice: ProviderChoice) -> Self {
        let devices = verbs_ibv::devices();
        let owner = verbs_ibv::owner_of(&devices, local);
        // If the user chose the embedded provider, the libraries of rdma-core are not loaded. If the user chose no
        // provider, they are loaded only if an RDMA device has the address.
        let wanted = choice == ProviderChoice::Verbs || (choice == ProviderChoice::Auto && owner.is_some());
        let missing = if wanted { verbs_ibv::load().err().map(|error| words(&error)) } else { None };
        Self { devices, owner, missing }
    }
}

/// Returns the text of `error` for use inside a longer text. The text of an `Error::NoDevice` begins with "no device",
/// and these words are left out.
pub(crate) fn words(error: &Error) -> String {
    match error {
        Error::NoDevice(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The decision about which provider serves a local address, and the reason for the decision.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) provider: Provider,
    pub(crate) why: String,
    pub(crate) is_surprising: bool,
}

impl Decision {
    fn expected(provider: Provider, why: String) -> Self {
        Self { provider, why, is_surprising: false }
    }
}

/// Decides which provider serves `local`; if no provider can serve the address, the error text gives the reason.
pub(crate) fn decide(local: IpAddr, choice: ProviderChoice, machine: &Machine) -> Result<Decision, String> {
    let expected = Decision::expected;
    match choice {
        ProviderChoice::Embedded => Ok(expected(Provider::Embedded, "as asked".into())),
        ProviderChoice::Verbs => match (&machine.owner, &machine.missing) {
            (Some(owner), None) => {
                Ok(expected(Provider::Verbs, format!("as asked; {} has {local}", owner.device)))
            }
            (Some(owner), Some(missing)) => Err(format!("{} has {local}, but {missing}", owner.device)),
            (None, missing) => Err(no_owner(local, &machine.devices, missing.as_deref())),
        },
        ProviderChoice::Auto => match (&machine.owner, &machine.missing) {
            (Some(owner), None) => Ok(expected(Provider::Verbs, format!("{} has {local}", owner.device))),
            (Some(owner), Some(missing)) if owner.is_soft => {
                let why = format!("{} has {local}, but {missing}", owner.device);
                Ok(Decision { provider: Provider::Embedded, why, is_surprising: true })
            }
            // If a NIC has the address, the embedded provider would receive nothing, because the NIC takes RoCE packets
            // off the wire before a socket receives them.
            (Some(owner), Some(missing)) => {
                Err(format!("{} has {local}, but {missing}; or take --provider embedded", owner.device))
            }
            (None, _) => Ok(Decision {
                provider: Provider::Embedded,
                why: no_device(local, &machine.devices),
                // RDMA devices usually have no loopback address. A user who chose a loopback address is therefore not
                // surprised by the embedded provider.
                is_surprising: !machine.devices.is_empty() && !local.is_loopback(),
            }),
        },
    }
}

/// Returns the reason why no RDMA device serves `local`.
fn no_device(local: IpAddr, devices: &[RdmaDevice]) -> String {
    if devices.is_empty() {
        return "this machine has no RDMA device".into();
    }
    unusable(local, devices).unwrap_or_else(|| format!("no RDMA device has {local}"))
}

/// Returns a text with the reason why the RDMA port with the address `local` cannot be used. Returns `None` if no RDMA
/// port has this address. The caller must already know that no RDMA port with this address can be used.
fn unusable(local: IpAddr, devices: &[RdmaDevice]) -> Option<String> {
    let ports = devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let mut has = ports.filter(|(_, port)| port.gids.iter().any(|gid| gid.address == local));
    let (device, port) = has.next()?;
    Some(if port.is_active() {
        format!("{} has {local}, but not for RoCE v2", device.name)
    } else {
        format!("{} has {local}, but its port {} is not active ({})", device.name, port.number, port.state)
    })
}

fn no_owner(local: IpAddr, devices: &[RdmaDevice], missing: Option<&str>) -> String {
    let mut text = no_device(local, devices);
    if !devices.is_empty() {
        text = format!("{text}; there is {}", addresses(devices));
    }
    let taken = |name: &String| devices.iter().any(|device| device.name == *name);
    let free = (0..).map(|n| format!("rxe{n}")).find(|name| !taken(name)).unwrap_or_default();
    text = format!(
        "{text}; `rdma link add {free} type rxe netdev IF` (root; rdma is of Debian's iproute2) makes a soft-RoCE \
         device of interface IF; or take --provider embedded"
    );
    match missing {
        Some(missing) => format!("{text}. Besides, {missing}"),
        None => text,
    }
}

/// Describes the devices and their addresses in a text for people.
fn addresses(devices: &[RdmaDevice]) -> String {
    let describe = |device: &RdmaDevice| {
        let gids = device.ports.iter().flat_map(|port| &port.gids);
        let mut found: Vec<_> = gids.map(|gid| gid.address.to_string()).collect();
        // An address can have two entries in the GID table, one for RoCE v1 and one for RoCE v2. The returned text
        // names such an address only once.
        found.dedup();
        let found = if found.is_empty() { "no address".into() } else { found.join(", ") };
        format!("{} with {found}", device.name)
    };
    devices.iter().map(describe).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use verbs_ibv::{Gid, RdmaPort};

    use super::*;

    const MISSING: &str = "librdmacm.so.1 is not installed; `apt install librdmacm1 ibverbs-providers`";

    fn rxe0(state: &str, kind: &str) -> RdmaDevice {
        let gid = |(index, address): (usize, &str)| Gid {
            index: index as u32,
            address: address.parse().unwrap(),
            kind: kind.into(),
            netdev: Some("eth-a".into()),
        };
        let gids = ["10.9.0.1", "fd00:9::1"].into_iter().enumerate().map(gid).collect();
        let port = RdmaPort { number: 1, state: state.into(), link_layer: "Ethernet".into(), gids };
        RdmaDevice { name: "rxe0".into(), is_soft: true, ports: vec![port] }
    }

    /// Chooses the provider for the address `local` on a machine with `devices`, and returns the provider and the
    /// reason as one text. If `missing` is true, rdma-core is not installed on the machine. If the decision is
    /// surprising, the returned text ends with `(!)`.
    fn decided(
        local: &str,
        choice: ProviderChoice,
        devices: &[RdmaDevice],
        missing: bool,
    ) -> Result<String, String> {
        let local: IpAddr = local.parse().unwrap();
        let serves = |device: &&RdmaDevice| device.ports[0].is_active() && local.to_string() == "10.9.0.1";
        let owner = devices.iter().find(serves).filter(|device| device.ports[0].gids[0].kind == "RoCE v2");
        let owner = owner.map(|device| Owner {
            device: device.name.clone(),
            port: 1,
            gid_index: 0,
            is_soft: device.is_soft,
        });
        let missing = missing.then(|| MISSING.to_owned());
        let machine = Machine { devices: devices.to_vec(), owner, missing };
        let decision = decide(local, choice, &machine)?;
        let mark = if decision.is_surprising { " (!)" } else { "" };
        Ok(format!("{}: {}{mark}", decision.provider, decision.why))
    }

    #[test]
    fn auto_takes_verbs_where_a_device_has_the_address() {
        let rxe = [rxe0("4: ACTIVE", "RoCE v2")];
        let auto =
            |local, devices: &[_], missing| decided(local, ProviderChoice::Auto, devices, missing).unwrap();
        assert_eq!(auto("10.9.0.1", &rxe, false), "verbs: rxe0 has 10.9.0.1");
        assert_eq!(auto("127.0.0.1", &rxe, false), "embedded: no RDMA device has 127.0.0.1");
        assert_eq!(auto("127.0.0.1", &[], false), "embedded: this machine has no RDMA device");
        assert_eq!(auto("10.9.0.1", &rxe, true), format!("embedded: rxe0 has 10.9.0.1, but {MISSING} (!)"));
        assert_eq!(auto("10.9.0.7", &rxe, false), "embedded: no RDMA device has 10.9.0.7 (!)");
        assert_eq!(
            auto("10.9.0.1", &[rxe0("1: DOWN", "RoCE v2")], false),
            "embedded: rxe0 has 10.9.0.1, but its port 1 is not active (1: DOWN) (!)"
        );
        assert_eq!(
            auto("10.9.0.1", &[rxe0("4: ACTIVE", "IB/RoCE v1")], false),
            "embedded: rxe0 has 10.9.0.1, but not for RoCE v2 (!)"
        );
    }

    #[test]
    fn a_nic_without_its_library_is_no_reason_for_the_other_provider() {
        let nic = [RdmaDevice { is_soft: false, ..rxe0("4: ACTIVE", "RoCE v2") }];
        let error = decided("10.9.0.1", ProviderChoice::Auto, &nic, true).unwrap_err();
        assert!(error.contains(MISSING) && error.contains("--provider embedded"), "{error}");
    }

    #[test]
    fn what_is_asked_for_is_taken() {
        let rxe = [rxe0("4: ACTIVE", "RoCE v2")];
        for (devices, missing) in [(&rxe[..], false), (&rxe[..], true), (&[][..], true)] {
            let decided = decided("10.9.0.1", ProviderChoice::Embedded, devices, missing);
            assert_eq!(decided.unwrap(), "embedded: as asked");
        }
        let decided = decided("10.9.0.1", ProviderChoice::Verbs, &rxe, false);
        assert_eq!(decided.unwrap(), "verbs: as asked; rxe0 has 10.9.0.1");
    }

    #[test]
    fn verbs_that_cannot_be_had_are_an_error_with_the_remedy() {
        let rxe = [rxe0("4: ACTIVE", "RoCE v2")];
        let failed = |local, devices: &[_], missing| {
            decided(local, ProviderChoice::Verbs, devices, missing).unwrap_err()
        };
        assert_eq!(failed("10.9.0.1", &rxe, true), format!("rxe0 has 10.9.0.1, but {MISSING}"));
        let elsewhere = failed("127.0.0.1", &rxe, false);
        for part in ["no RDMA device has 127.0.0.1", "rxe0 with 10.9.0.1, fd00:9::1", "rdma link add rxe1 "] {
            assert!(elsewhere.contains(part), "{elsewhere}");
        }
        let nothing = failed("127.0.0.1", &[], true);
        for part in ["this machine has no RDMA device", "rdma link add rxe0 ", "--provider embedded", MISSING]
        {
            assert!(nothing.contains(part), "{nothing}");
        }
        let down = failed("10.9.0.1", &[rxe0("1: DOWN", "RoCE v2")], false);
        assert!(down.contains("not active (1: DOWN)"), "{down}");
    }
}
