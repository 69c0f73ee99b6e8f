//! Log lines that peers cause.

/// Logs a line that the peer at an address caused, unless the [`Lines`](verbs::lines::Lines) of that peer are used up.
macro_rules! peer_line {
    ($lines:expr, $level:ident, $address:expr, $now:expr, $($line:tt)+) => {
        // A line that is filtered out is not counted.
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
