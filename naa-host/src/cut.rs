//! Counts and logs calls that were cut, that is, calls that ended without the result of the function.

use std::{
    fmt::Display,
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use mrsp::FunctionCode;

use crate::error::function_name;

static CALLS_CUT: AtomicU64 = AtomicU64::new(0);

/// Returns how many calls were cut in all sessions of this process. A cut call ended without the result of the
/// function. Either an error ended the session before the response, or the response was
/// [`KERNEL_TIMEOUT`](mrsp::ReturnCode::KERNEL_TIMEOUT). Each call that this function counts is logged at the level
/// `warn` when the call is cut. Calls that take longer than
/// [`SessionConfig::call_timeout`](crate::SessionConfig::call_timeout) are not counted, because the host itself gives
/// them up. Calls that still run when the program ends their session are not counted. A streaming call is counted only
/// if posting the call fails.
pub fn calls_cut() -> u64 {
    CALLS_CUT.load(Ordering::Relaxed)
}

/// Counts and logs a call that ended without the function's result because of `cause`.
pub(crate) fn cut(peer: SocketAddr, function: FunctionCode, cause: &dyn Display) {
    CALLS_CUT.fetch_add(1, Ordering::Relaxed);
    tracing::warn!(%peer, function = function_name(function), %cause, "a call was cut");
}
