//! Logs the lines that hosts cause, within the log limit of each source network.

/// Logs a line that the host at an address caused, unless the host's source network has reached the log limit
/// ([`LogLimit`](verbs::log_limit::LogLimit)).
macro_rules! peer_line {
    ($lines:expr, $level:ident, $address:expr, $now:expr, $($line:tt)+) => {
        // A line that the log's filter drops does not count for the log limit.
        if tracing::enabled!(tracing::Level::$level) {
            let address: std::net::SocketAddr = $address;
            match $lines.take(address.ip().into(), $now) {
                Some(0) => tracing::event!(tracing::Level::$level, peer = %address, $($line)+),
                Some(left_out) => tracing::event!(tracing::Level::$level, peer = %address, left_out, $($line)+),
                None => {}
            }
        }
    };
}
pub(crate) use peer_line;
