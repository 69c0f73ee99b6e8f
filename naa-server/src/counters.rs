//! Counters of a server, which any thread may read while the server runs.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use verbs::source_network::SourceNetwork;

use crate::pool::Calls;

/// Counters of a server.
#[derive(Debug, Default)]
pub struct ServerCounters {
    /// The number of sessions that are open now.
    pub sessions: Counter,
    /// The number of sessions that the server accepted since its start.
    pub sessions_accepted: Counter,
    /// The number of connection requests that the server refused because of its limits, its allow-list or an error.
    pub sessions_rejected: Counter,
    /// The number of sessions that ended with an error. A session that ends because the host disconnects is not
    /// counted.
    pub sessions_failed: Counter,
    /// The number of calls, except calls of function 127, which returns the catalogue.
    pub calls: Counter,
    /// The number of calls whose return code was not 0, except calls of function 127, which returns the catalogue.
    pub calls_failed: Counter,
    /// The number of calls that took longer than [`Config::call_time`](crate::Config::call_time).
    pub calls_timed_out: Counter,
    /// The number of calls whose host disconnected before the response.
    pub calls_host_left: Counter,
    /// The number of calls whose session ended with an error before the host acknowledged the response.
    pub calls_connection_failed: Counter,
    /// The number of calls that had no response when the server ended.
    pub calls_server_ended: Counter,
    /// The number of calls of function 127, which returns the catalogue.
    pub catalogue_lookups: Counter,
    /// The total bytes of all regions of all calls that started. Outputs and internal regions count, too, because the
    /// server counts whole regions, and not the bytes that arrived.
    pub bytes_in: Counter,
    /// The number of bytes in the responses to calls, including status blocks.
    pub bytes_out: Counter,
    peers: Mutex<Vec<SourceNetworkCounters>>,
}

/// The resources of a server that one source network uses, and the counters of this source network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceNetworkCounters {
    /// The source network that the other fields are about. The value is `None` only in a `SourceNetworkCounters` that
    /// `default()` made.
    pub peer: Option<SourceNetwork>,
    /// The number of sessions that are open now.
    pub sessions: usize,
    /// The number of sessions that the server accepted from this source network.
    pub sessions_accepted: u64,
    /// The bytes of regions and of scratch memory that are charged to this source network.
    pub memory: u64,
    /// The number of sessions that ended because the server refused the memory for their regions.
    pub memory_refused: u64,
    /// The calls of this source network in the pool, and those of async functions: the numbers of waiting, running and
    /// abandoned calls.
    pub open: Calls,
    /// The number of calls, except calls of function 127, which returns the catalogue.
    pub calls: u64,
    /// The number of calls that the server refused with the return code BUSY.
    pub calls_refused: u64,
}

/// The cause for which the host of a call did not get the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The call took longer than a call may take.
    TimeUp,
    /// The host disconnected.
    HostLeft,
    /// The session ended because of an error of the connection, or because the host broke the protocol.
    ConnectionFailed,
    /// The server ended.
    ServerEnded,
}

impl Cut {
    /// All causes, in the order of their declaration.
    pub const ALL: [Self; 4] = [Self::TimeUp, Self::HostLeft, Self::ConnectionFailed, Self::ServerEnded];

    /// Returns the name of the cause in metrics, JSON and log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeUp => "time_up",
            Self::HostLeft => "host_left",
            Self::ConnectionFailed => "connection_failed",
            Self::ServerEnded => "server_ended",
        }
    }
}

impl ServerCounters {
    /// Returns the counter of the calls whose host did not get the result because of `cause`.
    pub fn calls_cut(&self, cause: Cut) -> &Counter {
        match cause {
            Cut::TimeUp => &self.calls_timed_out,
            Cut::HostLeft => &self.calls_host_left,
            Cut::ConnectionFailed => &self.calls_connection_failed,
            Cut::ServerEnded => &self.calls_server_ended,
        }
    }

    /// Returns the counters of all source networks that use resources of the server. The server updates the returned
    /// counters about every half second.
    pub fn peers(&self) -> Vec<SourceNetworkCounters> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_peers(&self, peers: Vec<SourceNetworkCounters>) {
        *self.peers.lock().unwrap_or_else(PoisonError::into_inner) = peers;
    }
}

/// A counter that the server changes, and that any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the present value of the counter.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }
}
