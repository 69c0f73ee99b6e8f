//! The processes of a demonstration. Each ends when its standard input ends, so none outlives this process.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use anyhow::Context as _;
use naa_provider::ProviderChoice;

use super::cases::Extent;
use crate::provider::own_address;

/// The file of this program, even if it was replaced meanwhile.
pub(crate) const EXECUTABLE: &str = "/proc/self/exe";

/// A command that starts this program with other arguments.
fn this_program() -> Command {
    let mut command = Command::new(EXECUTABLE);
    command.arg0("naa").stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A server process that is ready.
#[derive(Debug)]
pub(crate) struct ServerProcess {
    child: Child,
    address: SocketAddr,
    why: String,
    _stdout: BufReader<ChildStdout>,
}

impl ServerProcess {
    pub(crate) fn start(choice: ProviderChoice) -> anyhow::Result<Self> {
        // Another program may take the address after it was found free and before it is bound. So a second one is
        // tried.
        Self::start_at(own_address(choice)?, choice).or_else(|_| Self::start_at(own_address(choice)?, choice))
    }

    fn start_at(address: IpAddr, choice: ProviderChoice) -> anyhow::Result<Self> {
        let mut command = this_program();
        command.args(["serve", "--port", "0", "--json", "--until-eof", "--bind", &address.to_string()]);
        command.args(["--provider", choice.name()]);
        let mut child = command.spawn().context("cannot start the server process")?;
        let mut stdout = BufReader::new(child.stdout.take().context("the server process has no output")?);
        let mut line = String::new();
        stdout.read_line(&mut line).context("cannot read from the server process")?;
        let (address, why) = ready(&line).with_context(|| match child.wait() {
            Ok(status) => format!("the server process did not start on {address}: {status}"),
            Err(error) => format!("the server process did not start on {address}: {error}"),
        })?;
        Ok(Self { child, address, why, _stdout: stdout })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The server's provider, and why it was chosen.
    pub(crate) fn why(&self) -> &str {
        &self.why
    }

    /// The server's process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn end(mut self) {
        // The wait closes the standard input of the server, which then ends. All rows are there, so it does not matter how.
        let _ = self.child.wait();
    }
}

/// Reads the address of the server, and why it uses its provider, from the line that a server prints when it is ready.
fn ready(line: &str) -> Option<(SocketAddr, String)> {
    let ready: serde_json::Value = serde_json::from_str(line).ok()?;
    let text = |name| ready.get(name)?.as_str();
    Some((text("address")?.parse().ok()?, text("why")?.to_owned()))
}

/// A host process.
#[derive(Debug)]
pub(crate) struct HostProcess {
    child: Child,
    address: IpAddr,
    _stdin: Option<ChildStdin>,
}

impl HostProcess {
    pub(crate) fn start(server: SocketAddr, choice: ProviderChoice, extent: Extent) -> anyhow::Result<Self> {
        let address = own_address(choice)?;
        let mut command = this_program();
        command.args(["demo", "--host", &server.to_string(), "--local", &address.to_string()]);
        command.args(["--provider", choice.name()]);
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

    /// The lines that the process prints. They can be taken only once.
    pub(crate) fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        self.child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok))
    }

    pub(crate) fn wait(mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().context("cannot wait for the host process")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The process still runs only after an error. It is killed and waited for, so that no zombie stays.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
