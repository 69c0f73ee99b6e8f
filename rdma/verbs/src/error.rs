//! The errors of the driver interface; each text says what failed, and many texts say what the user can do.

use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another socket holds the address. `holder` names the process that holds the address, and says what the user can
    /// do.
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
    /// The call's arguments contradict each other or the state of the object.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The memory that a work request names is not inside the region of its LKey.
    #[error("the memory region (LKey {lkey:#010x}) does not cover {length} bytes at {addr:#x}")]
    LocalProtection { lkey: u32, addr: u64, length: u64 },
    #[error("the queue pair is {0}, which does not allow this")]
    QpState(&'static str),
    #[error("the object is still in use: {0}")]
    Busy(&'static str),
    /// The device was opened by another process, from which this process was forked.
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

/// Says what the user can do if the operating system refuses a call because of a limit of the process. The text is
/// empty, or begins with "; ".
pub fn remedy(error: &std::io::Error) -> &'static str {
    /// The value of ENFILE in Linux (errno.h).
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(EMFILE) => "; close files or raise `ulimit -n`",
        Some(ENFILE) => "; the machine has no more, raise fs.file-max",
        // If the operating system cannot start a thread, it returns an error of this kind. A socket that would block
        // has the same error kind, but no caller of this function passes an error of a socket.
        _ if error.kind() == std::io::ErrorKind::WouldBlock => "; raise `ulimit -u`",
        _ => "",
    }
}
