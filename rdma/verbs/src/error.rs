//! The seam's error vocabulary: who is at fault and what to do about it.

use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else owns the address; `holder` is what is known about it, and what helps.
    #[error("{addr} is held by {holder}")]
    AddressInUse { addr: SocketAddr, holder: String },
    #[error("this device cannot listen: {0}")]
    CannotListen(String),
    #[error("no device: {0}")]
    NoDevice(String),
    /// A bound of the device or of its configuration was reached.
    #[error("out of {what}: the limit is {limit}; {remedy}")]
    Exhausted { what: &'static str, limit: u64, remedy: &'static str },
    #[error("{what} {id:#x} does not exist")]
    NotFound { what: &'static str, id: u64 },
    /// The call's arguments contradict each other or the object's state.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// A local key or buffer does not cover what the work request names.
    #[error("the memory region (LKey {lkey:#010x}) does not cover {length} bytes at {addr:#x}")]
    LocalProtection { lkey: u32, addr: u64, length: u64 },
    #[error("the queue pair is {0}, which does not allow this")]
    QpState(&'static str),
    #[error("the object is still in use: {0}")]
    Busy(&'static str),
    /// The device was opened before this process forked.
    #[error("the device belongs to the parent process; open one after fork()")]
    Forked,
    #[error("{what}: {source}{}", remedy(source))]
    Io { what: String, source: std::io::Error },
}

impl Error {
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}

/// What helps when the operating system refuses something for a limit of the process; begins with "; " unless empty.
pub fn remedy(error: &std::io::Error) -> &'static str {
    /// errno.h of Linux.
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(EMFILE) => "; close files or raise `ulimit -n`",
        Some(ENFILE) => "; the machine has no more, raise fs.file-max",
        // Nothing here reports a socket that would block; a thread that cannot be started says the same.
        _ if error.kind() == std::io::ErrorKind::WouldBlock => "; raise `ulimit -u`",
        _ => "",
    }
}
