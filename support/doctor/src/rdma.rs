//! Checks what the verbs provider needs: a device, modules, device files, libraries, memory that may be locked.

use std::{fs::OpenOptions, io, net::IpAddr};

use verbs_ibv::{RdmaDevice, RdmaPort};

use crate::{
    check::{Check, CheckGroup::Rdma, CheckLevel},
    machine::{Machine, Module},
    memlock,
};

const V2: &str = "RoCE v2";

pub(crate) fn checks(machine: &Machine) -> Vec<Check> {
    let mut checks = devices(machine);
    checks.push(modules(machine));
    checks.extend(files(machine));
    checks.push(libraries(machine));
    checks.push(memlock::check(machine));
    checks
}

/// How to get an RDMA device on this machine.
pub(crate) fn how_to_get_one(machine: &Machine) -> String {
    let mut interfaces = machine.usable_addresses().map(|entry| entry.interface.as_str());
    let netdev = interfaces.find(|name| *name != "lo" && machine.interface(name).up).unwrap_or("INTERFACE");
    let sudo = machine.sudo();
    let link = format!("{sudo}rdma link add rxe0 type rxe netdev {netdev}");
    match machine.module("rdma_rxe") {
        Module::Loaded => link,
        Module::Loadable | Module::Unknown => format!("{sudo}modprobe rdma_rxe && {link}"),
        Module::Missing => {
            format!(
                "install the rest of the kernel's modules (Ubuntu: linux-modules-extra-$(uname -r)), then \
                     {sudo}modprobe rdma_rxe && {link}"
            )
        }
        Module::NoModules => "this kernel takes no modules; `cargo xtask rxe-vm -- COMMAND` in naa's source \
                              runs COMMAND on a machine with soft-RoCE"
            .into(),
    }
}

fn devices(machine: &Machine) -> Vec<Check> {
    let devices = machine.devices();
    if devices.is_empty() {
        let check = Rdma.check("device", CheckLevel::Note, "no RDMA device");
        return vec![check.remedy(how_to_get_one(machine))];
    }
    let ports = devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    ports.map(|(device, port)| device_port(machine, device, port)).collect()
}

fn device_port(machine: &Machine, device: &RdmaDevice, port: &RdmaPort) -> Check {
    let name = format!("{} port {}", device.name, port.number);
    let state = port.state.split_once(": ").map_or(port.state.as_str(), |(_, word)| word);
    let netdev = port.gids.iter().find_map(|gid| gid.netdev.as_deref()).map(str::to_owned);
    let netdev = netdev.or_else(|| machine.read(&format!("sys/class/infiniband/{}/parent", device.name)));
    let on = netdev.as_deref().map_or(String::new(), |netdev| format!(" over {netdev}"));
    let interface = netdev.as_deref().unwrap_or("INTERFACE");
    let found = |level, what: &str| Rdma.check("device", level, format!("{name}{on}: {state}, {what}"));
    let sudo = machine.sudo();
    if !port.is_active() {
        let remedy = format!("{sudo}ip link set {interface} up");
        return found(CheckLevel::Warn, "so it cannot be used").remedy(remedy);
    }
    if port.link_layer != "Ethernet" {
        return found(CheckLevel::Note, &format!("{}; naa speaks RoCE v2 over Ethernet", port.link_layer));
    }
    let gids = addresses(port);
    let here: Vec<_> = gids.iter().filter(|&&ip| machine.addresses.iter().any(|a| a.address == ip)).collect();
    if !here.is_empty() {
        let list = here.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return found(CheckLevel::Ok, &format!("{V2} on {list}"));
    }
    if gids.is_empty() {
        let remedy = format!("{sudo}ip address add ADDRESS/BITS dev {interface}");
        return found(CheckLevel::Warn, &format!("but no GID of {V2} with an address")).remedy(remedy);
    }
    let list = gids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let what = format!("{V2} on {list}, not an address here: another network namespace has it");
    found(CheckLevel::Warn, &what).remedy("run in that namespace (`ip netns exec NAME ...`)")
}

/// The addresses for which the RoCE v2 GIDs of a port stand, without link-local ones.
fn addresses(port: &RdmaPort) -> Vec<IpAddr> {
    let v2 = port.gids.iter().filter(|gid| gid.kind == V2).map(|gid| gid.address);
    v2.filter(|ip| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())).collect()
}

/// The addresses that RDMA devices serve here, with the names of the devices.
pub(crate) fn served(machine: &Machine) -> Vec<(IpAddr, String)> {
    let mut served = Vec::new();
    for device in machine.devices() {
        for port in device.ports.iter().filter(|port| port.is_active()) {
            let here = |ip: &IpAddr| machine.addresses.iter().any(|entry| entry.address == *ip);
            served.extend(addresses(port).into_iter().filter(here).map(|ip| (ip, device.name.clone())));
        }
    }
    served
}

