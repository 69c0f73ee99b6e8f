//! Data planes: each has a thread, which connects, and then makes the calls that the control plane asks for, in their order.
//!
//! ```text
//! Core ─ Call, with a connection's number ─► thread ─► Port: this process, naa.lb.v1, sn_p4.v2
//!   ▲                                          │
//!   └──── Told: connected, answered, ended ────┘
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
    time::Duration,
};

use ejfat_control::plane::{Answer, Call, Outcome, PlaneId, PlaneKind};
use ejfat_lb::Plane;
use naa_grpc::Credentials;

pub use smartnic::Link;

/// How long a call of a data plane may take. Control planes count a data plane as lost after this time.
const DEADLINE: Duration = Duration::from_secs(2);
/// After a connection that could not be made, the next one is tried so much later; twice as late after each, up to the second.
const AGAIN: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(2);

/// How a data plane is reached.
#[derive(Clone, Debug)]
pub enum PlaneAddress {
    /// It is in this process.
    Local(Arc<Plane>),
    /// Service `naa.lb.v1`, at HOST:PORT.
    Staged { address: String, credentials: Credentials },
    /// Service `sn_p4.v2`, at HOST:PORT.
    SmartNic { address: String, credentials: Credentials, link: Link },
}

impl PlaneAddress {
    pub fn kind(&self) -> PlaneKind {
        match self {
            Self::Local(_) | Self::Staged { .. } => PlaneKind::Staged,
            Self::SmartNic { .. } => PlaneKind::RuleByRule,
        }
    }

    /// The name that people read.
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

/// A data plane that can be called.
trait Port {
    /// Makes a call.
    ///
    /// # Errors
    /// If there is no answer: the connection is over.
    fn call(&mut self, call: &Call) -> Result<Outcome, String>;
}

/// What a thread tells of its data plane. `connection` numbers its connections, from 1 on.
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
    /// There is no connection, or none any more.
    Ended(String),
}

/// What the core asks a thread for. The number is that of the connection.
#[derive(Debug)]
enum Asked {
    Call(u64, Call),
    Disconnect(u64, String),
}

/// The core's end of a data plane.
#[derive(Debug)]
pub(crate) struct PlaneHandle {
    pub(crate) name: String,
    pub(crate) kind: PlaneKind,
    calls: Sender<Asked>,
    /// The connection that is in use; `None`: there is none.
    pub(crate) connection: Option<u64>,
    /// Why there is none.
    pub(crate) why: Option<String>,
}

impl PlaneHandle {
    /// Starts the thread. It ends when the handle is dropped and no call is under way.
    ///
    /// # Errors
    /// If there is no thread.
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

    /// Makes no more calls over the present connection. The thread makes another one when its call has ended.
    pub(crate) fn disconnect(&mut self, why: &str) {
        if let Some(connection) = self.connection.take() {
            self.why = Some(why.to_owned());
            let _ = self.calls.send(Asked::Disconnect(connection, why.to_owned()));
        }
    }

    /// Gives a call to the data plane. The control plane bounds how many wait.
    pub(crate) fn call(&self, call: Call) {
        if let Some(connection) = self.connection {
            // A thread that has ended has panicked, and said so.
            let _ = self.calls.send(Asked::Call(connection, call));
        }
    }
}

fn run(plane: PlaneId, address: &PlaneAddress, calls: &Receiver<Asked>, tell: impl Fn(Told)) {
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
        // Calls of the connection that is over are not made any more.
        match calls.recv_timeout(again) {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        again = (again * 2).min(LATEST);
    }
}

/// Returns why the connection ended; `None` if the core has.
fn serve(
    plane: PlaneId,
    connection: u64,
    port: &mut dyn Port,
    calls: &Receiver<Asked>,
    tell: &impl Fn(Told),
) -> Option<String> {
    loop {
        let call = match calls.recv().ok()? {
            Asked::Call(of, call) if of == connection => call,
            Asked::Disconnect(of, why) if of == connection => return Some(why),
            Asked::Call(..) | Asked::Disconnect(..) => continue,
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
