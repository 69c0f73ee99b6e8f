//! What the process gives up before it loads anybody's code.
#![allow(unsafe_code)]

use std::io;

use rustix::process::{Resource, Rlimit, Signal, getppid, set_parent_process_death_signal, setrlimit};

/// The kernel kills this process when the server ends in whatever way.
pub(super) fn die_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let now = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    // It may have ended before.
    if i64::from(now) != i64::from(parent) {
        return Err(io::Error::other("the server that started this process is gone"));
    }
    Ok(())
}

/// Files that somebody left open for programs started by the server.
pub(super) fn close_inherited() -> io::Result<()> {
    let (first, last, flags) = (3_u32, u32::MAX, 0_u32);
    // SAFETY: nothing of this process has opened a file yet, so no owner of one loses it.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// No core dumps, which hold hosts' data; no more rights than the server's; at most `memory` private bytes, if not 0.
pub(super) fn limit(memory: u64) -> io::Result<()> {
    let at_most = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::Core, at_most(0))?;
    if memory > 0 {
        setrlimit(Resource::Data, at_most(memory))?;
    }
    // SAFETY: takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
