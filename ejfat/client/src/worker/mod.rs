//! A worker of a reservation: it registers, tells how it is, drains and leaves.

mod life;
mod run;
mod state;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, TryRecvError},
    },
    time::Duration,
};

use proto::loadbalancer::{RegisterRequest, SlotRange};
use tokio::sync::Notify;

pub use state::{Totals, WorkerState};

use crate::{ClientError, Connection};

/// A number of consecutive UDP ports, as control planes count them: a power of two up to 16384.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRange(u8);

/// A number of ports that no worker can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} ports are no power of two up to 16384")]
pub struct PortRangeError(u16);

impl PortRange {
    const MOST: u8 = 14;

    /// # Errors
    /// If the number is not a power of two, or above 16384.
    pub fn of(ports: u16) -> Result<Self, PortRangeError> {
        let exponent = ports.is_power_of_two().then(|| ports.trailing_zeros() as u8);
        exponent.filter(|&exponent| exponent <= Self::MOST).map(Self).ok_or(PortRangeError(ports))
    }

    /// The largest one that is not above a number of ports, which is not 0.
    pub fn within(ports: usize) -> Self {
        let exponent = ports.max(1).ilog2().min(Self::MOST.into());
        Self(exponent as u8)
    }

    pub fn ports(self) -> u16 {
        1 << self.0
    }
}

/// What a worker is when it registers.
#[derive(Clone, Debug, PartialEq)]
pub struct Registration {
    /// For people.
    pub name: String,
    /// Its part of the events, beside others' weights.
    pub weight: f32,
    /// Its least and most part, as factors of an even one; 0: no bound.
    pub min_factor: f32,
    pub max_factor: f32,
    /// The first of its ports.
    pub address: SocketAddr,
    pub ports: PortRange,
    /// Segments are to come with the load balancer's header.
    pub keep_lb_header: bool,
    pub slot_demands: Vec<SlotRange>,
}

impl Registration {
    /// With any part of the events that the control plane gives.
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

/// How a worker stands with its control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Its session, while it has one.
    pub session: Option<String>,
    /// Whether the control plane took its newest state.
    pub is_told: bool,
    /// How many states were taken.
    pub told: u64,
    /// How often it registered again.
    pub again: u64,
    /// The last thing that went wrong.
    pub problem: Option<String>,
}

/// How a worker left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Nothing was sent to it any more, as far as one can know.
    pub drained: bool,
    /// The control plane knows that it left.
    pub deregistered: bool,
}

const NOT_KNOWN: Departure = Departure { drained: false, deregistered: false };

/// What those who wait and the worker's task share.
#[derive(Debug, Default)]
struct Shared {
    wish: Mutex<Wish>,
    wished: Notify,
    standing: Mutex<Standing>,
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
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner) = wish;
        self.wished.notify_one();
    }

    fn wanted(&self) -> Wish {
        *self.wish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self, change: impl FnOnce(&mut Standing)) {
        change(&mut self.standing.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A registered worker. Its state is told until it is dropped or drains; dropped, it deregisters.
pub struct Worker {
    shared: Arc<Shared>,
    ended: mpsc::Receiver<Departure>,
    /// Where its task runs.
    connection: Connection,
    left: bool,
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, .. } = self;
        f.debug_struct("Worker").field("connection", connection).finish_non_exhaustive()
    }
}

/// A worker that is dropped takes so long to leave, at most.
const LEAVE: Duration = Duration::from_millis(1500);
/// What a drain may take beyond its deadline: the call under way, and to deregister.
const BEYOND: Duration = Duration::from_secs(3);

impl Worker {
    /// From state to state, as control planes expect it.
    pub const PERIOD: Duration = Duration::from_millis(100);

    /// Registers a worker of reservation `lb`. From then on `state` is asked every so often, on another thread; it must not
    /// wait. If the control plane goes away, it is tried again and again; if it forgets the session, there is a new one.
    ///
    /// # Errors
    /// If the first registration is refused, or nobody answers. Ports that another session has are waited for for a moment.
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
            registered: Some(registered),
        };
        connection.runtime().spawn(async move {
            let departure = task.run(every).await;
            // Whoever waited may have gone.
            let _ = over.send(departure);
        });
        let gone = || ClientError::Runtime(std::io::Error::other("its thread ended"));
        first.recv().unwrap_or_else(|_| Err(gone()))?;
        Ok(Self { shared, ended, connection: connection.clone(), left: false })
    }

    /// How it stands with its control plane.
    pub fn standing(&self) -> Standing {
        self.shared.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells that it takes no more, waits until nothing is sent to it, then deregisters: within `within` and a moment. Events
    /// come until then, so another thread goes on receiving.
    pub fn drain(mut self, within: Duration) -> Departure {
        self.begin_drain(within);
        self.wait(within + BEYOND)
    }

    /// Begins to drain. [`departed`](Self::departed) tells when it is over.
    pub fn begin_drain(&self, within: Duration) {
        self.shared.wish(Wish::Drain { within });
    }

    /// How it left, once it has.
    pub fn departed(&mut self) -> Option<Departure> {
        let departure = match self.ended.try_recv() {
            Ok(departure) => departure,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => NOT_KNOWN,
        };
        self.left = true;
        Some(departure)
    }

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
