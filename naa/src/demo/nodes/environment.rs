//! Where the processes of a demonstration run: network namespaces on a bridge of the Linux kernel, or loopback addresses.

use std::{
    io::{BufRead as _, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, ensure};

const BRIDGE: &str = "events";
/// The MTU of a network for jumbo packets, as EJFAT's networks are.
const MTU: &str = "9000";

/// The processes of a demonstration that run at nodes of their own, and their addresses.
#[derive(Debug)]
pub(in crate::demo) struct Network {
    pub(in crate::demo) senders: usize,
    pub(in crate::demo) workers: usize,
    /// The second byte of IPv4 addresses, and the second group of IPv6 addresses.
    pub(in crate::demo) number: (u8, u16),
}

/// Where a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::demo) enum Node {
    /// The load balancer or the bridge, with the workers on the bridge's machine.
    Distributor,
    Sender(usize),
    Worker(usize),
}

impl Node {
    /// The last part of the node's addresses.
    fn host(self) -> u8 {
        match self {
            Self::Distributor => 1,
            Self::Sender(n) => 11 + n as u8,
            Self::Worker(n) => 21 + n as u8,
        }
    }
}

/// The options that choose the environment.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "environment_options")]
pub(in crate::demo) struct EnvironmentArgs {
    /// No namespaces: loopback addresses
    #[arg(long)]
    loopback: bool,
    /// The namespaces are made already
    #[arg(long, hide = true)]
    inside: bool,
}

impl EnvironmentArgs {
    /// Runs `demonstration` in network namespaces if this machine permits that, else on loopback addresses. `demonstration` gets
    /// a note that tells why it runs on loopback addresses, unless the user chose that.
    pub(in crate::demo) fn run(
        &self,
        network: &'static Network,
        demonstration: impl FnOnce(&Environment, Option<String>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut note = None;
        if !self.loopback && !self.inside {
            let Some(why) = refused() else { return enter() };
            note = Some(format!("no namespaces: {why}; on loopback addresses instead"));
        }
        let mut environment = Environment { network, holders: self.inside.then(Vec::new) };
        if self.inside {
            environment.make_namespaces()?;
        }
        demonstration(&environment, note)
    }
}

#[derive(Debug)]
pub(in crate::demo) struct Environment {
    network: &'static Network,
    /// With namespaces, each node has the namespace of a process that ends with this process. `None` on loopback addresses.
    holders: Option<Vec<(Node, Child)>>,
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

/// Why namespaces are not possible; `None` if they are.
fn refused() -> Option<String> {
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
fn enter() -> anyhow::Result<()> {
    let way = unshare().context("namespaces were permitted a moment ago")?;
    let mut command = Command::new("unshare");
    command.args(way).arg(this_program()?).args(std::env::args_os().skip(1)).arg("--inside");
    let status = command.status().context("cannot run unshare")?;
    if status.success() { Ok(()) } else { std::process::exit(status.code().unwrap_or(1)) }
}

fn ip(arguments: &str) -> anyhow::Result<()> {
    run("ip", &arguments.split(' ').collect::<Vec<_>>())
}

impl Environment {
    /// Makes the namespaces of all nodes. This process must be in a namespace of its own, which becomes that of the
    /// distributor.
    fn make_namespaces(&mut self) -> anyhow::Result<()> {
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE} mtu {MTU} type bridge"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        for address in self.addresses_of(Node::Distributor) {
            ip(&address_command(address, BRIDGE))?;
        }
        let Network { senders, workers, .. } = *self.network;
        let mut nodes = (0..senders).map(Node::Sender).chain((0..workers).map(Node::Worker));
        nodes.try_for_each(|node| self.add(node))
    }

    fn add(&mut self, node: Node) -> anyhow::Result<()> {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = holder.spawn().context("cannot run unshare")?;
        let stdout = holder.stdout.take().context("unshare has no output")?;
        BufReader::new(stdout).read_line(&mut String::new()).context("unshare ended")?;
        let (link, id) = (format!("to-{}", node.host()), holder.id());
        ip(&format!("link add {link} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {id}"))?;
        ip(&format!("link set {link} master {BRIDGE} up"))?;
        let addresses = self.addresses_of(node);
        self.holders.get_or_insert_default().push((node, holder));
        let inside = |arguments: &str| {
            let enter = format!("--net=/proc/{id}/ns/net");
            run("nsenter", &[&[&*enter, "ip"][..], &arguments.split(' ').collect::<Vec<_>>()].concat())
        };
        inside("link set lo up")?;
        inside("link set eth0 up")?;
        addresses.iter().try_for_each(|&address| inside(&address_command(address, "eth0")))
    }

    fn addresses_of(&self, node: Node) -> [IpAddr; 2] {
        let (host, (v4, v6)) = (node.host(), self.network.number);
        match (&self.holders, node) {
            (Some(_), _) => {
                let v6 = Ipv6Addr::new(0xfd00, v6, 0, 0, 0, 0, 0, host.into());
                [Ipv4Addr::new(10, v4, 0, host).into(), v6.into()]
            }
            // Programs that bind no address send from the first loopback address.
            (None, Node::Sender(_)) => [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            (None, _) => [Ipv4Addr::new(127, v4, 0, host).into(), Ipv6Addr::LOCALHOST.into()],
        }
    }

    pub(in crate::demo) fn name(&self) -> &'static str {
        if self.holders.is_some() { "namespaces" } else { "loopback" }
    }

    /// The address of a node's RDMA device.
    pub(in crate::demo) fn ip(&self, node: Node) -> IpAddr {
        self.addresses_of(node)[0]
    }

    /// The addresses at which a node listens or from which it sends, over IPv4 and IPv6.
    pub(in crate::demo) fn at(&self, node: Node) -> [SocketAddr; 2] {
        let port = match (&self.holders, node) {
            (Some(_), Node::Distributor) => ejfat::wire::DATA_PORT,
            // The system chooses the port, because nodes and other programs share loopback addresses.
            _ => 0,
        };
        self.addresses_of(node).map(|ip| SocketAddr::new(ip, port))
    }

    /// A command that runs this program at a node.
    pub(in crate::demo) fn command(&self, node: Node) -> anyhow::Result<Command> {
        let holder = self.holders.iter().flatten().find(|(of, _)| *of == node);
        let Some((_, holder)) = holder else { return Ok(Command::new(this_program()?)) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", holder.id())).arg(this_program()?);
        Ok(command)
    }
}

fn address_command(address: IpAddr, device: &str) -> String {
    match address {
        IpAddr::V4(_) => format!("addr add {address}/24 dev {device}"),
        IpAddr::V6(_) => format!("addr add {address}/64 dev {device} nodad"),
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        for (_, holder) in self.holders.iter_mut().flatten() {
            // This fails if the process has ended already.
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
