//! The places of the processes: network namespaces on a bridge of the Linux kernel, or loopback addresses.

use std::{
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};

pub(super) const SENDERS: usize = 3;
pub(super) const WORKERS: usize = 4;

const BRIDGE: &str = "events";
/// The MTU of a network for jumbo packets, as EJFAT's networks are.
const MTU: &str = "9000";

/// The place of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Balancer,
    Sender(usize),
    Worker(usize),
}

impl Node {
    fn all() -> impl Iterator<Item = Self> {
        (0..SENDERS).map(Self::Sender).chain((0..WORKERS).map(Self::Worker))
    }

    /// The last part of the node's addresses.
    fn host(self) -> u8 {
        match self {
            Self::Balancer => 1,
            Self::Sender(n) => 11 + n as u8,
            Self::Worker(n) => 21 + n as u8,
        }
    }
}

#[derive(Debug)]
pub(super) enum Stage {
    /// Each node has the namespace of a process that ends with this process.
    Namespaces(Vec<(Node, Child)>),
    Loopback,
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    let problem = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{program} {}`: {}", arguments.join(" "), problem.trim());
    Ok(())
}

/// The options with which `unshare` can make a network namespace, if it can. A user namespace is tried first; root
/// needs none, which helps on machines that refuse user namespaces.
fn unshare() -> Option<Vec<&'static str>> {
    let ways = [vec!["--user", "--map-root-user", "--net"], vec!["--net"]];
    ways.into_iter().find(|way| {
        let probe = [&way[..], &["ip", "link", "add", BRIDGE, "type", "bridge"]].concat();
        run("unshare", &probe).is_ok()
    })
}

/// The path of this program's file. /proc/self/exe is not used, because processes in other user namespaces cannot open
/// it.
fn this_program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot tell this program's path")
}

impl Stage {
    /// Why namespaces are not possible; `None` if they are.
    pub(super) fn refused() -> Option<String> {
        let tools = ["unshare", "nsenter", "ip"];
        let missing = tools.into_iter().find(|tool| {
            let tried = Command::new(tool).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
            tried.is_err()
        });
        match missing {
            Some(tool) => Some(format!("there is no program `{tool}`; install util-linux and iproute2")),
            None if unshare().is_none() => Some("this machine does not permit them to this user".into()),
            None => None,
        }
    }

    /// Runs this command again in a network namespace of its own.
    pub(super) fn enter() -> anyhow::Result<()> {
        let way = unshare().context("namespaces were permitted a moment ago")?;
        let mut command = Command::new("unshare");
        command.args(way).arg(this_program()?).args(std::env::args_os().skip(1)).arg("--inside");
        let status = command.status().context("cannot run unshare")?;
        if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
    }

    pub(super) fn loopback() -> Self {
        Self::Loopback
    }

    /// Makes the namespaces of all nodes. This process must be in a namespace of its own, which becomes that of the
    /// load balancer.
    pub(super) fn namespaces() -> anyhow::Result<Self> {
        let ip = |arguments: &str| run("ip", &arguments.split(' ').collect::<Vec<_>>());
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE} mtu {MTU} type bridge"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        let mut stage = Self::Namespaces(Vec::new());
        for address in stage.addresses_of(Node::Balancer) {
            ip(&address_command(address, BRIDGE))?;
        }
        for node in Node::all() {
            stage.add(node)?;
        }
        Ok(stage)
    }

    fn add(&mut self, node: Node) -> anyhow::Result<()> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().context("cannot run unshare")?;
        let stdout = holder.stdout.take().context("unshare has no output")?;
        BufReader::new(stdout).read_line(&mut String::new()).context("unshare ended")?;
        let (link, id) = (format!("to-{}", node.host()), holder.id());
        let ip = |arguments: &str| run("ip", &arguments.split(' ').collect::<Vec<_>>());
        ip(&format!("link add {link} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {id}"))?;
        ip(&format!("link set {link} master {BRIDGE} up"))?;
        let addresses = self.addresses_of(node);
        let Self::Namespaces(holders) = self else { return Ok(()) };
        holders.push((node, holder));
        let inside = |arguments: &str| {
            let enter = format!("--net=/proc/{id}/ns/net");
            run("nsenter", &[&[&*enter, "ip"][..], &arguments.split(' ').collect::<Vec<_>>()].concat())
        };
        inside("link set lo up")?;
        inside("link set eth0 up")?;
        addresses.iter().try_for_each(|&address| inside(&address_command(address, "eth0")))
    }

    fn addresses_of(&self, node: Node) -> [IpAddr; 2] {
        let host = node.host();
        match self {
            Self::Namespaces(_) => {
                let v6 = Ipv6Addr::new(0xfd00, 0x91, 0, 0, 0, 0, 0, host.into());
                [Ipv4Addr::new(10, 91, 0, host).into(), v6.into()]
            }
            // Programs that bind no address send from the first loopback address.
            Self::Loopback if matches!(node, Node::Sender(_)) => {
                [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
            }
            Self::Loopback => [Ipv4Addr::new(127, 91, 0, host).into(), Ipv6Addr::LOCALHOST.into()],
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Namespaces(_) => "namespaces",
            Self::Loopback => "loopback",
        }
    }

    /// The addresses at which a node listens or from which it sends, over IPv4 and IPv6.
    pub(super) fn at(&self, node: Node) -> [SocketAddr; 2] {
        let port = match (self, node) {
            (Self::Namespaces(_), Node::Balancer) => ejfat::wire::DATA_PORT,
            // Nodes share an IPv6 address on loopback.
            _ => 0,
        };
        self.addresses_of(node).map(|ip| SocketAddr::new(ip, port))
    }

    /// A command that runs this program at a node.
    pub(super) fn command(&self, node: Node) -> anyhow::Result<Command> {
        let holder = match self {
            Self::Namespaces(holders) => {
                holders.iter().find(|(of, _)| *of == node).map(|(_, holder)| holder.id())
            }
            Self::Loopback => None,
        };
        let mut command = match holder {
            Some(id) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net=/proc/{id}/ns/net")).arg(this_program()?);
                command
            }
            None => Command::new(this_program()?),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(command)
    }
}

fn address_command(address: IpAddr, device: &str) -> String {
    match address {
        IpAddr::V4(_) => format!("addr add {address}/24 dev {device}"),
        IpAddr::V6(_) => format!("addr add {address}/64 dev {device} nodad"),
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let Self::Namespaces(holders) = self else { return };
        for (_, holder) in holders {
            // This fails if the process has ended already.
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
