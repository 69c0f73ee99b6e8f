//! Receives the sync datagrams of senders.
//!
//! Anybody can send such datagrams. A datagram is therefore first looked up in a table of senders. Only a limited
//! number per second of each sender takes the control plane's lock.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ejfat::{lb::LbId, wire::SyncHeader};

use crate::core::Core;

/// The most sync datagrams per second of one sender that are used. A sender normally sends one.
const MOST_A_SECOND: u32 = 100;
/// How often the table of senders is updated, and the longest time until a socket's thread ends.
const LOOK: Duration = Duration::from_millis(100);
/// The bytes of a datagram that are read. A sync datagram has fewer, so a longer datagram is recognized as malformed.
const READ: usize = 64;

/// The address at which the sync datagrams of a load balancer are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncAddress {
    /// The load balancer whose senders send the sync datagrams.
    pub lb: LbId,
    /// The address at which the sync datagrams are received.
    pub at: SocketAddr,
}

/// Counters of datagrams that were not used.
#[derive(Debug, Default)]
pub struct SyncCounters {
    /// Datagrams that are not valid sync datagrams.
    pub malformed: AtomicU64,
    /// Sync datagrams from addresses that are no senders', and were none a few seconds ago.
    pub strangers: AtomicU64,
    /// Sync datagrams of senders that sent too many of them within a second.
    pub too_many: AtomicU64,
}

/// The sync sockets and their threads. They receive until this is dropped.
#[derive(Debug)]
pub struct Syncs {
    addresses: Vec<SyncAddress>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// The counters of datagrams that were not used.
    pub counters: Arc<SyncCounters>,
}

/// Why sync datagrams cannot be received at an address.
#[derive(Debug, thiserror::Error)]
#[error("cannot receive sync datagrams at {at}: {source}; give an address of this machine and a free port")]
pub struct SyncError {
    /// The address at which sync datagrams cannot be received.
    pub at: SocketAddr,
    #[source]
    source: io::Error,
}

impl Syncs {
    /// Binds all addresses and starts a thread for each. Port 0 stands for any free port.
    ///
    /// # Errors
    /// If an address cannot be bound, or a thread cannot be started.
    pub fn start(core: &Arc<Core>, addresses: &[SyncAddress]) -> Result<Self, SyncError> {
        let mut syncs = Self {
            addresses: Vec::new(),
            stop: Arc::default(),
            threads: Vec::new(),
            counters: Arc::default(),
        };
        for &SyncAddress { lb, at } in addresses {
            let failed = |source| SyncError { at, source };
            let socket = UdpSocket::bind(at).map_err(failed)?;
            socket.set_read_timeout(Some(LOOK)).map_err(failed)?;
            syncs.addresses.push(SyncAddress { lb, at: socket.local_addr().map_err(failed)? });
            let (core, stop, counters) = (core.clone(), syncs.stop.clone(), syncs.counters.clone());
            let run = move || receive(&core, lb, &socket, &stop, &counters);
            let thread = std::thread::Builder::new().name(format!("naa-sync-{}", lb.get())).spawn(run);
            syncs.threads.push(thread.map_err(failed)?);
        }
        Ok(syncs)
    }

    /// Returns a message if a thread has ended by itself.
    pub(crate) fn ended(&self) -> Option<String> {
        let over = self.threads.iter().any(JoinHandle::is_finished);
        over.then(|| "a thread that receives sync datagrams ended; the log says why".to_owned())
    }

    /// The addresses with the ports that were bound.
    pub fn addresses(&self) -> &[SyncAddress] {
        &self.addresses
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of the thread has been reported already.
            let _ = thread.join();
        }
    }
}

/// The senders of a load balancer.
#[derive(Debug, Default)]
struct Senders {
    /// The addresses whose syncs are used.
    known: BTreeSet<IpAddr>,
    /// How many sync datagrams each has sent in the present second.
    sent: BTreeMap<IpAddr, u32>,
}

fn receive(core: &Core, lb: LbId, socket: &UdpSocket, stop: &AtomicBool, counters: &SyncCounters) {
    let (mut senders, mut looked, mut second) = (Senders::default(), None::<Instant>, Instant::now());
    let mut buffer = [0; READ];
    while !stop.load(Relaxed) {
        // An error is a time-out, or one that the Linux kernel reports for an earlier datagram. Receiving goes on after both.
        let received = socket.recv_from(&mut buffer).ok();
        let now = Instant::now();
        if looked.is_none_or(|looked| now >= looked + LOOK) {
            senders.known = core.look(|control, now| control.sync_sources(now, lb));
            looked = Some(now);
        }
        if now >= second + Duration::from_secs(1) {
            (second, senders.sent) = (now, BTreeMap::new());
        }
        let Some((len, from)) = received else { continue };
        let Ok(sync) = SyncHeader::decode(&buffer[..len]) else {
            counters.malformed.fetch_add(1, Relaxed);
            continue;
        };
        let from = from.ip().to_canonical();
        if !senders.known.contains(&from) {
            counters.strangers.fetch_add(1, Relaxed);
            continue;
        }
        let sent = senders.sent.entry(from).or_default();
        *sent = sent.saturating_add(1);
        if *sent > MOST_A_SECOND {
            counters.too_many.fetch_add(1, Relaxed);
            continue;
        }
        core.sync(lb, from, &sync);
    }
}
