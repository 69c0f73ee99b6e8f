//! Forwards UDP by the tables.
//!
//! ```text
//! recvmmsg, GRO ─► Balancer::route ─► sendmmsg, GSO, from the same socket: the source is the load balancer's address
//! ```
//!
//! Payload is not copied: what is sent is gathered from the buffers that were received into, without the LB header where
//! the member does not keep it. The system takes care of IP: TTL, checksums, next hops.

mod pass;

use std::{
    cell::Cell,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use roce_udp::socket::{Port, PortConfig, RecvBatch, Rest, SendBatch, Waker, wait};

use crate::Plane;

/// Messages that one system call receives, and datagrams that the kernel merges into one at most.
const MESSAGES: usize = 32;
const MERGED: usize = 64;
/// Between two looks at tables that are over.
const TIDY: Duration = Duration::from_millis(250);

/// Where to listen.
#[derive(Clone, Debug)]
pub struct ForwarderConfig {
    /// Concrete local addresses. Each has a thread.
    pub listen: Vec<SocketAddr>,
    /// Receive buffer of each, in bytes.
    pub buffer: usize,
}

/// Why nothing is forwarded.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    #[error("no address to listen on; give at least one")]
    Nowhere,
    #[error(transparent)]
    Socket(#[from] verbs::Error),
    #[error("cannot {what}")]
    Io {
        what: &'static str,
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

/// Forwards until it is dropped.
#[derive(Debug)]
pub struct Forwarder {
    addresses: Vec<SocketAddr>,
    /// As the kernel accounts it.
    buffer: usize,
    threads: Vec<(JoinHandle<()>, Arc<Waker>)>,
    shared: Arc<Shared>,
}

impl Forwarder {
    pub fn start(config: &ForwarderConfig, plane: &Arc<Plane>) -> Result<Self, ForwardError> {
        let options = PortConfig { receive_buffer: config.buffer, ..PortConfig::default() };
        let bind = |&address: &SocketAddr| Port::bind(address, &options);
        let ports = config.listen.iter().map(bind).collect::<Result<Vec<_>, _>>()?;
        let addresses: Arc<[_]> = ports.iter().map(Port::local_addr).collect();
        let buffer = ports.iter().map(Port::recv_buffer).min().ok_or(ForwardError::Nowhere)?;
        let shared = Arc::<Shared>::default();
        let mut forwarder = Self { addresses: addresses.to_vec(), buffer, threads: Vec::new(), shared };
        for port in ports {
            let waker = Arc::new(Waker::new().map_err(failed("make an eventfd"))?);
            let mut lane = Lane {
                port,
                waker: waker.clone(),
                plane: plane.clone(),
                own: addresses.clone(),
                shared: forwarder.shared.clone(),
                overflows: 0,
                told: Cell::new(None),
            };
            let thread = std::thread::Builder::new().name("lb".into());
            let thread = thread.spawn(move || lane.run()).map_err(failed("start a thread"))?;
            forwarder.threads.push((thread, waker));
        }
        Ok(forwarder)
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
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

/// One socket's thread.
#[derive(Debug)]
struct Lane {
    port: Port,
    waker: Arc<Waker>,
    plane: Arc<Plane>,
    /// Where packets would come back to us.
    own: Arc<[SocketAddr]>,
    shared: Arc<Shared>,
    overflows: u32,
    told: Cell<Option<io::ErrorKind>>,
}

impl Lane {
    fn run(&mut self) {
        let mut batch = RecvBatch::new(MESSAGES);
        let mut send = SendBatch::new(MESSAGES * MERGED, pass::ARENA, self.port.gso());
        let mut tidied = Instant::now();
        while !self.shared.stop.load(Relaxed) {
            if let Err(error) = self.turn(&mut batch, &mut send) {
                let why = format!("forwarding at {} ended: {error}", self.port.local_addr());
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

    /// A batch, or a wait for one.
    fn turn(&mut self, batch: &mut RecvBatch, send: &mut SendBatch) -> io::Result<()> {
        if self.port.recv(batch)? == 0 {
            wait(&[&self.port], Some(&self.waker), false, Some(TIDY))?;
            return Ok(());
        }
        let dropped = batch.overflows().wrapping_sub(self.overflows);
        self.overflows = batch.overflows();
        if dropped > 0 {
            self.plane.lost(dropped.into(), 0);
        }

        let (at, own, mut looped) = (self.port.local_addr().ip(), &self.own, 0);
        let (mut balancer, count) = (self.plane.balancer(), &mut looped);
        // It holds the lock until the batch is routed.
        let route = move |from: SocketAddr, datagram: &[u8]| {
            let route = balancer.route(at, from.ip(), datagram).ok()?;
            // A member that keeps the LB header would send it round for ever.
            if own.contains(&route.to) {
                *count += 1;
                return None;
            }
            Some((route.to, route.keep_lb_header))
        };
        pass::pass(batch, send, route, |send| self.flush(send))?;
        if looped > 0 {
            self.plane.lost(0, looped);
        }
        Ok(())
    }

    /// Until all is gone, or refused.
    fn flush(&self, send: &mut SendBatch) -> io::Result<()> {
        loop {
            let outcome = send.flush(&self.port)?;
            if outcome.dropped > 0 {
                self.plane.lost(0, outcome.dropped as u64);
                self.tell_refused(outcome.error.as_ref());
            }
            match outcome.rest {
                Rest::Empty => return Ok(()),
                Rest::GsoRefused => send.ungroup(|_, _, _| ()),
                Rest::Blocked if self.shared.stop.load(Relaxed) => return Ok(()),
                Rest::Blocked => drop(wait(&[&self.port], Some(&self.waker), true, Some(TIDY))?),
            }
        }
    }

    /// Each kind of error once: there may be one for each packet.
    fn tell_refused(&self, error: Option<&io::Error>) {
        let kind = error.map(io::Error::kind);
        if self.told.replace(kind) != kind
            && let Some(error) = error
        {
            let at = self.port.local_addr();
            tracing::warn!(
                "the system does not send what {at} forwards: {error}; look at members' addresses, routes and MTUs"
            );
        }
    }
}
