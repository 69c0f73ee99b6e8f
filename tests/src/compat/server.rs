//! The servers that recordings are replayed against: this project's programs, as a user starts them.

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use super::{GRPC_PORT, SERVER, TOKEN, WORKER_PORT};

/// What a recording needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `naa serve`
    Accelerator,
    /// `naa bridge`
    Bridge,
    /// `naa lb forward --grpc`
    LoadBalancer,
}

/// A server that is ready. It ends when this is dropped, and when this process ends.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    _stdin: Option<ChildStdin>,
    // A server whose standard output nobody reads any more would end.
    _stdout: BufReader<ChildStdout>,
}

/// The project's program, which cargo leaves beside this one.
pub(super) fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot tell this program's path: {e}"))?;
    let naa = own.with_file_name("naa");
    if naa.is_file() { Ok(naa) } else { Err(format!("{} is missing: build the workspace", naa.display())) }
}

impl ServerProcess {
    pub(super) fn start(kind: Kind) -> Result<Self, String> {
        let server = SERVER.to_string();
        let (grpc, port) = (format!("{SERVER}:{GRPC_PORT}"), WORKER_PORT.to_string());
        let words: &[&str] = match kind {
            Kind::Accelerator => &["serve", "--bind", &server, "--port", &port],
            Kind::Bridge => &["bridge", "--listen", &server, "--bind", &server, "--port", &port],
            Kind::LoadBalancer => &["lb", "forward", "--listen", &server, "--grpc", &grpc, "--token", TOKEN],
        };
        let mut command = Command::new(program()?);
        command.args(words).args(["--json", "--until-eof"]).env("NAA_PROVIDER", "embedded");
        // Recordings have requests that are refused.
        command.env("NAA_LOG", "error");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("cannot start {command:?}: {e}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        let mut server = Self { child, _stdin: stdin, _stdout: BufReader::new(stdout) };
        let mut line = String::new();
        let read = server._stdout.read_line(&mut line).map_err(|e| format!("the server: {e}"))?;
        if read == 0 || !line.contains("\"ready\"") {
            return Err(format!("{command:?} does not become ready: {line:?}"));
        }
        Ok(server)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself; what matters is that it is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
