//! Forwards UDP by the tables.
//!
//! ```text
//! recvmmsg, GRO ─► DataPath::route ─► sendmmsg, GSO, from the same socket: the source is the load balancer's address
//! ```
//!
//! Payload is not copied: what is sent is gathered from the buffers that were received into, without the LB header where
//! the member does not keep it. The system takes care of IP: TTL, checksums, next hops.

mod pass;

use std::{
    cell::Cell,
    collections::VecDeque,
    io,
    net::SocketAddr,
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use ejfat::listen::{Listen, bind_all};
use ejfat_udp::ReadySet;
use naa_udp::{Port, PortConfig, RecvBatch, Rest, SendBatch, Waker, wait};

use crate::SharedDataPlane;

/// Messages that one system call receives, and datagrams that the kernel merges into one at most.
const MESSAGES: usize = 32;
const MERGED: usize = 64;
/// The time between two checks for tables that are not in use any more.
const TIDY: Duration = Duration::from_millis(250);
/// Batches of a thread's ports before it asks the kernel which ports have something, unless more ports than that had.
const TURNS: usize = 16;

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Ports of concrete local addresses. Each list has a thread.
    pub listen: Vec<Vec<Listen>>,
    /// Receive buffer of each port, in bytes.
    pub buffer: usize,
}

/// Why nothing is forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// The configuration has no address at which packets arrive.
    #[error("no address to listen on; give at least one")]
    Nowhere,
    /// A socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] naa_udp::Error),
    /// The operating system refused an operation.
    #[error("cannot {what}")]
    Io {
        /// The operation, as text that follows the word "cannot".
        what: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ForwardError {
    move |source| ForwardError::Io { what, source }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Why a thread ended by itself.
    ended: Mutex<Option<String>>,
}

/// What came to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounters {
    /// The local address of the port.
    pub at: SocketAddr,
    /// The number of received packets.
    pub packets: u64,
    /// The number of bytes of the received packets, without IP and UDP headers.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counted {
    packets: AtomicU64,
    bytes: AtomicU64,
}

/// The ports of a forwarder, and what came to each of them. Clones share the counters.
#[derive(Clone, Debug)]
pub struct PortsInUse {
    addresses: Arc<[SocketAddr]>,
    /// The counters of each port, in the order of `addresses`.
    counted: Arc<[Counted]>,
}

impl PortsInUse {
    /// The counters of the ports to which something came.
    pub fn counters(&self) -> Vec<PortCounters> {
        let of = |(at, counted): (&SocketAddr, &Counted)| PortCounters {
            at: *at,
            packets: counted.packets.load(Relaxed),
            bytes: counted.bytes.load(Relaxed),
        };
        self.addresses.iter().zip(self.counted.iter()).map(of).filter(|of| of.packets > 0).collect()
    }
}

/// Forwards until it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    ports: PortsInUse,
    /// The ports of ranges that another process holds, and that are left out.
    skipped: Vec<SocketAddr>,
    /// As the kernel accounts it.
    buffer: usize,
    threads: Vec<(JoinHandle<()>, Arc<Waker>)>,
    shared: Arc<Shared>,
}