/// Drivers and their classes of devices. A class exists even if its driver is built into the kernel.
const DRIVERS: [(&str, &str); 2] =
    [("ib_uverbs", "sys/class/infiniband_verbs/abi_version"), ("rdma_ucm", "sys/class/misc/rdma_cm")];

fn modules(machine: &Machine) -> Check {
    let state = |name: &str, sign: Option<&str>| match machine.module(name) {
        _ if sign.is_some_and(|sign| machine.has(sign)) => Module::Loaded,
        state => state,
    };
    let words = |state| match state {
        Module::Loaded => "loaded",
        Module::Loadable => "can be loaded",
        Module::Missing => "not part of this kernel",
        Module::Unknown => "not loaded",
        Module::NoModules => "not in this kernel, which takes no modules",
    };
    let mut states = vec![("rdma_rxe", state("rdma_rxe", None))];
    states.extend(DRIVERS.map(|(name, sign)| (name, state(name, Some(sign)))));
    let missing: Vec<_> =
        states[1..].iter().filter(|(_, state)| *state != Module::Loaded).map(|(name, _)| *name).collect();
    let same = states.iter().all(|(_, state)| *state == states[0].1);
    let finding = if same {
        let names = states.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        format!("{names}: {}", words(states[0].1))
    } else {
        states.iter().map(|(name, state)| format!("{name} {}", words(*state))).collect::<Vec<_>>().join(", ")
    };
    match () {
        () if missing.is_empty() => Rdma.check("modules", CheckLevel::Ok, finding),
        () if machine.devices().is_empty() => Rdma.check("modules", CheckLevel::Note, finding),
        () => {
            let remedy = format!("{}modprobe -a {}", machine.sudo(), missing.join(" "));
            Rdma.check("modules", CheckLevel::Bad, finding).remedy(remedy)
        }
    }
}

/// Checks the device files. A file is opened only if its driver is there, because opening others loads modules.
fn files(machine: &Machine) -> Option<Check> {
    let mut wanted: Vec<_> = machine.names("sys/class/infiniband_verbs");
    wanted.retain(|name| name.starts_with("uverbs"));
    if machine.has(DRIVERS[1].1) {
        wanted.push("rdma_cm".into());
    }
    if wanted.is_empty() {
        return None;
    }
    let open = |name: &String| {
        let path = machine.path(&format!("dev/infiniband/{name}"));
        OpenOptions::new().read(true).write(true).open(path).err().map(|error| (name.clone(), error))
    };
    let failures: Vec<_> = wanted.iter().filter_map(open).collect();
    let Some((name, error)) = failures.first() else {
        let finding = format!("/dev/infiniband: {} can be opened", wanted.join(", "));
        return Some(Rdma.check("device-files", CheckLevel::Ok, finding));
    };
    let finding = format!("/dev/infiniband/{name} cannot be opened: {error}");
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "in a container, start it with `--device=/dev/infiniband`; else `udevadm trigger` as root"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "{}chmod 0666 /dev/infiniband/{{rdma_cm,uverbs*}}, or install rdma-core's udev rules",
                machine.sudo()
            )
        }
        _ => format!("{}dmesg | tail says why", machine.sudo()),
    };
    Some(Rdma.check("device-files", CheckLevel::Bad, finding).remedy(remedy))
}

fn libraries(machine: &Machine) -> Check {
    let idle = machine.devices().is_empty();
    let sudo = machine.sudo();
    let system = machine.read("etc/os-release").unwrap_or_default();
    let is = |names: &[&str]| names.iter().any(|name| system.contains(name));
    let install = match () {
        () if is(&["debian", "ubuntu"]) => format!("{sudo}apt install librdmacm1 ibverbs-providers"),
        () if is(&["fedora", "rhel", "centos"]) => format!("{sudo}dnf install librdmacm libibverbs"),
        () => "install rdma-core: librdmacm, libibverbs and its providers".into(),
    };
    match &machine.libraries {
        Err(why) => {
            let level = if idle { CheckLevel::Note } else { CheckLevel::Bad };
            Rdma.check("libraries", level, why.clone()).remedy(install)
        }
        Ok(()) if !idle && machine.names("etc/libibverbs.d").is_empty() => {
            let finding =
                "librdmacm and libibverbs load, but drivers of libibverbs (/etc/libibverbs.d) are missing";
            Rdma.check("libraries", CheckLevel::Warn, finding).remedy(install)
        }
        Ok(()) => Rdma.check("libraries", CheckLevel::Ok, "librdmacm and libibverbs of rdma-core load"),
    }
}
