//! The connections to data planes. Each data plane has a thread, which connects to it and then makes the control plane's calls in
//! their order.
//!
//! ```text
//! Core ─ Command: a call, with the connection's number ─► thread ─► Port: this process, naa.lb.v1, sn_p4.v2
//!   ▲                                                        │
//!   └──────── PlaneReport: connected, answered, ended ───────┘
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

use ejfat_control::{
    plane::{Answer, Call, Outcome, PlaneId, PlaneKind},
    wall::WallTime,
};
use ejfat_lb::SharedDataPlane;
use naa_grpc::Credentials;

pub use smartnic::SmartNicNetwork;

/// The longest time that a call of a data plane may take. The control plane counts a data plane as lost after this time.
const DEADLINE: Duration = Duration::from_secs(2);
/// The time from the end of a connection until the next one is tried. It doubles up to [`LATEST`] after each failure to connect, and
/// after each connection that was shorter than that.
const RETRY: Duration = Duration::from_millis(100);
/// The longest time until the next connection is tried.
const LATEST: Duration = Duration::from_secs(2);

/// Where a data plane is, and by which protocol it is programmed.
#[derive(Clone, Debug)]
pub enum PlaneAddress {
    /// The data plane is in this process.
    Local(Arc<SharedDataPlane>),
    /// A data plane with the service `naa.lb.v1`; `address` is `HOST:PORT`.
    Staged {
        /// The host and port of the data plane, as `HOST:PORT`.
        address: String,
        /// The token and the TLS files for the connection to the data plane.
        credentials: Credentials,
    },
    /// A SmartNIC with the service `sn_p4.v2`; `address` is `HOST:PORT`.
    SmartNic {
        /// The host and port of the SmartNIC's agent, as `HOST:PORT`.
        address: String,
        /// The token and the TLS files for the connection to the SmartNIC's agent.
        credentials: Credentials,
        /// The addresses that the SmartNIC uses on its network.
        network: SmartNicNetwork,
    },
}

impl PlaneAddress {
    /// Returns the kind of the data plane, which decides whether tables are staged or rules are changed one by one.
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
            Self::SmartNic { address, credentials, network } => {
                Ok(Box::new(smartnic::SmartNic::connect(address, credentials, network.clone())?))
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
pub(crate) struct PlaneReport {
    pub(crate) plane: PlaneId,
    pub(crate) connection: u64,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Connected,
    Answered(Answer),
    /// Connecting failed, or the connection has ended by itself, for this reason.
    Ended(String),
}

/// What the core orders a thread to do. The number is that of the connection for which the command is meant.
#[derive(Debug)]
enum Command {
    Call(u64, Call),
    Disconnect(u64),
}

/// The core's view of a data plane and of its thread.
#[derive(Debug)]
pub(crate) struct PlaneHandle {
    pub(crate) name: String,
    pub(crate) kind: PlaneKind,
    calls: Sender<Command>,
    /// The number of the connection that is in use, or `None` if there is none.
    connection: Option<u64>,
    /// Why the data plane cannot be programmed. `None` if it can, and before the first attempt has ended.
    away: Option<Away>,
    /// Whether the thread has said why there is no connection.
    has_ended: bool,
}

/// Why a data plane cannot be programmed, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// The time from which on the data plane could not be programmed.
    pub since: WallTime,
    /// The reason why the data plane cannot be programmed, as text for people.
    pub why: String,
}

impl PlaneHandle {
    /// Starts the thread. It ends when the handle is dropped and the call that it makes has ended.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn start(
        plane: PlaneId,
        address: PlaneAddress,
        report: impl Fn(PlaneReport) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (calls, asked) = mpsc::channel();
        let (name, kind) = (address.name(), address.kind());
        let run = move || run(plane, &address, &asked, report);
        thread::Builder::new().name(format!("naa-plane-{}", plane.0)).spawn(run)?;
        Ok(Self { name, kind, calls, connection: None, away: None, has_ended: false })
    }

    pub(crate) fn is_connected_by(&self, connection: u64) -> bool {
        self.connection == Some(connection)
    }

    pub(crate) fn away(&self) -> Option<&Away> {
        self.away.as_ref()
    }

    /// Notes a new connection. The data plane is not in use before it has been claimed.
    pub(crate) fn connected(&mut self, connection: u64) {
        (self.connection, self.has_ended) = (Some(connection), false);
    }

    /// Notes that the thread could not connect, or that its connection has ended. Returns whether that connection was in use.
    pub(crate) fn ended(&mut self, connection: u64, why: String, now: WallTime) -> bool {
        self.has_ended = true;
        self.set_away(why, now);
        self.connection.take() == Some(connection)
    }

