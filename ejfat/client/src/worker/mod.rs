//! A worker of a reservation, which registers, reports its state, drains and deregisters.

mod life;
mod run;
mod state;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, TryRecvError},
    },
    thread::sleep,
    time::{Duration, Instant},
};

use proto::loadbalancer::{RegisterRequest, SlotRange};
use tokio::sync::Notify;

pub use state::{Totals, WorkerState};

use crate::{ClientError, Connection};

/// A number of consecutive UDP ports, as control planes count them: a power of two up to 16384.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange(u8);

/// An error: a number of ports that no worker can register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} ports cannot be registered; use a power of two from 1 to 16384")]
pub struct PortRangeError(u16);

impl PortRange {
    const MOST: u8 = 14;

    /// Returns the range of this number of ports.
    ///
    /// # Errors
    /// If the number is not a power of two, or above 16384.
    pub fn of(ports: u16) -> Result<Self, PortRangeError> {
        let exponent = ports.is_power_of_two().then(|| ports.trailing_zeros() as u8);
        exponent.filter(|&exponent| exponent <= Self::MOST).map(Self).ok_or(PortRangeError(ports))
    }

    /// Returns the largest range that has at most this number of ports. If `ports` is 0, the range has one port.
    pub fn within(ports: usize) -> Self {
        let exponent = ports.max(1).ilog2().min(Self::MOST.into());
        Self(exponent as u8)
    }

    /// Returns the number of ports.
    pub fn ports(self) -> u16 {
        1 << self.0
    }
}

/// What a worker registers with.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// A name for people.
    pub name: String,
    /// The weight of the worker, until its states decide its share. The weight 1 stands for one equal part of the
    /// events that workers with a known capacity leave, and the weights of these workers do not count.
    pub weight: f32,
    /// The least share, as a factor of an even share; 0 is no bound.
    pub min_factor: f32,
    /// The greatest share, as a factor of an even share; 0 is no bound.
    pub max_factor: f32,
    /// The address of the worker with its first port.
    pub address: SocketAddr,
    /// How many ports the worker has, from that one on.
    pub ports: PortRange,
    /// Whether the load balancer leaves the LB header in the segments.
    pub keep_lb_header: bool,
    /// The calendar slots that the worker demands for itself.
    pub slot_demands: Vec<SlotRange>,
}

impl Registration {
    /// Returns a registration of one port, with weight 1, without bounds and slot demands.
    pub fn new(name: impl Into<String>, address: SocketAddr) -> Self {
        Self {
            name: name.into(),
            weight: 1.0,
            min_factor: 0.0,
            max_factor: 0.0,
            address,
            ports: PortRange::default(),
            keep_lb_header: false,
            slot_demands: Vec::new(),
        }
    }

    fn request(&self, lb: &str) -> RegisterRequest {
        RegisterRequest {
            lb_id: lb.to_owned(),
            name: self.name.clone(),
            weight: self.weight,
            ip_address: self.address.ip().to_string(),
            udp_port: self.address.port().into(),
            port_range: i32::from(self.ports.0),
            min_factor: self.min_factor,
            max_factor: self.max_factor,
            keep_lb_header: self.keep_lb_header,
            slot_demands: self.slot_demands.clone(),
        }
    }
}

/// What a worker knows of its registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The id of its session, while it has one.
    pub session: Option<String>,
    /// Whether the control plane accepted its newest state.
    pub is_accepted: bool,
    /// How many states the control plane accepted.
    pub accepted: u64,
    /// How often the worker registered again.
    pub registered_again: u64,
    /// The text of the newest error.
    pub problem: Option<String>,
}

/// How a worker ended its registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Whether the load balancer sent nothing to it any more, as far as the worker could find out.
    pub drained: bool,
    /// Whether the control plane knows that the worker left.
    pub deregistered: bool,
}

const NOT_KNOWN: Departure = Departure { drained: false, deregistered: false };

/// What a [`Worker`] and its task share.
#[derive(Debug, Default)]
struct Shared {
    wish: Mutex<Wish>,
    wished: Notify,
    standing: Mutex<Standing>,
    /// Why the worker cannot register again, if it cannot.
    gone: OnceLock<String>,
    /// Whether the task has ended.
    over: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Wish {
    #[default]
    Stay,
    Drain {
        within: Duration,
    },
    Leave,
}

impl Shared {
    fn wish(&self, wish: Wish) {
        let mut wanted = self.wish.lock().unwrap_or_else(PoisonError::into_inner);
        // A worker that is to leave at once does not drain any more.
        if !matches!(*wanted, Wish::Leave) {
            *wanted = wish;
        }
        drop(wanted);
        self.wished.notify_one();
    }

