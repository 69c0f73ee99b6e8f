//! The settings of a server and their default values.

use std::{net::SocketAddr, time::Duration};

use mrsp::accelerator::SessionLimits;
use naa_provider::{DeviceConfig, ProviderChoice};
use verbs::WaitMode;

use crate::{
    allow::AllowList,
    memory_budget::{FILES_OF_A_PROCESS, Shares},
    pool,
};

/// The port of servers, which is the same as in NAAICE's C library (SERVER_CONNECTION_PORT).
pub const DEFAULT_PORT: u16 = 12_345;

/// The settings of a server.
///
/// When the request of a call arrives, the embedded provider revokes the host's access to the session's regions, so the
/// host has no access during the call. The verbs provider does not revoke access, because NICs can revoke access only
/// at a high cost. Over the verbs provider, a host that breaks the protocol can write the regions of its own session
/// during a call. Over the verbs provider, functions of the server work on copies of the regions. Kernels get no copies
/// of the regions, so a kernel whose data must not change during a call has to copy the data first.
#[derive(Clone, Debug)]
pub struct Config {
    /// The local address and the port on which the server listens. The address must be an address of this machine, and
    /// not the unspecified address (0.0.0.0 or ::). Port 0 picks a free port.
    pub listen: SocketAddr,
    /// The networks from which hosts may connect. RoCE has no authentication, so the server can identify a host only by
    /// its address.
    pub allow: AllowList,
    /// The maximum number of regions and bytes that a session may request.
    pub limits: SessionLimits,
    /// The maximum number of bytes that the regions, their working copies and the scratch memory of all sessions may
    /// have together. The sizes of regions and working copies are rounded up to whole pages before they are counted.
    pub memory: u64,
    /// The maximum number of bytes that the sessions of one source network may have together, or `None` for half of
    /// `memory`. An eighth of `memory` is reserved for source networks that have little memory in use.
    pub per_peer_memory: Option<u64>,
    /// The maximum number of sessions that may be open at a time. If the completion queue of the device is too short
    /// for this number, the server accepts fewer sessions.
    pub max_sessions: usize,
    /// The maximum number of sessions of one source network.
    pub max_sessions_per_peer: usize,
    /// The time that a call may take, counted from the arrival of its request.
    pub call_time: Duration,
    /// The time that session setup may take. If the setup of a session takes longer than this time, the session is
    /// closed.
    pub setup_time: Duration,
    /// The time between the liveness probes that the server sends to the host of an idle session. Each probe is a WRITE
    /// of no bytes. If this time is zero, the server sends no probes. An idle session has no unacknowledged packets, so
    /// without probes the server could not detect that the host vanished, and the session would never end.
    pub probe_interval: Duration,
    /// The sizes of the thread pool that executes long calls.
    pub pool: pool::PoolConfig,
    /// The mode in which the server loop waits.
    pub wait: WaitMode,
    /// The maximum number of work requests of a loop service that may be unfinished on one session at a time. This
    /// setting has no effect if the server has no loop service.
    pub stream_sends: u32,
    /// The provider that serves the address. If the value is `None`, the environment variable `NAA_PROVIDER` names the
    /// provider. If the value is `None` and `NAA_PROVIDER` is not set, the server chooses the provider that fits the
    /// address.
    pub provider: Option<ProviderChoice>,
    /// The settings with which the device is opened.
    pub device: DeviceConfig,
}

impl Config {
    /// Makes the default configuration of a server that listens at `listen`. This configuration lets all hosts connect.
    pub fn new(listen: SocketAddr) -> Self {
        let pool_threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen,
            allow: AllowList::everyone(),
            limits: SessionLimits::default(),
            memory: default_memory(),
            per_peer_memory: None,
            max_sessions: 1024,
            max_sessions_per_peer: 256,
            call_time: Duration::from_secs(3600),
            setup_time: Duration::from_secs(30),
            probe_interval: Duration::from_secs(2),
            pool: pool::PoolConfig {
                pool_threads,
                queue: 1024,
                per_peer: 256,
                extra_threads: 32,
                quarantine: 64.max(2 * pool_threads),
            },
            wait: WaitMode::Adaptive,
            stream_sends: 0,
            provider: None,
            device: DeviceConfig { must_listen: true, ..DeviceConfig::default() },
        }
    }

    /// Returns how the memory is divided among source networks.
    pub(crate) fn shares(&self) -> Shares {
        Shares::new(self.memory, self.per_peer_memory.unwrap_or(self.memory / 2))
    }
}

/// Returns how the open files are divided among source networks. If a source network may have one half of the memory,
/// for example, it may also have one half of the files that all sessions may have open. An eighth of the files that the
/// process may open is left for sockets and other files of the server. A source network without open files can take
/// files from the reserve: as many as one session with `max_regions` regions needs, but at most the whole reserve. Each
/// region needs one file, and may need a second file for its working copy.
pub(crate) fn shares_of_files(memory: Shares, max_regions: u8) -> Shares {
    const MOST: u64 = 1 << 20;
    let files = limit("Max open files").map_or(MOST, |files| files.min(MOST));
    divided_as(memory, files - files / 8, 2 * u64::from(max_regions) + FILES_OF_A_PROCESS)
}

/// Divides `total` among source networks in the same proportions as `memory`. `session` is the number of bytes or files
/// that one session needs. The limit of one source network is at least `session`, unless `total` is less than
/// `session`. In the result, [`Shares::first`] is `session`, but at most [`Shares::reserve`]. A source network with
/// nothing in use can therefore take from the reserve what one session needs, if the reserve has so much.
fn divided_as(memory: Shares, total: u64, session: u64) -> Shares {
    let part = u128::from(total) * u128::from(memory.per_peer) / u128::from(memory.total.max(1));
    let per_peer = u64::try_from(part).unwrap_or(total).max(session).min(total);
    let shares = Shares::new(total, per_peer);
    Shares { first: session.min(shares.reserve), ..shares }
}

/// Returns the default of `memory`: half of the memory that this process can have, but at most 16 GiB. A process can
/// have the memory of the machine, but no more than `ulimit -v` permits. The other half is left free, because the Linux
/// kernel provides pages only when they are first used, and kills the process if it cannot provide them.
pub fn default_memory() -> u64 {
    const MOST: u64 = 16 << 30;
    let most = [region::physical_memory(), limit("Max address space")].into_iter().flatten().min();
    most.map_or(MOST, |bytes| MOST.min(bytes / 2))
}

/// Returns this process's soft limit for the resource whose line in /proc/self/limits starts with `of`. The result has
/// the unit that is named in this line, for example bytes or files. Returns `None` if the resource is not limited, or
/// if the limit cannot be read.
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
