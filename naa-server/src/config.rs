//! Settings of a server.

use std::{net::SocketAddr, time::Duration};

use mrsp::naa::Limits;
use naa_provider::{Choice, DeviceConfig};
use verbs::WaitMode;

use crate::{
    allow::AllowList,
    arena::{FILES_OF_A_PROCESS, Shares},
    pool,
};

/// The port of servers, the same as the C library's (SERVER_CONNECTION_PORT).
pub const DEFAULT_PORT: u16 = 12_345;

/// Limits and times of a server.
///
/// The embedded provider takes access to a session's regions from the host with each request, so the host has none
/// during a call. NICs cannot do that at a reasonable price: over the verbs provider a host that breaks the protocol can
/// change the regions of its own session while a function works on them. Functions that need unchanging data copy it
/// first.
#[derive(Clone, Debug)]
pub struct Config {
    /// The local address to listen on, which must be a concrete one, and the port; port 0 picks a free one.
    pub listen: SocketAddr,
    /// The networks that may connect. RoCE has no authentication, so the address is the only criterion.
    pub allow: AllowList,
    /// The most regions and bytes that a session may ask for.
    pub limits: Limits,
    /// The most bytes of all sessions' regions together, in whole pages.
    pub memory: u64,
    /// The most bytes that the sessions of one peer have together; `None`: half of `memory`. An eighth of `memory` is
    /// kept for peers that have little.
    pub per_peer_memory: Option<u64>,
    pub max_sessions: usize,
    /// The most sessions of one peer.
    pub max_sessions_per_peer: usize,
    /// How long a function may take, counted from the arrival of the request.
    pub call_time: Duration,
    /// How long session setup may take; then the session is closed.
    pub setup_time: Duration,
    /// The time between probes of an idle session's host, each a WRITE of no bytes; zero: never. The server has no
    /// unacknowledged packet by which it would notice that the host vanished. So without probes such a session, and a
    /// call that it waits for, would go on.
    pub probe_interval: Duration,
    pub pool: pool::Settings,
    /// How the server loop waits.
    pub wait: WaitMode,
    /// The most work requests that a loop service may have unfinished on a session. It has no effect without a loop
    /// service.
    pub stream_sends: u32,
    /// The provider that serves the address; `None`: the one in `NAA_PROVIDER`, or the one that fits the address if that
    /// is not set.
    pub provider: Option<Choice>,
    pub device: DeviceConfig,
}

impl Config {
    pub fn new(listen: SocketAddr) -> Self {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen,
            allow: AllowList::everyone(),
            limits: Limits::default(),
            memory: default_memory(),
            per_peer_memory: None,
            max_sessions: 1024,
            max_sessions_per_peer: 256,
            call_time: Duration::from_secs(3600),
            setup_time: Duration::from_secs(30),
            probe_interval: Duration::from_secs(2),
            pool: pool::Settings {
                workers,
                queue: 1024,
                per_peer: 256,
                guests: 32,
                quarantine: 64.max(2 * workers),
            },
            wait: WaitMode::Adaptive,
            stream_sends: 0,
            provider: None,
            device: DeviceConfig { must_listen: true, ..DeviceConfig::default() },
        }
    }
}

impl Config {
    /// How memory is divided among peers.
    pub(crate) fn shares(&self) -> Shares {
        Shares::new(self.memory, self.per_peer_memory.unwrap_or(self.memory / 2))
    }
}

/// How many open files the regions of all peers may take, and those of one peer. Peers get the same part of the
/// process's open files as they get of `memory`. An eighth stays for sockets and other files of the server. The reserve
/// lets a new peer open one session of `max_regions` regions, each of which may need a second file for its working copy.
pub(crate) fn shares_of_files(memory: Shares, max_regions: u8) -> Shares {
    const MOST: u64 = 1 << 20;
    let files = limit("Max open files").map_or(MOST, |files| files.min(MOST));
    divided_as(memory, files - files / 8, 2 * u64::from(max_regions) + FILES_OF_A_PROCESS)
}

/// Divides `total` in the proportions of `memory`, but gives each peer at least `session`, which is what one session
/// needs. A peer with no more than that may take it from the reserve.
fn divided_as(memory: Shares, total: u64, session: u64) -> Shares {
    let part = u128::from(total) * u128::from(memory.per_peer) / u128::from(memory.total.max(1));
    let per_peer = u64::try_from(part).unwrap_or(total).max(session).min(total);
    let shares = Shares::new(total, per_peer);
    Shares { first: session.min(shares.reserve), ..shares }
}

/// The default of `memory`: 16 GiB, or half of what the machine has or `ulimit -v` permits, if that is less. Pages are
/// mapped when they are first used, and the process is killed if they are too many.
pub fn default_memory() -> u64 {
    const MOST: u64 = 16 << 30;
    let most = [region::physical_memory(), limit("Max address space")].into_iter().flatten().min();
    most.map_or(MOST, |bytes| MOST.min(bytes / 2))
}

/// The soft limit of this process in the line of /proc/self/limits that begins with `of`; `None` if there is no limit.
fn limit(of: &str) -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix(of))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_as_memory_is_with_room_for_a_session() {
        let gib = 1 << 30;
        let shares = |per_peer| {
            let Shares { per_peer, reserve, first, .. } =
                divided_as(Shares::new(16 * gib, per_peer), 800, 66);
            (per_peer, reserve, first)
        };
        assert_eq!(shares(8 * gib), (400, 100, 66));
        assert_eq!(shares(16 * gib), (800, 100, 66));
        assert_eq!(shares(gib / 16), (66, 100, 66));
        assert_eq!(divided_as(Shares::new(gib, gib / 2), 40, 66).per_peer, 40, "there are no more");
    }
}
