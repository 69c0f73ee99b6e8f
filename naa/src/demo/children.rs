//! The processes of a demonstration. Each ends when its standard input does, so none outlives this one.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, bail};

use super::cases::Extent;

/// This program's file, also when it has been replaced meanwhile.
pub(crate) const EXECUTABLE: &str = "/proc/self/exe";
/// RoCEv2's UDP port, of which a server needs all of an address.
const ROCE_PORT: u16 = 4791;
/// Loopback addresses looked at.
const CANDIDATES: u32 = 64;

/// This program with other arguments.
fn this_program() -> Command {
    let mut command = Command::new(EXECUTABLE);
    command.arg0("naa").stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A loopback address without a RoCEv2 stack. Where the search begins differs from process to process.
fn free_address() -> anyhow::Result<IpAddr> {
    let first = std::process::id().wrapping_mul(CANDIDATES);
    for index in 0..CANDIDATES {
        // 127.0.1.1 is the machine's name on some systems; 127.0.0.1 is where servers usually are.
        let [_, _, high, low] = (first.wrapping_add(index) % (120 << 8) + (128 << 8)).to_be_bytes();
        let address = IpAddr::V4(Ipv4Addr::new(127, 0, high, low));
        if UdpSocket::bind((address, ROCE_PORT)).is_ok() {
            return Ok(address);
        }
    }
    bail!(
        "UDP port {ROCE_PORT} is taken on every loopback address tried; where kernel soft-RoCE holds it, \
         `modprobe -r rdma_rxe` frees it, or use another network namespace: `unshare -rn`, `ip link set lo up`"
    )
}

/// A server process that is ready.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    _stdin: Option<ChildStdin>,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start() -> anyhow::Result<Self> {
        // Between looking and binding somebody else may take an address.
        Self::start_at(free_address()?).or_else(|_| Self::start_at(free_address()?))
    }

    fn start_at(address: IpAddr) -> anyhow::Result<Self> {
        let mut command = this_program();
        command.args(["serve", "--port", "0", "--json", "--until-eof", "--bind", &address.to_string()]);
        let mut child = command.spawn().context("cannot start the server process")?;
        let stdin = child.stdin.take();
        let mut stdout = BufReader::new(child.stdout.take().context("the server process has no output")?);
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read from the server process")?;
        let address = ready_address(&line).with_context(|| match child.wait() {
            Ok(status) => format!("the server process did not start on {address}: {status}"),
            Err(error) => format!("the server process did not start on {address}: {error}"),
        })?;
        Ok(Self { child, address, _stdin: stdin, _stdout: stdout })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(mut self) {
        self._stdin = None;
        // All rows are there; how the server ends changes nothing.
        let _ = self.child.wait();
    }
}

/// From the line a server prints when it is ready.
fn ready_address(line: &str) -> Option<SocketAddr> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    ready.get("address")?.as_str()?.parse().ok()
}

/// A host process.
#[derive(Debug)]
pub(crate) struct Host {
    child: Child,
    address: IpAddr,
    _stdin: Option<ChildStdin>,
}

impl Host {
    pub(crate) fn start(server: SocketAddr, extent: Extent) -> anyhow::Result<Self> {
        let address = free_address()?;
        let mut command = this_program();
        command.args(["demo", "--host", &server.to_string(), "--local", &address.to_string()]);
        command.args(match extent {
            Extent::Quick => &["--quick"][..],
            Extent::Usual => &[],
            Extent::Full => &["--full"],
        });
        let mut child = command.spawn().context("cannot start the host process")?;
        let stdin = child.stdin.take();
        Ok(Self { child, address, _stdin: stdin })
    }

    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// What it prints, once.
    pub(crate) fn output(&mut self) -> Box<dyn std::io::Read> {
        match self.child.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(std::io::empty()),
        }
    }

    pub(crate) fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().context("cannot wait for the host process")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error: do not leave it behind as a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
