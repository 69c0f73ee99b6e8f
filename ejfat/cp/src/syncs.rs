//! Sync datagrams of senders.
//!
//! Anybody can send them, so a datagram costs a look at a table of senders, and only those of registered ones, so many a
//! second of each, take the control plane's lock.

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

/// Syncs of a sender that are looked at in a second; senders send one.
const MOST_A_SECOND: u32 = 100;
/// How often the table of senders is made anew, and how soon a socket's thread sees the end.
const LOOK: Duration = Duration::from_millis(100);
/// Bytes of a datagram that are read: more than a sync has, so that longer ones are told apart.
const READ: usize = 64;

/// Where a load balancer's syncs come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncAddress {
    pub lb: LbId,
    pub at: SocketAddr,
}

/// Datagrams that were not taken.
#[derive(Debug, Default)]
pub struct SyncCounters {
    /// They are no syncs.
    pub malformed: AtomicU64,
    /// Their senders are not registered.
    pub strangers: AtomicU64,
    /// Their senders sent too many.
    pub too_many: AtomicU64,
}

/// Receives until it is dropped.
#[derive(Debug)]
pub struct Syncs {
    addresses: Vec<SyncAddress>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub counters: Arc<SyncCounters>,
}

/// A sync socket that cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("cannot receive syncs at {at}: {source}; give an address of this machine and a port that is free")]
pub struct SyncError {
    pub at: SocketAddr,
    #[source]
    source: io::Error,
}

impl Syncs {
    /// Binds all addresses, each with a thread. Port 0 stands for any that is free.
    ///
    /// # Errors
    /// If one cannot be bound.
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

    pub fn addresses(&self) -> &[SyncAddress] {
        &self.addresses
    }
}

impl Drop for Syncs {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // Who panicked there has said so.
            let _ = thread.join();
        }
    }
}

/// Which senders are heard, and how often yet.
#[derive(Debug, Default)]
struct Senders {
    known: BTreeSet<IpAddr>,
    heard: BTreeMap<IpAddr, u32>,
}

fn receive(core: &Core, lb: LbId, socket: &UdpSocket, stop: &AtomicBool, counters: &SyncCounters) {
    let (mut senders, mut looked, mut second) = (Senders::default(), None::<Instant>, Instant::now());
    let mut buffer = [0; READ];
    while !stop.load(Relaxed) {
        // A time-out, or a refusal of something that nobody sent: the next one may be a datagram.
        let received = socket.recv_from(&mut buffer).ok();
        let now = Instant::now();
        if looked.is_none_or(|looked| now >= looked + LOOK) {
            senders.known = core.look(|control, _| {
                control.registry().durable().senders_of(lb).map(|sender| sender.address).collect()
            });
            looked = Some(now);
        }
        if now >= second + Duration::from_secs(1) {
            (second, senders.heard) = (now, BTreeMap::new());
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
        let heard = senders.heard.entry(from).or_default();
        *heard = heard.saturating_add(1);
        if *heard > MOST_A_SECOND {
            counters.too_many.fetch_add(1, Relaxed);
            continue;
        }
        core.sync(lb, from, &sync);
    }
}