    fn wanted(&self) -> Wish {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.standing.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Lets a worker leave from another thread, for a program that is about to end.
#[derive(Clone, Debug)]
pub struct Leaver(Arc<Shared>);

impl Leaver {
    /// Deregisters without draining. It waits for that until the time `within` has passed, and returns whether the worker has left.
    pub fn leave(&self, within: Duration) -> bool {
        const STEP: Duration = Duration::from_millis(5);
        let begin = Instant::now();
        self.0.wish(Wish::Leave);
        while !self.0.over.load(Ordering::Acquire) && begin.elapsed() < within {
            sleep(STEP);
        }
        self.0.over.load(Ordering::Acquire)
    }
}

/// A registered worker, which reports its state until it is drained or dropped. When it is dropped, it deregisters without
/// draining.
pub struct Worker {
    shared: Arc<Shared>,
    ended: mpsc::Receiver<Departure>,
    /// The connection whose thread runs the task.
    connection: Connection,
    /// Whether the end of the task has been waited for.
    left: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, .. } = self;
        f.debug_struct("Worker").field("connection", connection).finish_non_exhaustive()
    }
}

/// The most time that dropping a worker takes.
const LEAVE: Duration = Duration::from_millis(1500);
/// The time that a drain may take after its deadline, for the call in progress and for `Deregister`.
const BEYOND: Duration = Duration::from_secs(3);

impl Worker {
    /// The time from one state to the next that control planes expect.
    pub const PERIOD: Duration = Duration::from_millis(100);

    /// Registers a worker of reservation `lb`. From then on the connection's thread calls `state` once in each period `every`, and
    /// reports what it returns; `state` must not block. If the control plane cannot be reached, the worker tries again until it can.
    /// If the control plane does not know the session any more, the worker registers again; if it does not know the reservation or
    /// the token either, the worker ends, and [`gone`](Self::gone) says why. If another session has the ports, as
    /// after a crash of this program, the worker waits up to 5 seconds for the end of that session.
    ///
    /// # Errors
    /// If the control plane refuses the first registration, or cannot be reached.
    pub fn register(
        connection: &Connection,
        lb: &str,
        registration: Registration,
        every: Duration,
        state: impl Fn() -> WorkerState + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        let shared = Arc::<Shared>::default();
        let (registered, first) = mpsc::sync_channel(1);
        let (over, ended) = mpsc::sync_channel(1);
        let task = run::Task {
            connection: connection.clone(),
            lb: lb.to_owned(),
            registration,
            state: Box::new(state),
            shared: shared.clone(),
            session: None,
            registered: Some(registered),
        };
        let is_over = shared.clone();
        connection.runtime().spawn(async move {
            let departure = task.run(every).await;
            is_over.over.store(true, Ordering::Release);
            // The worker may have been dropped already.
            let _ = over.send(departure);
        });
        let gone = || ClientError::Runtime(std::io::Error::other("its thread ended"));
        first.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { shared, ended, connection: connection.clone(), left: false })
    }

    /// Returns what the worker knows of its registration.
    pub fn standing(&self) -> Standing {
        self.shared.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns why this worker gets no events any more for good, or `None` while it may get some. It does not block.
    pub fn gone(&self) -> Option<&str> {
        self.shared.gone.get().map(String::as_str)
    }

    /// Returns what lets the worker leave from another thread.
    pub fn leaver(&self) -> Leaver {
        Leaver(self.shared.clone())
    }

    /// Reports that the worker takes no more events, waits until the load balancer sends nothing to it, at most for `within`, then
    /// deregisters. This blocks for up to 3 seconds longer than `within`. Segments arrive until then, so another thread has to go on
    /// receiving.
    pub fn drain(mut self, within: Duration) -> Departure {
        self.begin_drain(within);
        self.wait(within + BEYOND)
    }

    /// Begins to drain, and returns at once. [`departed`](Self::departed) returns a value when the drain is over.
    pub fn begin_drain(&self, within: Duration) {
        self.shared.wish(Wish::Drain { within });
    }

    /// Returns how the worker left, or `None` while it has not left. It returns the departure only once.
    pub fn departed(&mut self) -> Option<Departure> {
        let departure = match self.ended.try_recv() {
            Ok(departure) => departure,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => NOT_KNOWN,
        };
        self.left = true;
        Some(departure)
    }

    /// Waits for the end of the task, at most for `most`.
    fn wait(&mut self, most: Duration) -> Departure {
        self.left = true;
        self.ended.recv_timeout(most).unwrap_or(NOT_KNOWN)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.left {
            self.shared.wish(Wish::Leave);
            let Departure { deregistered, .. } = self.wait(LEAVE);
            if !deregistered {
                let address = self.connection.address();
                tracing::warn!("the control plane at {address} may not know yet that this worker left");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_powers_of_two() {
        assert_eq!(PortRange::of(1).map(PortRange::ports), Ok(1));
        assert_eq!(PortRange::of(16_384).map(PortRange::ports), Ok(16_384));
        assert_eq!(PortRange::of(3), Err(PortRangeError(3)));
        assert_eq!(PortRange::of(0), Err(PortRangeError(0)));
        assert_eq!(PortRange::of(32_768), Err(PortRangeError(32_768)));
        assert_eq!([1, 2, 3, 7, 8, 60_000].map(|n| PortRange::within(n).ports()), [1, 2, 2, 4, 8, 16_384]);
    }
}
