//! The connections to data planes. Each data plane has a thread, which connects to it and then makes the control plane's calls in
//! their order.
//!
//! ```text
//! Core ─ Command: a call, with the connection's number ─► thread ─► Port: this process, naa.lb.v1, sn_p4.v2
//!   ▲                                                        │
//!   └──────── Told: connected, answered, ended ──────────────┘
//! ```

mod local;
mod smartnic;
mod staged;

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use ejfat_control::plane::{Answer, Call, Outcome, PlaneId, PlaneKind};
use ejfat_lb::Plane;
use naa_grpc::Credentials;

pub use smartnic::Link;

/// The longest time that a call of a data plane may take. The control plane counts a data plane as lost after this time.
const DEADLINE: Duration = Duration::from_secs(2);
/// The time from the end of a connection until the next one is tried. It doubles after each failure to connect, up to [`LATEST`].
const AGAIN: Duration = Duration::from_millis(100);
/// The longest time until the next connection is tried.
const LATEST: Duration = Duration::from_secs(2);

/// Where a data plane is, and by which protocol it is programmed.
#[derive(Clone, Debug)]
pub enum PlaneAddress {
    /// The data plane is in this process.
    Local(Arc<Plane>),
    /// A data plane with the service `naa.lb.v1`; `address` is `HOST:PORT`.
    Staged { address: String, credentials: Credentials },
    /// A SmartNIC with the service `sn_p4.v2`; `address` is `HOST:PORT`.
    SmartNic { address: String, credentials: Credentials, link: Link },
}

impl PlaneAddress {
    pub fn kind(&self) -> PlaneKind {
        match self {
            Self::Local(_) | Self::Staged { .. } => PlaneKind::Staged,
            Self::SmartNic { .. } => PlaneKind::RuleByRule,
        }
    }

    /// The name of the data plane in the log and in statuses.
    pub fn name(&self) -> String {
        match self {
            Self::Local(_) => "this process".to_owned(),
            Self::Staged { address, .. } => format!("naa.lb.v1 at {address}"),
            Self::SmartNic { address, .. } => format!("sn_p4.v2 at {address}"),
        }
    }

    fn connect(&self) -> Result<Box<dyn Port>, String> {
        match self {
            Self::Local(plane) => Ok(Box::new(local::Local(plane.clone()))),
            Self::Staged { address, credentials } => {
                Ok(Box::new(staged::Staged::connect(address, credentials)?))
            }
            Self::SmartNic { address, credentials, link } => {
                Ok(Box::new(smartnic::SmartNic::connect(address, credentials, link.clone())?))
            }
        }
    }
}

/// A connection to a data plane.
trait Port {
    /// Makes a call and waits for its answer.
    ///
    /// # Errors
    /// If there is no answer. The connection must not be used any more.
    fn call(&mut self, call: &Call) -> Result<Outcome, String>;
}

/// What a thread reports of its data plane. `connection` is the number of the connection, which counts from 1.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) plane: PlaneId,
    pub(crate) connection: u64,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Connected,
    Answered(Answer),
    /// Connecting failed, or the connection has ended, for this reason.
    Ended(String),
}

/// What the core orders a thread to do. The number is that of the connection for which the command is meant.
#[derive(Debug)]
enum Command {
    Call(u64, Call),
    Disconnect(u64, String),
}

/// The core's view of a data plane and of its thread.
#[derive(Debug)]
pub(crate) struct PlaneHandle {
    pub(crate) name: String,
    pub(crate) kind: PlaneKind,
    calls: Sender<Command>,
    /// The number of the connection that is in use, or `None` if there is none.
    pub(crate) connection: Option<u64>,
    /// Why no connection is in use. `None` if one is, or before the first attempt has ended.
    pub(crate) why: Option<String>,
}

impl PlaneHandle {
    /// Starts the thread. It ends when the handle is dropped and the call that it makes has ended.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        plane: PlaneId,
        address: PlaneAddress,
        tell: impl Fn(Told) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (calls, asked) = mpsc::channel();
        let (name, kind) = (address.name(), address.kind());
        let run = move || run(plane, &address, &asked, tell);
        thread::Builder::new().name(format!("naa-plane-{}", plane.0)).spawn(run)?;
        Ok(Self { name, kind, calls, connection: None, why: None })
    }

    /// Gives up the connection that is in use. The thread connects again when the call that it makes has ended.
    pub(crate) fn disconnect(&mut self, why: &str) {
        if let Some(connection) = self.connection.take() {
            self.why = Some(why.to_owned());
            let _ = self.calls.send(Command::Disconnect(connection, why.to_owned()));
        }
    }

    /// Passes a call to the thread, or drops it if there is no connection. The control plane limits how many calls wait.
    pub(crate) fn call(&self, call: Call) {
        if let Some(connection) = self.connection {
            // Sending fails only if the thread has panicked, which has been reported.
            let _ = self.calls.send(Command::Call(connection, call));
        }
    }
}

fn run(plane: PlaneId, address: &PlaneAddress, calls: &Receiver<Command>, tell: impl Fn(Told)) {
    let (mut connection, mut again) = (0, AGAIN);
    loop {
        connection += 1;
        let why = match address.connect() {
            Err(why) => why,
            Ok(mut port) => {
                again = AGAIN;
                tell(Told { plane, connection, what: What::Connected });
                match serve(plane, connection, &mut *port, calls, &tell) {
                    Some(why) => why,
                    None => return,
                }
            }
        };
        tell(Told { plane, connection, what: What::Ended(why) });
        let until = Instant::now() + again;
        loop {
            match calls.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // The command was meant for the connection that has ended.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        again = (again * 2).min(LATEST);
    }
}

/// Makes the calls of one connection. Returns why the connection ended, or `None` if the core has ended.
fn serve(
    plane: PlaneId,
    connection: u64,
    port: &mut dyn Port,
    calls: &Receiver<Command>,
    tell: &impl Fn(Told),
) -> Option<String> {
    loop {
        let call = match calls.recv().ok()? {
            Command::Call(of, call) if of == connection => call,
            Command::Disconnect(of, why) if of == connection => return Some(why),
            Command::Call(..) | Command::Disconnect(..) => continue,
        };
        match port.call(&call) {
            Ok(outcome) => {
                let answer = Answer { plane, number: call.number, outcome };
                tell(Told { plane, connection, what: What::Answered(answer) });
            }
            Err(why) => return Some(why),
        }
    }
}