impl Forwarder {
    /// Binds the ports, and starts a thread for each list of ports that forwards packets by the tables of `plane`.
    ///
    /// # Errors
    /// Fails with [`ForwardError::Nowhere`] if `config` has no port, with [`ForwardError::Socket`] if a port cannot be
    /// bound, and with [`ForwardError::Io`] if the operating system refuses a thread or a descriptor.
    pub fn start(config: &ForwarderConfig, plane: &Arc<SharedDataPlane>) -> Result<Self, ForwardError> {
        let options = PortConfig { receive_buffer: config.buffer, ..PortConfig::default() };
        let bind = |address| Port::bind(address, &options);
        let is_busy = |refused: &naa_udp::Error| matches!(refused, naa_udp::Error::AddressInUse { .. });
        let (mut lanes, mut skipped) = (Vec::new(), Vec::new());
        for listen in &config.listen {
            let (ports, busy) = bind_all(listen, bind, is_busy)?;
            lanes.push(ports);
            skipped.extend(busy);
        }
        let all = || lanes.iter().flatten();
        let addresses: Arc<[_]> = all().map(Port::local_addr).collect();
        let counted: Arc<[_]> = all().map(|_| Counted::default()).collect();
        let buffer = all().map(Port::recv_buffer).min().ok_or(ForwardError::Nowhere)?;
        let shared = Arc::<Shared>::default();
        let ports = PortsInUse { addresses, counted };
        let mut forwarder = Self { ports, skipped, buffer, threads: Vec::new(), shared };
        let mut own = forwarder.ports.addresses.to_vec();
        own.sort_unstable();
        let (own, counted): (Arc<[_]>, _) = (own.into(), &forwarder.ports.counted);
        let mut first = 0;
        for ports in lanes {
            let waker = Arc::new(Waker::new().map_err(failed("make an eventfd"))?);
            let ready = ReadySet::new().map_err(failed("make an epoll"))?;
            for (number, fd) in ports.iter().map(Port::as_fd).chain([waker.as_fd()]).enumerate() {
                ready.add(fd, number).map_err(failed("watch a UDP socket"))?;
            }
            let count = ports.len();
            let mut lane = Lane {
                ports: ports.into_iter().map(|port| LanePort { port, overflows: 0 }).collect(),
                ready,
                with_something: VecDeque::new(),
                turns: 0,
                waker: waker.clone(),
                plane: plane.clone(),
                own: own.clone(),
                counted: counted.clone(),
                first,
                shared: forwarder.shared.clone(),
                logged: Cell::new(None),
            };
            first += count;
            let thread = std::thread::Builder::new().name("lb".into());
            let thread = thread.spawn(move || lane.run()).map_err(failed("start a thread"))?;
            forwarder.threads.push((thread, waker));
        }
        Ok(forwarder)
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.ports.addresses
    }

    /// The ports of ranges that another process holds, and that are left out.
    pub fn skipped(&self) -> &[SocketAddr] {
        &self.skipped
    }

    /// Its ports, and what came to each of them.
    pub fn ports(&self) -> PortsInUse {
        self.ports.clone()
    }

    /// The smallest receive buffer as the kernel accounts it: twice what was asked for, or less where it refused.
    pub fn buffer(&self) -> usize {
        self.buffer
    }

    /// Why it no longer forwards all, if so.
    pub fn ended(&self) -> Option<String> {
        self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        for (thread, waker) in self.threads.drain(..) {
            waker.wake();
            // It does not panic; and if it did, it said so.
            let _ = thread.join();
        }
    }
}

/// The ports that one thread forwards from.
#[derive(Debug)]
struct Lane {
    ports: Vec<LanePort>,
    /// The ports, numbered as in `ports`, and then the waker.
    ready: ReadySet,
    /// The numbers of ports that may have something to receive, in the order of their turns.
    with_something: VecDeque<usize>,
    /// Batches that are left before the kernel is asked again.
    turns: usize,
    waker: Arc<Waker>,
    plane: Arc<SharedDataPlane>,
    /// The addresses of all threads' ports in ascending order: a packet sent there would come back.
    own: Arc<[SocketAddr]>,
    /// The counters of all threads' ports; those of this thread begin at `first`.
    counted: Arc<[Counted]>,
    first: usize,
    shared: Arc<Shared>,
    logged: Cell<Option<io::ErrorKind>>,
}

#[derive(Debug)]
struct LanePort {
    port: Port,
    /// Datagrams that found its receive buffer full, as the kernel counts them.
    overflows: u32,
}

