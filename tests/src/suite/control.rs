//! What the cases ask of the far side, over TCP: one line of JSON each way.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{driver::Request as DriverRequest, leaks::Usage};

/// Longer than anything the far side is asked to do.
const TIME_LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Waiting {
    Spin,
    Block,
    Adaptive,
}

impl From<Waiting> for verbs::WaitMode {
    fn from(waiting: Waiting) -> Self {
        match waiting {
            Waiting::Spin => Self::Spin,
            Waiting::Block => Self::Block,
            Waiting::Adaptive => Self::Adaptive,
        }
    }
}

/// How a server differs from the usual one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ServerConfig {
    pub(super) max_sessions: usize,
    /// Networks; none for everyone.
    pub(super) allow: Vec<String>,
    pub(super) call_ms: u64,
    pub(super) waiting: Waiting,
    /// Parameters of a session with a layout; 0: layouts are not known.
    pub(super) max_slots: u8,
    /// Received datagrams of a million that the embedded provider loses on purpose.
    pub(super) loss_per_million: u32,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_sessions: 64,
            allow: Vec::new(),
            call_ms: 600_000,
            waiting: Waiting::Adaptive,
            max_slots: u8::MAX,
            loss_per_million: 0,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Run a server, in the place of what ran before; answers with its address.
    Serve(ServerConfig),
    /// End what runs: a server disconnects its sessions.
    Stop,
    /// What the process holds.
    Usage,
    /// Sessions of the server.
    Sessions,
    /// The server's provider.
    Provider,
    /// Be stopped for so many milliseconds, soon.
    Pause(u64),
    #[serde(rename = "Seam")]
    Driver(DriverRequest),
}

pub(super) type Answer = Result<Value, String>;

/// The far side, as the cases see it.
#[derive(Debug)]
pub(super) struct Control {
    stream: BufReader<TcpStream>,
}

impl Control {
    pub(super) fn connect(to: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(to).map_err(|e| format!("no far side at {to}: {e}"))?;
        let told = stream.set_read_timeout(Some(TIME_LIMIT)).and_then(|()| stream.set_nodelay(true));
        told.map_err(|e| format!("the far side at {to}: {e}"))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(super) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, String> {
        let mut line = serde_json::to_string(request).map_err(|e| e.to_string())?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|e| format!("the far side: {e}"))?;
        line.clear();
        let read = self.stream.read_line(&mut line).map_err(|e| format!("the far side: {e}"))?;
        if read == 0 {
            return Err("the far side is gone; its log says why".into());
        }
        let answer: Answer =
            serde_json::from_str(&line).map_err(|e| format!("the far side says {line:?}: {e}"))?;
        let value = answer.map_err(|why| format!("far side: {why}"))?;
        serde_json::from_value(value).map_err(|e| format!("the far side says {line:?}: {e}"))
    }

    pub(super) fn serve(&mut self, settings: &ServerConfig) -> Result<SocketAddr, String> {
        self.ask(&Request::Serve(settings.clone()))
    }

    pub(super) fn stop(&mut self) -> Result<(), String> {
        self.ask(&Request::Stop)
    }

    pub(super) fn usage(&mut self) -> Result<Usage, String> {
        self.ask(&Request::Usage)
    }
}
