//! The RDMA devices of a machine, as described in sysfs (Documentation/ABI/stable/sysfs-class-infiniband).

use std::{
    fs,
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
};

const CLASS: &str = "/sys/class/infiniband";

/// An RDMA device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaDevice {
    /// The device's name, for example `mlx5_0` or `rxe0`.
    pub name: String,
    /// True if the device is a software device (rxe or siw). A device counts as a software device if its sysfs folder
    /// contains a file `parent`.
    pub is_soft: bool,
    /// The device's RDMA ports, in the order of their numbers.
    pub ports: Vec<RdmaPort>,
}

/// A port of an RDMA device, with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// The port's number, counted from 1.
    pub number: u8,
    /// The port's state as the Linux kernel reports it, for example `4: ACTIVE`.
    pub state: String,
    /// The port's link layer: `Ethernet` or `InfiniBand`.
    pub link_layer: String,
    /// The used entries of the GID table.
    pub gids: Vec<Gid>,
}

impl RdmaPort {
    /// Returns true if the port can send and receive packets.
    pub fn is_active(&self) -> bool {
        self.state.ends_with("ACTIVE")
    }
}

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// The index of the entry in the GID table, counted from 0.
    pub index: u32,
    /// The IP address of the GID. The address is an IPv4 address if the GID is an IPv4-mapped IPv6 address.
    pub address: IpAddr,
    /// The type of the GID, which is `RoCE v2`, `IB/RoCE v1`, or empty if the Linux kernel does not report the type.
    pub kind: String,
    /// The network interface of this entry of the GID table, if the entry has one.
    pub netdev: Option<String>,
}

/// The RDMA port that [`owner_of`] found for an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The name of the device, for example `mlx5_0` or `rxe0`.
    pub device: String,
    /// The number of the RDMA port, counted from 1.
    pub port: u8,
    /// The index of the address in the port's GID table.
    pub gid_index: u32,
    /// True if the device is a software device (rxe or siw), which uses an ordinary network interface.
    pub is_soft: bool,
}

/// Returns all RDMA devices, sorted by name. The list is empty if the Linux kernel has no RDMA support.
pub fn devices() -> Vec<RdmaDevice> {
    devices_under(Path::new(CLASS))
}

/// Returns the active RDMA port of `devices` that has a RoCE v2 GID with the address `local`.
pub fn owner_of(devices: &[RdmaDevice], local: IpAddr) -> Option<Owner> {
    let local = local.to_canonical();
    let ports = devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    ports.filter(|(_, port)| port.is_active()).find_map(|(device, port)| {
        let gid = port.gids.iter().find(|gid| gid.address == local && gid.kind == "RoCE v2")?;
        Some(Owner {
            device: device.name.clone(),
            port: port.number,
            gid_index: gid.index,
            is_soft: device.is_soft,
        })
    })
}

/// Returns the devices in the folder `class`, which is `/sys/class/infiniband` or a folder with the same structure.
pub fn devices_under(class: &Path) -> Vec<RdmaDevice> {
    let device = |path: PathBuf| RdmaDevice {
        name: name(&path),
        is_soft: path.join("parent").is_file(),
        ports: numbered(&path.join("ports"), port),
    };
    let mut found: Vec<_> = entries(class).into_iter().map(device).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn port(number: u32, path: &Path) -> Option<RdmaPort> {
    Some(RdmaPort {
        number: u8::try_from(number).ok()?,
        state: line(&path.join("state")),
        link_layer: line(&path.join("link_layer")),
        gids: numbered(&path.join("gids"), |index, _| gid(index, path)),
    })
}

fn gid(index: u32, port: &Path) -> Option<Gid> {
    let of = |folder: &str| line(&port.join(folder).join(index.to_string()));
    let address: Ipv6Addr = of("gids").parse().ok().filter(|gid: &Ipv6Addr| !gid.is_unspecified())?;
    let netdev = of("gid_attrs/ndevs");
    Some(Gid {
        index,
        address: address.to_canonical(),
        kind: of("gid_attrs/types"),
        netdev: (!netdev.is_empty()).then_some(netdev),
    })
}

/// Returns the results of `read` for the entries of `folder` whose names are numbers, in the order of the numbers.
fn numbered<T>(folder: &Path, read: impl Fn(u32, &Path) -> Option<T>) -> Vec<T> {
    let mut numbers: Vec<u32> = entries(folder).iter().filter_map(|path| name(path).parse().ok()).collect();
    numbers.sort_unstable();
    numbers.iter().filter_map(|&number| read(number, &folder.join(number.to_string()))).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns the trimmed content of a file, or an empty text if the file cannot be read. For example, the files of unused
/// GID table entries cannot be read.
fn line(path: &Path) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a folder like the folder `/sys/class/infiniband` of a machine that has one rxe device.
    fn class(name: &str) -> PathBuf {
        let class = std::env::temp_dir().join(format!("naa-class-{name}-{}", std::process::id()));
        let port = class.join("rxe0/ports/1");
        for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            fs::create_dir_all(port.join(folder)).unwrap();
        }
        fs::write(class.join("rxe0/parent"), "eth-a\n").unwrap();
        fs::write(port.join("state"), "4: ACTIVE\n").unwrap();
        fs::write(port.join("link_layer"), "Ethernet\n").unwrap();
        let gids = ["fe80::1", "::ffff:10.9.0.1", "fd00:9::1", "::"];
        for (index, gid) in gids.iter().enumerate() {
            let entry = index.to_string();
            fs::write(port.join("gids").join(&entry), format!("{gid}\n")).unwrap();
            fs::write(port.join("gid_attrs/types").join(&entry), "RoCE v2\n").unwrap();
            fs::write(port.join("gid_attrs/ndevs").join(&entry), "eth-a\n").unwrap();
        }
        class
    }

    #[test]
    fn a_port_owns_the_addresses_of_its_gids() {
        let class = class("owner");
        let devices = devices_under(&class);
        fs::remove_dir_all(&class).unwrap();
        assert_eq!((devices.len(), devices[0].ports[0].gids.len()), (1, 3));
        let owner = |text: &str| owner_of(&devices, text.parse().unwrap());
        let rxe0 = |gid_index| Some(Owner { device: "rxe0".into(), port: 1, gid_index, is_soft: true });
        assert_eq!(owner("10.9.0.1"), rxe0(1));
        assert_eq!(owner("::ffff:10.9.0.1"), rxe0(1));
        assert_eq!(owner("fd00:9::1"), rxe0(2));
        assert_eq!(owner("10.9.0.2"), None);
        assert_eq!(owner("127.0.0.1"), None);
    }

    #[test]
    fn a_port_that_is_down_owns_nothing() {
        let class = class("down");
        fs::write(class.join("rxe0/ports/1/state"), "1: DOWN\n").unwrap();
        let devices = devices_under(&class);
        fs::remove_dir_all(&class).unwrap();
        assert_eq!(owner_of(&devices, "10.9.0.1".parse().unwrap()), None);
    }

    #[test]
    fn no_rdma_is_no_device() {
        assert_eq!(devices_under(Path::new("/nonexistent")), []);
    }
}
