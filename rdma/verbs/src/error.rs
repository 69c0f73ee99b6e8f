//! The errors of the driver interface; each text says what failed, and many texts say what the user can do.

use std::net::SocketAddr;

/// The error with which a method of the driver interface fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is already in use, by another program or by another device or listener of this program.
    #[error("{addr} is held by {holder}")]
    AddressInUse {
        /// The address and port that are already in use.
        addr: SocketAddr,
        /// A text that says who holds the address, and what the user can do.
        holder: String,
    },
    /// The device cannot receive connection requests. The text is the reason.
    #[error("this device cannot listen: {0}")]
    CannotListen(String),
    /// No device serves the address. The text is the reason.
    #[error("no device: {0}")]
    NoDevice(String),
    /// A limit of the device, of its configuration or of the operating system was reached.
    #[error("out of {what}: the limit is {limit}; {remedy}")]
    Exhausted {
        /// The name of the resource that is used up, for example "memory regions".
        what: &'static str,
        /// The limit that was reached. The limit is a number of bytes if the resource is memory, and
        /// otherwise a number of things, for example of memory regions.
        limit: u64,
        /// The action by which the user or the program can free the resource or raise the limit.
        remedy: &'static str,
    },
    /// No object of the device has this id.
    #[error("{what} {id:#x} does not exist")]
    NotFound {
        /// The kind of the object, for example "queue pair".
        what: &'static str,
        /// The id or key that the caller passed.
        id: u64,
    },
    /// An argument of the call is out of range, or does not fit another argument or the state of the object. The text
    /// says what is wrong.
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The LKey of a scatter-gather element does not permit the access. Either no region of the protection domain has
    /// this LKey, or the region does not cover the element's memory, or the region's access rights are not sufficient.
    #[error("the memory region (LKey {lkey:#010x}) does not cover {length} bytes at {addr:#x}")]
    LocalProtection {
        /// The LKey of the scatter-gather element.
        lkey: u32,
        /// The address of the first byte of the scatter-gather element.
        addr: u64,
        /// The number of bytes of the scatter-gather element.
        length: u64,
    },
    /// The state of the queue pair does not permit the call. The text names the state, for example "not connected".
    #[error("the queue pair is {0}, which does not allow this")]
    QpState(&'static str),
    /// Other objects still use the object that was to be destroyed, or another listener has the requested port. The
    /// text says which objects these are.
    #[error("the object is still in use: {0}")]
    Busy(&'static str),
    /// The device was opened by another process, from which this process was forked.
    #[error("the device belongs to the parent process; open one after fork()")]
    Forked,
    /// A call of the operating system failed.
    #[error("{what}: {source}{}", remedy(source))]
    Io {
        /// A text that says what failed, for example "cannot create an eventfd".
        what: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

impl Error {
    /// Makes an [`Error::Io`]. `what` is a text that names the failed action, for example "cannot create an eventfd".
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}

/// Returns advice for the user if `error` means that no more files can be opened or that no more threads can be
/// started. The advice begins with "; ". Returns an empty text if there is no advice for `error`.
pub fn remedy(error: &std::io::Error) -> &'static str {
    /// The value of ENFILE in Linux (errno.h).
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    match error.raw_os_error() {
        Some(EMFILE) => "; close files or raise `ulimit -n`",
        Some(ENFILE) => "; the machine has no more, raise fs.file-max",
        // If the operating system cannot start a thread, it returns an error of the kind `WouldBlock`. A socket can
        // also fail with an error of the kind `WouldBlock`, but no caller of this function passes an error of a socket.
        _ if error.kind() == std::io::ErrorKind::WouldBlock => "; raise `ulimit -u`",
        _ => "",
    }
}

/// Returns the text of an error and of its causes, each with its remedy if a remedy is known. A cause is left out if
/// the text of the errors before it already contains the text of the cause.
pub fn error_text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    for cause in std::iter::successors(Some(error), |error| error.source()) {
        let remedy = cause.downcast_ref().map_or("", remedy);
        let cause = format!("{cause}{remedy}");
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