impl Lane {
    fn run(&mut self) {
        let mut batch = RecvBatch::new(MESSAGES);
        let mut send = SendBatch::new(MESSAGES * MERGED, pass::BATCH_BYTES, self.ports[0].port.gso());
        let mut tidied = Instant::now();
        while !self.shared.stop.load(Relaxed) {
            if let Err(error) = self.turn(&mut batch, &mut send) {
                let why = format!("forwarding at {} ended: {error}", self.ports[0].port.local_addr());
                tracing::error!("{why}");
                *self.shared.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                return;
            }
            if tidied.elapsed() >= TIDY {
                tidied = Instant::now();
                self.plane.tidy(tidied);
            }
        }
    }

    /// Asks the kernel which ports have something, and waits for one if none is known to. Ports that have more than their
    /// turns took are among them again, behind those that waited.
    fn look(&mut self) -> io::Result<()> {
        let most = if self.with_something.is_empty() { TIDY } else { Duration::ZERO };
        let (ports, with_something) = (self.ports.len(), &mut self.with_something);
        with_something.clear();
        // The number behind those of the ports is the waker's.
        self.ready.wait(most, |at| with_something.extend((at < ports).then_some(at)))?;
        self.turns = with_something.len().max(TURNS);
        Ok(())
    }

    /// A batch, or a wait for one.
    fn turn(&mut self, batch: &mut RecvBatch, send: &mut SendBatch) -> io::Result<()> {
        if self.turns == 0 {
            return self.look();
        }
        self.turns -= 1;
        let Some(number) = self.with_something.pop_front() else { return self.look() };
        let LanePort { port, overflows } = &mut self.ports[number];
        if port.recv(batch)? == 0 {
            return Ok(());
        }
        // All other ports of the list have their turns before this one has another.
        self.with_something.push_back(number);
        if let Some(now) = batch.overflows() {
            let before = std::mem::replace(overflows, now);
            self.plane.lost(now.wrapping_sub(before).into(), 0);
        }

        let LanePort { port, .. } = &self.ports[number];
        let (at, own, mut looped) = (port.local_addr().ip(), &self.own, 0);
        let (mut packets, mut bytes) = (0, 0);
        let (mut path, count) = (self.plane.path(), &mut looped);
        let (packets_of, bytes_of) = (&mut packets, &mut bytes);
        // It holds the lock until the batch is routed.
        let route = move |from: SocketAddr, datagram: &[u8]| {
            *packets_of += 1;
            *bytes_of += datagram.len() as u64;
            let route = path.route(at, from.ip(), datagram).ok()?;
            // A member that keeps the LB header would send it round for ever.
            if own.binary_search(&route.to).is_ok() {
                *count += 1;
                return None;
            }
            Some((route.to, route.keep_lb_header))
        };
        pass::pass(batch, send, route, |send| self.flush(port, send))?;
        let counted = &self.counted[self.first + number];
        counted.packets.fetch_add(packets, Relaxed);
        counted.bytes.fetch_add(bytes, Relaxed);
        if looped > 0 {
            self.plane.lost(0, looped);
        }
        Ok(())
    }

    /// Until all is gone, or refused.
    fn flush(&self, port: &Port, send: &mut SendBatch) -> io::Result<()> {
        loop {
            let outcome = send.flush(port)?;
            if outcome.dropped > 0 {
                self.plane.lost(0, outcome.dropped as u64);
                self.log_refused(port, outcome.error.as_ref());
            }
            match outcome.rest {
                Rest::Empty => return Ok(()),
                Rest::GsoRefused => send.ungroup(|_, _, _| ()),
                Rest::Blocked if self.shared.stop.load(Relaxed) => return Ok(()),
                Rest::Blocked => drop(wait(&[port], Some(&self.waker), true, Some(TIDY))?),
            }
        }
    }

    /// Each kind of error once: there may be one for each packet.
    fn log_refused(&self, port: &Port, error: Option<&io::Error>) {
        let kind = error.map(io::Error::kind);
        if self.logged.replace(kind) != kind
            && let Some(error) = error
        {
            let at = port.local_addr();
            tracing::warn!(
                "the system does not send what {at} forwards: {error}; look at members' addresses, routes and MTUs"
            );
        }
    }
}
