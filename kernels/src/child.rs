//! The life of a process that runs kernels: loads what the server says, maps one session's regions, computes.

mod abi;
mod confine;
mod library;
mod mapping;
mod serve;

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// What the server starts such a process with.
#[derive(Clone, Copy, Debug)]
pub struct LaunchArgs {
    /// The server's process.
    pub parent: u32,
    /// Bytes of private memory it may have; 0 for any number.
    pub memory: u64,
}

/// Serves the socket that is standard input until the server closes it.
///
/// # Errors
/// Fails if the limits of the process cannot be set, or if the socket fails.
pub fn run(arguments: LaunchArgs) -> io::Result<()> {
    confine::die_with(arguments.parent)?;
    confine::close_inherited()?;
    let socket = own_socket()?;
    confine::limit(arguments.memory)?;
    serve::Child::new(socket).run()
}

/// Takes the socket from standard input, which is /dev/null from then on.
fn own_socket() -> io::Result<OwnedFd> {
    let socket = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let null = std::fs::File::open("/dev/null")?;
    rustix::stdio::dup2_stdin(null.as_fd())?;
    Ok(socket)
}
