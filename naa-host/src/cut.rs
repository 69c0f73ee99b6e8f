//! Counts and logs calls that were cut, that is, calls that ended without the result of the function.

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use mrsp::FunctionCode;

use crate::error::function_name;

static CALLS_CUT: AtomicU64 = AtomicU64::new(0);

/// The number of calls of this process that were cut (ended without the function's result), in all its sessions. A call is
/// cut if an error ended the session before the response, or if the response was
/// [`KERNEL_TIMEOUT`](mrsp::ReturnCode::KERNEL_TIMEOUT). Each cut call is also logged, at the level `warn`. Calls that this
/// side gave up are not counted. This side gives up calls that take longer than
/// [`SessionConfig::call_timeout`](crate::SessionConfig::call_timeout), and calls of sessions that the program ends.
pub fn calls_cut() -> u64 {
    CALLS_CUT.load(Ordering::Relaxed)
}

/// Counts and logs a call that was cut by `cause`.
pub(crate) fn cut(peer: SocketAddr, function: FunctionCode, cause: &dyn Display) {
    CALLS_CUT.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(%peer, function = function_name(function), %cause, "a call was cut");
}
