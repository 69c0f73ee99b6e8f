//! Starts children, and reaps them.
//!
//! Both are done by one thread, which lives as long as the server: a child's parent-death signal is sent when the
//! *thread* that started it ends.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::Duration,
};

use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, socketpair},
    process::{Pid, PidfdFlags, pidfd_open},
};

use super::process::ChildAccess;

/// How often children that were killed are looked after until they are gone.
const REAP_INTERVAL: Duration = Duration::from_millis(10);

/// How to start a child: a program that ends in [`child::run`](crate::child::run).
#[derive(Clone, Debug)]
pub struct Launch {
    /// The path of the program that is executed in the process.
    pub program: PathBuf,
    /// Followed by the members of [`LaunchArgs`](crate::child::LaunchArgs): the server's process, and `memory`.
    pub arguments: Vec<OsString>,
    /// Private bytes a child may have; 0 for any number.
    pub memory: u64,
}

/// A child that was started.
#[derive(Debug)]
pub(super) struct LaunchedProcess {
    pub(super) socket: OwnedFd,
    pub(super) pidfd: Arc<OwnedFd>,
    pub(super) child: Child,
}

#[derive(Debug)]
enum Order {
    Start(Sender<io::Result<LaunchedProcess>>),
    /// Wait for a child that was killed. The access ends with it.
    Reap(Child, Arc<ChildAccess>),
}

/// Asks that thread. Cloning shares it; it ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Launcher(Sender<Order>);

impl Launcher {
    pub(super) fn start(launch: Launch) -> io::Result<Self> {
        let (orders, to_do) = channel();
        std::thread::Builder::new().name("naa-kernels".into()).spawn(move || work(&launch, &to_do))?;
        Ok(Self(orders))
    }

    /// A new child.
    pub(super) fn child(&self) -> io::Result<LaunchedProcess> {
        let (answer, answered) = channel();
        let gone = || io::Error::other("the thread that starts processes of kernels is gone");
        self.0.send(Order::Start(answer)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }

    pub(super) fn reap(&self, child: Child, access: Arc<ChildAccess>) {
        // Fails when the thread is gone; then the server is ending, and the child was killed.
        let _ = self.0.send(Order::Reap(child, access));
    }
}

fn work(launch: &Launch, to_do: &Receiver<Order>) {
    let mut dying: Vec<(Child, Arc<ChildAccess>)> = Vec::new();
    loop {
        let order = if dying.is_empty() {
            to_do.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            to_do.recv_timeout(REAP_INTERVAL)
        };
        dying.retain_mut(|(child, _)| matches!(child.try_wait(), Ok(None)));
        match order {
            // Fails when nobody waits any more; the child ends with its socket.
            Ok(Order::Start(answer)) => drop(answer.send(spawn(launch))),
            Ok(Order::Reap(child, access)) => dying.push((child, access)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn spawn(launch: &Launch) -> io::Result<LaunchedProcess> {
    let flags = SocketFlags::CLOEXEC;
    let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut child = Command::new(&launch.program)
        .args(&launch.arguments)
        .arg(std::process::id().to_string())
        .arg(launch.memory.to_string())
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        // Ctrl-C in the server's terminal is for the server.
        .process_group(0)
        .spawn()?;
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
    match pidfd_open(id, PidfdFlags::empty()) {
        Ok(pidfd) => Ok(LaunchedProcess { socket, pidfd: Arc::new(pidfd), child }),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error.into())
        }
    }
}

/// "was killed by signal 11 (SIGSEGV)", for people.
pub(super) fn how_it_ended(status: ExitStatus) -> String {
    match status.signal() {
        // "signal: 11 (SIGSEGV)"
        Some(_) => format!("was killed by {}", status.to_string().replacen(':', "", 1)),
        None => format!("ended by itself ({status})"),
    }
}
