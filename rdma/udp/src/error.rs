//! The errors of sockets; each text says what failed, and what the user can do where something is known to help.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use crate::holder_of;

/// The error with which a socket is not made, or a property of this machine is not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A wildcard, multicast or broadcast address was given where a port needs the address of one interface.
    #[error("{0} is not one concrete local address; `ip addr` lists them")]
    NotConcrete(IpAddr),
    /// The address is not an address of this machine.
    #[error("{0} is not an address of this machine; `ip addr` lists them")]
    NotLocal(IpAddr),
    /// Another socket has the address. The process that has the socket is searched only when the error is displayed,
    /// because the search takes long.
    #[error(
        "{addr} is held by {}; stop it, or use another address of this machine (on loopback 127.0.0.2 does)",
        holder_of(*addr)
    )]
    AddressInUse {
        /// The address and port that are in use.
        addr: SocketAddr,
    },
    /// This process may have no more open files, and each socket needs one.
    #[error(
        "cannot open a UDP socket on {addr}: it takes an open file, and this process may have no more; raise it with \
         `ulimit -n`"
    )]
    NoFiles {
        /// The local address that was to be bound.
        addr: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused an operation.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation, as text that follows the word "cannot".
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