    /// Notes that the control plane programs the data plane from now on.
    pub(crate) fn in_use(&mut self) {
        self.away = None;
        tracing::info!("data plane {} is in use", self.name);
    }

    /// Notes that the control plane has lost the data plane. If the thread said why, that reason stays.
    pub(crate) fn lost(&mut self, why: String, now: WallTime) {
        if !self.has_ended {
            self.set_away(why, now);
        }
    }

    /// The log gets a line for each reason, and not for each attempt.
    fn set_away(&mut self, why: String, now: WallTime) {
        let since = self.away.as_ref().map_or(now, |away| away.since);
        if self.away.as_ref().is_none_or(|away| away.why != why) {
            tracing::warn!("data plane {} is not in use: {why}; it is tried again and again", self.name);
        }
        self.away = Some(Away { since, why });
    }

    /// Gives up the connection that is in use. The thread connects again when the call that it makes has ended.
    pub(crate) fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = self.calls.send(Command::Disconnect(connection));
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

fn run(plane: PlaneId, address: &PlaneAddress, calls: &Receiver<Command>, report: impl Fn(PlaneReport)) {
    let (mut connection, mut wait) = (0, RETRY);
    loop {
        connection += 1;
        let began = Instant::now();
        let end = match address.connect() {
            Err(why) => End::ByItself(why),
            Ok(mut port) => {
                report(PlaneReport { plane, connection, what: What::Connected });
                let end = serve(plane, connection, &mut *port, calls, &report);
                if began.elapsed() >= LATEST {
                    wait = RETRY;
                }
                end
            }
        };
        match end {
            End::ByItself(why) => report(PlaneReport { plane, connection, what: What::Ended(why) }),
            End::Ordered => {}
            End::OfCore => return,
        }
        let until = Instant::now() + wait;
        loop {
            match calls.recv_timeout(until.saturating_duration_since(Instant::now())) {
                // The command was meant for the connection that has ended.
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        wait = (wait * 2).min(LATEST);
    }
}

/// How a connection ended.
enum End {
    /// It could not be made, or it was lost, for this reason.
    ByItself(String),
    /// The core gave it up, and knows why.
    Ordered,
    /// The core has ended.
    OfCore,
}

/// Makes the calls of one connection.
fn serve(
    plane: PlaneId,
    connection: u64,
    port: &mut dyn Port,
    calls: &Receiver<Command>,
    report: &impl Fn(PlaneReport),
) -> End {
    loop {
        let call = match calls.recv() {
            Ok(Command::Call(of, call)) if of == connection => call,
            Ok(Command::Disconnect(of)) if of == connection => return End::Ordered,
            Ok(Command::Call(..) | Command::Disconnect(..)) => continue,
            Err(_) => return End::OfCore,
        };
        match port.call(&call) {
            Ok(outcome) => {
                let answer = Answer { plane, number: call.number, outcome };
                report(PlaneReport { plane, connection, what: What::Answered(answer) });
            }
            Err(why) => return End::ByItself(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> PlaneHandle {
        PlaneHandle {
            name: "plane".into(),
            kind: PlaneKind::Staged,
            calls: mpsc::channel().0,
            connection: None,
            away: None,
            has_ended: false,
        }
    }

    #[test]
    fn a_plane_is_away_since_it_was_in_use_last_for_the_newest_reason() {
        let mut plane = handle();
        assert!(!plane.ended(1, "nobody listens".into(), WallTime(1)), "it was never connected");
        plane.connected(2);
        plane.lost("not the token".into(), WallTime(2));
        assert_eq!(plane.away(), Some(&Away { since: WallTime(1), why: "not the token".into() }));
        plane.in_use();
        assert_eq!(plane.away(), None);
        assert!(plane.ended(2, "it was killed".into(), WallTime(3)));
        plane.lost("the connection ended".into(), WallTime(4));
        assert_eq!(plane.away(), Some(&Away { since: WallTime(3), why: "it was killed".into() }));
    }

    #[test]
    fn a_plane_that_gives_connections_up_at_once_is_tried_less_and_less_often() {
        let (calls, asked) = mpsc::channel();
        let (reports, connected) = mpsc::channel();
        let thread = thread::spawn(move || {
            let local = PlaneAddress::Local(Arc::new(SharedDataPlane::new(ejfat::lb::Rules::default(), 1)));
            run(PlaneId(0), &local, &asked, |of: PlaneReport| {
                let _ = reports.send(of.connection);
            });
        });
        let begin = Instant::now();
        for connection in 1..=5 {
            assert_eq!(connected.recv().unwrap(), connection);
            calls.send(Command::Disconnect(connection)).unwrap();
        }
        assert!(begin.elapsed() >= RETRY * (1 + 2 + 4 + 8), "{:?}", begin.elapsed());
        drop(calls);
        thread.join().unwrap();
    }
}
