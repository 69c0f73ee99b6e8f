//! Calls that were cut: their number, and a line of the log for each.

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use mrsp::FunctionCode;

use crate::error::function_name;

static CALLS_CUT: AtomicU64 = AtomicU64::new(0);

/// The number of calls of this process that were cut, in all its sessions. Either the session ended by an error before the
/// response to the call, or the response was [`KERNEL_TIMEOUT`](mrsp::ReturnCode::KERNEL_TIMEOUT). Each of them is a line of
/// the log, too, at the level `warn`. Calls that this side gave up are not counted: those that took longer than
/// [`SessionConfig::call_timeout`](crate::SessionConfig::call_timeout), and those of sessions that the program ended.
pub fn calls_cut() -> u64 {
    CALLS_CUT.load(Ordering::Relaxed)
}

/// Counts and logs a call that was cut.
pub(crate) fn cut(peer: SocketAddr, function: FunctionCode, cause: &dyn Display) {
    CALLS_CUT.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(%peer, function = function_name(function), %cause, "a call was cut");
}
