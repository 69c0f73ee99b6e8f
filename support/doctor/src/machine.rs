//! A machine: its sysfs and procfs below a root folder, and properties that no file has. Tests use made-up machines.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use naa_udp::{Held, InterfaceAddress, Port, PortConfig};
use roce_udp::ROCE_PORT;
use verbs_ibv::RdmaDevice;

use crate::rules::{self, Rules};

/// Bits of `CapEff` (linux/capability.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    IpcLock = 14,
}

/// The state of a module of the Linux kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    Loaded,
    Loadable,
    /// This kernel does not have the module.
    Missing,
    /// The folder of the kernel's modules is missing, as in a container.
    Unknown,
    /// The kernel does not support modules.
    NoModules,
}

/// The properties that a UDP socket of the embedded provider got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Socket {
    /// The size of the receive buffer as the kernel accounts it, with its overhead.
    pub(crate) receive_buffer: usize,
    pub(crate) gso: bool,
    pub(crate) gro: bool,
}

#[derive(Debug)]
pub(crate) struct Machine {
    root: PathBuf,
    pub(crate) addresses: Vec<InterfaceAddress>,
    /// The error if rdma-core's libraries cannot be used.
    pub(crate) libraries: Result<(), String>,
    pub(crate) socket: Result<Socket, String>,
    pub(crate) rules: Rules,
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The MTU; `None` if the kernel does not tell it.
    pub(crate) mtu: Option<u32>,
    pub(crate) up: bool,
}

impl Machine {
    /// The machine on which this program runs.
    pub(crate) fn here() -> Self {
        let mut machine = Self::below(Path::new("/"));
        machine.addresses = naa_udp::addresses().unwrap_or_default();
        machine.libraries = verbs_ibv::load().map_err(|error| problem(&error));
        machine.socket = probe().map_err(|error| error.to_string());
        machine.rules = rules::read(&machine);
        machine
    }

    /// A machine whose files are below `root`, with an ordinary socket; everything else is unknown.
    pub(crate) fn below(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            addresses: Vec::new(),
            libraries: Ok(()),
            socket: Ok(Socket { receive_buffer: 8 << 20, gso: true, gro: true }),
            rules: Rules::NotLooked("this is not the machine itself".into()),
        }
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// The text of a file without white space at its ends.
    pub(crate) fn read(&self, path: &str) -> Option<String> {
        Some(fs::read_to_string(self.path(path)).ok()?.trim().to_owned())
    }

    pub(crate) fn number(&self, path: &str) -> Option<u64> {
        self.read(path)?.parse().ok()
    }

    /// The names in a folder, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The value of a line `Key:  value` of `/proc/self/status`.
    pub(crate) fn status(&self, key: &str) -> Option<String> {
        let status = self.read("proc/self/status")?;
        let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        Some(value.trim().to_owned())
    }

    /// Whether this process has a capability over the whole machine, not just in a container's user namespace.
    pub(crate) fn has_capability(&self, capability: Capability) -> bool {
        let set = self.status("CapEff").and_then(|text| u64::from_str_radix(&text, 16).ok()).unwrap_or(0);
        set >> capability as u32 & 1 == 1 && !self.is_in_user_namespace()
    }

    /// Whether the process is in a user namespace other than the first one, which maps every user to itself.
    pub(crate) fn is_in_user_namespace(&self) -> bool {
        let map = self.read("proc/self/uid_map").unwrap_or_default();
        !map.is_empty() && map.split_whitespace().ne(["0", "0", "4294967295"])
    }

    pub(crate) fn is_root(&self) -> bool {
        self.status("Uid").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
    }

    /// The prefix of a command that changes the machine: `sudo `, or nothing for root.
    pub(crate) fn sudo(&self) -> &'static str {
        if self.is_root() { "" } else { "sudo " }
    }

    pub(crate) fn module(&self, name: &str) -> Module {
        if self.has(&format!("sys/module/{name}")) {
            return Module::Loaded;
        }
        let folder = format!("lib/modules/{}", self.read("proc/sys/kernel/osrelease").unwrap_or_default());
        let lists = |list: &str| {
            let list = self.read(&format!("{folder}/{list}")).unwrap_or_default();
            list.lines().any(|line| {
                let path = line.split(':').next().unwrap_or_default();
                path.rsplit('/')
                    .next()
                    .and_then(|file| file.split_once(".ko"))
                    .is_some_and(|(n, _)| n == name)
            })
        };
        match () {
            () if lists("modules.builtin") => Module::Loaded,
            () if !self.has("proc/modules") => Module::NoModules,
            () if lists("modules.dep") => Module::Loadable,
            () if self.has(&folder) => Module::Missing,
            () => Module::Unknown,
        }
    }

    pub(crate) fn devices(&self) -> Vec<RdmaDevice> {
        verbs_ibv::devices_under(&self.path("sys/class/infiniband"))
    }

    /// The name of the first soft-RoCE device.
    pub(crate) fn soft_roce(&self) -> Option<String> {
        self.devices().into_iter().find(|device| device.is_soft).map(|device| device.name)
    }

    pub(crate) fn interface(&self, name: &str) -> Interface {
        let of = |file: &str| self.read(&format!("sys/class/net/{name}/{file}"));
        let mtu = of("mtu").and_then(|mtu| mtu.parse().ok());
        // The state of loopback and tunnels is `unknown`.
        let up = !matches!(of("operstate").as_deref(), Some("down" | "lowerlayerdown"));
        Interface { name: name.to_owned(), mtu, up }
    }

    /// The addresses on which a device can be opened. Link-local addresses of IPv6 are left out, because they need a
    /// zone, for which RoCE has no field.
    pub(crate) fn usable_addresses(&self) -> impl Iterator<Item = &InterfaceAddress> {
        self.addresses.iter().filter(|entry| match entry.address {
            IpAddr::V4(_) => true,
            IpAddr::V6(ip) => !ip.is_unicast_link_local(),
        })
    }

    /// The sockets that hold UDP port 4791, with their processes where these are known.
    pub(crate) fn holders(&self) -> Vec<Held> {
        naa_udp::holders(&self.path("proc"), ROCE_PORT)
    }
}

/// The text of an error, without the class of the error and the remedy.
fn problem(error: &verbs::Error) -> String {
    let text = match error {
        verbs::Error::NoDevice(text) => text.clone(),
        other => other.to_string(),
    };
    text.split("; ").next().unwrap_or_default().to_owned()
}

/// Opens a socket like the embedded provider's, on a port that the kernel picks, and returns its properties.
fn probe() -> Result<Socket, naa_udp::Error> {
    let port = Port::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), &PortConfig::default())?;
    Ok(Socket { receive_buffer: port.recv_buffer(), gso: port.gso(), gro: port.gro() })
}
