//! The connections of one event channel of librdmacm. The table below lists the events of librdmacm, the actions that
//! they cause, and the CM events for the program.
//!
//! | state | event | action | CM event for the program | next state |
//! |---|---|---|---|---|
//! | Resolving | address resolved | resolve the route | | Resolving |
//! | Resolving | route resolved | REQ | | Connecting |
//! | Resolving | unresolved, time limit exceeded | | Unreachable | Over |
//! | Connecting | response | queue pair ready, RTU | Established | Open |
//! | Connecting | rejected, unreachable, time limit exceeded | | Rejected, Unreachable | Over |
//! | Accepted | established | | Established | Open |
//! | Accepted | rejected, unreachable | | Rejected, Unreachable | Over |
//! | Accepted, Open | disconnected, device removed | flush, confirm | Disconnected | Over |
//! | Accepted, Open | the program disconnects | flush, DREQ | Disconnected | Over |
//! | Listening | request | new connection in state Asked | ConnectRequest | Listening |
//! | Asked | the program accepts | queue pair ready, REP | | Accepted |
//! | Asked | the program rejects | REJ | | Over |

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap as HashMap;
use verbs::{CmEvent, CmId, ConnParam, Error, EstablishedParam, RejectReason, Unreachable};

use crate::{
    queue::{self, Interrupt},
    sys::{self, ConnRequest, EventChannel, RawEvent, Retries, Waker, What},
};

/// The time limit for each of two steps: resolving the peer's address, and resolving the route. The limit of 2 seconds
/// is sufficient for two tries of neighbour discovery (ARP).
const RESOLVING: Duration = Duration::from_secs(2);
/// The minimum intervals between two system calls by which a spinning thread requests CM events from the Linux kernel.
/// The first interval applies while a connection is being set up, and the second one while no connection is being set
/// up. No interval applies to a sleeping thread, because the Linux kernel wakes the thread when a CM event arrives.
const ASKING: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(1)];
/// The maximum number of bytes of private data that a program can send with a connection request. A REQ has 92 bytes of
/// private data, of which librdmacm's own header takes up 36.
const MAX_PRIVATE_DATA: usize = 56;
/// If no connection is being set up, only every `POLLS`-th poll for CM events requests events from the Linux kernel.
/// Sessions poll for CM events often, so a system call in each poll would take too long.
const POLLS: u32 = 64;
/// The time limit of a connection attempt if the program sets no limit. The connection manager of the Linux kernel uses
/// the same time limit of 98 seconds.
const LONGEST: Duration = Duration::from_secs(98);

/// A queue pair that a connection shares with the driver's table of queue pairs. The connection changes the state of
/// the queue pair. The program can destroy the queue pair at any time; the `Option` is `None` from then on.
pub(crate) type SharedQp = Arc<Mutex<Option<sys::RawQp>>>;

/// Locks a queue pair that a connection shares with the driver. The locked value is `None` if the queue pair is
/// destroyed.
pub(crate) fn lock_qp(qp: &SharedQp) -> MutexGuard<'_, Option<sys::RawQp>> {
    qp.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
enum State {
    Listening,
    /// The program has neither accepted nor rejected the peer's request. `reads` has the two maximum numbers of
    /// outstanding READs that the peer's request contains. `reads.0` applies to the READs that the peer sends to this
    /// side. `reads.1` applies to the READs that this side sends to the peer.
    Asked {
        reads: (u8, u8),
    },
    Resolving {
        qp: SharedQp,
        param: ConnParam,
        deadline: Instant,
    },
    Connecting {
        qp: SharedQp,
        param: ConnParam,
        deadline: Instant,
    },
    Accepted {
        qp: SharedQp,
        param: EstablishedParam,
    },
    Open {
        qp: SharedQp,
    },
    Over,
}

#[derive(Debug)]
struct CmConnection {
    // `raw` is declared before `state`, so Rust drops `raw` first. The `rdma_cm_id` in `raw` is thus destroyed while
    // `state` still has its reference to the connection's queue pair.
    raw: sys::RawCmId,
    state: State,
}

#[derive(Debug, Default)]
struct CmConnections {
    by_id: HashMap<CmId, CmConnection>,
    by_raw: HashMap<usize, CmId>,
    events: VecDeque<CmEvent>,
    /// The time at which CM events were last requested from the Linux kernel.
    asked: Option<Instant>,
    /// An upper bound of the number of connections that are being set up. Each call of `Channel::pump` counts these
    /// connections anew. Between these calls, `CmConnections::add` adds 1 for each new connection or listener, but
    /// nothing is subtracted for connections that end.
    pending: usize,
    /// The number of calls of `Channel::next_event` that found no queued CM event since CM events were last requested
    /// from the Linux kernel.
    polls: u32,
}

#[derive(Debug)]
pub(crate) struct Channel {
    connections: Mutex<CmConnections>,
    pub(crate) raw: Arc<EventChannel>,
    pub(crate) interrupt: Interrupt,
    /// A waker for threads that sleep until a CM event arrives. It ends their sleep when a call of `connect` or
    /// `disconnect` queues a CM event.
    pub(crate) queued: Waker,
    max_reads: (u8, u8),
}

impl Channel {
    pub(crate) fn new(raw: EventChannel, max_reads: (u8, u8)) -> Result<Self, Error> {
        let raw = Arc::new(raw);
        Ok(Self {
            connections: Mutex::default(),
            raw,
            interrupt: Interrupt::new()?,
            queued: queue::waker()?,
            max_reads,
        })
    }

    fn connections(&self) -> MutexGuard<'_, CmConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the ids of the connections and listeners that the program has not destroyed yet.
    pub(crate) fn connections_left(&self) -> Vec<CmId> {
        self.connections().by_id.keys().copied().collect()
    }

    pub(crate) fn listen(&self, id: CmId, local: SocketAddr, backlog: u32) -> Result<u16, Error> {
        let raw = sys::RawCmId::new(&self.raw)?;
        // The table of connections stays locked until the new listener is in the table. A thread that takes a
        // connection request for this listener waits for the lock, and then finds the listener.
        let mut connections = self.connections();
        raw.bind(local).and_then(|()| raw.listen(backlog)).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::AddressInUse {
                addr: local,
                holder:
                    "another RDMA program (`rdma resource show cm_id` lists them); stop it, or take another \
                         port"
                        .into(),
            },
            _ => Error::io(format!("cannot listen on {local}"), error),
        })?;
        let port = raw.port();
        connections.add(id, raw, State::Listening);
        Ok(port)
    }

    pub(crate) fn connect(
        &self,
        id: CmId,
        qp: &SharedQp,
        (local, remote): (SocketAddr, SocketAddr),
        param: &ConnParam,
    ) -> Result<(), Error> {
        param.check_codes(param.ack_timeout.unwrap_or(0))?;
        if param.private_data.len() > MAX_PRIVATE_DATA {
            return Err(Error::Invalid("more than 56 bytes of private data do not fit a connection request"));
        }
        let raw = sys::RawCmId::new(&self.raw)?;
        let limit = param.connect_timeout.unwrap_or(LONGEST);
        let deadline = Instant::now() + limit;
        let mut connections = self.connections();
        let resolving = raw.resolve_address(local, remote, limit.min(RESOLVING));
        let state = match resolving {
            Ok(()) => State::Resolving { qp: qp.clone(), param: param.clone(), deadline },
            Err(error) if is_network(error.raw_os_error()) => {
                connections.events.push_back(CmEvent::Unreachable { id, why: Unreachable::Network });
                self.queued.wake();
                State::Over
            }
            Err(error) => return Err(Error::io(format!("librdmacm cannot resolve {remote}"), error)),
        };
        connections.add(id, raw, state);
        Ok(())
    }

    pub(crate) fn accept(&self, id: CmId, qp: &SharedQp, param: &ConnParam) -> Result<(), Error> {
        let mut connections = self.connections();
        let connection = connections.by_id.get_mut(&id).ok_or_else(|| unknown(id))?;
        let State::Asked { reads } = connection.state else {
            return Err(Error::Invalid("the connection does not wait to be accepted"));
        };
        // The side that accepts a connection uses the ACK timeout of the peer's REQ. So the ACK timeout in `param` is
        // not used and not checked.
        param.check_codes(0)?;
        let reads = within(within((param.responder_resources, param.initiator_depth), reads), self.max_reads);
        let guard = lock_qp(qp);
        let ready = guard.as_ref().ok_or(Error::QpState("destroyed"))?;
        let agreed = ready
            .to_ready(&connection.raw, Retries { reads, ack_timeout: None })
            .map_err(|e| Error::io("the queue pair does not connect", e))?;
        let reads = agreed.reads;
        let answer = ConnParam { responder_resources: reads.0, initiator_depth: reads.1, ..param.clone() };
        connection
            .raw
            .accept(ready.num(), &answer)
            .map_err(|e| Error::io("librdmacm does not accept the connection", e))?;
        drop(guard);
        let param = EstablishedParam {
            private_data: Vec::new(),
            path_mtu: agreed.path_mtu,
            responder_resources: reads.0,
            initiator_depth: reads.1,
            embedded_peer: false,
        };
        connection.state = State::Accepted { qp: qp.clone(), param };
        Ok(())
    }

    pub(crate) fn reject(&self, id: CmId, private_data: &[u8]) -> Result<(), Error> {
        let mut connections = self.connections();
        let connection = connections.by_id.get_mut(&id).ok_or_else(|| unknown(id))?;
        if !matches!(connection.state, State::Asked { .. }) {
            return Err(Error::Invalid("the connection does not wait to be rejected"));
        }
        connection.state = State::Over;
        connection
            .raw
            .reject(private_data)
            .map_err(|e| Error::io("librdmacm does not reject the connection", e))
    }

    pub(crate) fn disconnect(&self, id: CmId) -> Result<(), Error> {
        let mut connections = self.connections();
        let connection = connections.by_id.get_mut(&id).ok_or_else(|| unknown(id))?;
        let (State::Accepted { qp, .. } | State::Open { qp }) = &connection.state else {
            // A connection is established only in the states `Accepted` and `Open`, so nothing is to be disconnected in
            // the other states.
            return Ok(());
        };
        flush(qp);
        connection.state = State::Over;
        // The connection is over for this side immediately, although the peer's program may confirm the disconnect
        // later.
        let sent = connection.raw.disconnect();
        connections.events.push_back(CmEvent::Disconnected { id });
        self.queued.wake();
        sent.map_err(|e| Error::io("librdmacm does not disconnect", e))
    }

    pub(crate) fn destroy(&self, id: CmId) -> Result<(), Error> {
        let mut connections = self.connections();
        let connection = connections.by_id.remove(&id).ok_or_else(|| unknown(id))?;
        connections.by_raw.remove(&connection.raw.raw());
        connections.events.retain(|event| event.id() != id);
        drop(connections);
        if let State::Accepted { qp, .. } | State::Open { qp } = &connection.state {
            flush(qp);
            // An error is ignored, because the connection ends even if the peer cannot be notified.
            let _ = connection.raw.disconnect();
        }
        Ok(())
    }

    /// Returns the next CM event for the program. The function `new_id` creates the ids of new connections.
    pub(crate) fn next_event(&self, new_id: &dyn Fn() -> CmId) -> Result<Option<CmEvent>, Error> {
        let mut connections = self.connections();
        if connections.events.is_empty() && connections.is_worth_asking() {
            self.pump(&mut connections, new_id)?;
        }
        Ok(connections.events.pop_front())
    }

    /// Returns true if the program can take a CM event. If no CM event is queued, the function requests CM events from
    /// the Linux kernel. If `now` is given, this request is left out until the minimum time (`ASKING`) has passed since
    /// the last request.
    pub(crate) fn is_ready(&self, now: Option<Instant>, new_id: &dyn Fn() -> CmId) -> Result<bool, Error> {
        let mut connections = self.connections();
        if connections.events.is_empty() && now.is_none_or(|now| connections.is_due(now)) {
            self.pump(&mut connections, new_id)?;
        }
        Ok(!connections.events.is_empty())
    }

    /// Returns the earliest time at which the time limit of a connection attempt ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.connections().by_id.values().filter_map(CmConnection::deadline).min()
    }

    fn pump(&self, connections: &mut CmConnections, new_id: &dyn Fn() -> CmId) -> Result<(), Error> {
        while let Some(event) = self.raw.next().map_err(|e| Error::io("librdmacm reports no events", e))? {
            if let What::Request(request) = event.what {
                connections.asked(new_id, *request, event.private_data);
            } else if let Some(&id) = connections.by_raw.get(&event.id)
                && let Some(cm_event) =
                    connections.by_id.get_mut(&id).and_then(|c| c.handle(id, event, self.max_reads))
            {
                connections.events.push_back(cm_event);
            }
        }
        connections.asked = Some(Instant::now());
        connections.polls = 0;
        connections.pending = connections.by_id.values().filter(|c| c.is_pending()).count();
        connections.expire();
        Ok(())
    }
}

impl CmConnections {
    fn add(&mut self, id: CmId, raw: sys::RawCmId, state: State) {
        self.pending += 1;
        self.by_raw.insert(raw.raw(), id);
        self.by_id.insert(id, CmConnection { raw, state });
    }

    fn asked(&mut self, new_id: &dyn Fn() -> CmId, request: ConnRequest, private_data: Vec<u8>) {
        // If the listener of a connection request was destroyed, the connection request is dropped.
        let Some(&listener) = self.by_raw.get(&request.listener) else { return };
        let id = new_id();
        let param = ConnParam {
            private_data,
            responder_resources: request.responder_resources,
            initiator_depth: request.initiator_depth,
            retry_count: request.retry_count,
            rnr_retry_count: request.rnr_retry_count,
            ack_timeout: None,
            connect_timeout: None,
        };
        let reads = (request.responder_resources, request.initiator_depth);
        let endpoints = request.endpoints;
        self.add(id, request.id, State::Asked { reads });
        self.events.push_back(CmEvent::ConnectRequest { listener, id, endpoints, param });
    }

    fn is_due(&self, now: Instant) -> bool {
        let [busy, idle] = ASKING;
        let interval = if self.pending > 0 { busy } else { idle };
        self.asked.is_none_or(|at| now.saturating_duration_since(at) >= interval)
    }

    /// Returns true if this poll must request CM events from the Linux kernel. One of three conditions is sufficient: a
    /// connection is being set up, CM events were never requested, or this is the `POLLS`-th poll since the last
    /// request. The similar method `is_due` looks at the time since the last request. This method counts polls instead,
    /// so it needs no clock.
    fn is_worth_asking(&mut self) -> bool {
        self.polls += 1;
        self.pending > 0 || self.asked.is_none() || self.polls >= POLLS
    }

    /// Ends the connection attempts whose time limit is over.
    fn expire(&mut self) {
        let Self { by_id, events, .. } = self;
        let late = |connection: &CmConnection| connection.deadline().is_some_and(|at| Instant::now() >= at);
        for (&id, connection) in by_id.iter_mut().filter(|(_, connection)| late(connection)) {
            connection.state = State::Over;
            events.push_back(CmEvent::Unreachable { id, why: Unreachable::NoAnswer });
        }
    }
}

impl CmConnection {
    fn is_pending(&self) -> bool {
        !matches!(self.state, State::Listening | State::Open { .. } | State::Over)
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::Resolving { deadline, .. } | State::Connecting { deadline, .. } => Some(*deadline),
            _ => None,
        }
    }

    /// Handles an event of librdmacm according to the table in the module's documentation. Returns the CM event for the
    /// program, if there is one.
    fn handle(&mut self, id: CmId, event: RawEvent, max_reads: (u8, u8)) -> Option<CmEvent> {
        let private_data = event.private_data;
        match (std::mem::replace(&mut self.state, State::Over), event.what) {
            (State::Resolving { qp, param, deadline }, What::AddressResolved) => {
                // The ACK timeout is set before the route is resolved, because the REQ takes its ACK timeout from the
                // route. A timeout of 0 is not passed to librdmacm, because Linux kernels before 6.8 misinterpret the
                // value 0.
                if let Some(timeout @ 1..) = param.ack_timeout {
                    self.raw.set_ack_timeout(timeout);
                }
                if self.raw.resolve_route(RESOLVING).is_err() {
                    return Some(CmEvent::Unreachable { id, why: Unreachable::Network });
                }
                self.state = State::Resolving { qp, param, deadline };
                None
            }
            (State::Resolving { qp, param, deadline }, What::RouteResolved) => {
                if let Err(error) = self.ask(&qp, &param, max_reads) {
                    tracing::warn!(%error, "librdmacm sends no connection request");
                    return Some(CmEvent::Unreachable { id, why: Unreachable::Network });
                }
                self.state = State::Connecting { qp, param, deadline };
                None
            }
            (State::Resolving { .. }, What::Unresolved(error)) => {
                let why = if is_network(error) { Unreachable::Network } else { Unreachable::NoAnswer };
                Some(CmEvent::Unreachable { id, why })
            }
            (State::Connecting { qp, param, .. }, What::Response) => {
                Some(match self.answered(&qp, &param, private_data, max_reads) {
                    Ok(param) => {
                        self.state = State::Open { qp };
                        CmEvent::Established { id, param }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the queue pair does not connect");
                        CmEvent::Unreachable { id, why: Unreachable::Network }
                    }
                })
            }
            (State::Connecting { .. } | State::Accepted { .. }, What::Rejected(reason)) => {
                Some(CmEvent::Rejected { id, reason: RejectReason(reason), private_data })
            }
            (State::Connecting { .. }, What::Unreachable) => {
                Some(CmEvent::Unreachable { id, why: Unreachable::NoAnswer })
            }
            (State::Accepted { .. }, What::Unreachable) => {
                Some(CmEvent::Unreachable { id, why: Unreachable::NotConfirmed })
            }
            (State::Accepted { qp, param }, What::Established) => {
                self.state = State::Open { qp };
                Some(CmEvent::Established { id, param })
            }
            (State::Accepted { qp, .. } | State::Open { qp }, What::Disconnected | What::Removed) => {
                flush(&qp);
                // If the peer has sent a DREQ, the peer waits for the DREP, which `disconnect` sends. An error is
                // ignored, because the connection ends even if the peer cannot be notified.
                let _ = self.raw.disconnect();
                Some(CmEvent::Disconnected { id })
            }
            // If both sides disconnect at the same time, this side has sent a DREQ, and must still confirm the peer's
            // DREQ.
            (State::Over, What::Disconnected) => {
                let _ = self.raw.disconnect();
                None
            }
            (state, _) => {
                self.state = state;
                None
            }
        }
    }

    fn ask(&self, qp: &SharedQp, param: &ConnParam, max_reads: (u8, u8)) -> io::Result<()> {
        let guard = lock_qp(qp);
        let Some(qp) = guard.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        let reads = within((param.responder_resources, param.initiator_depth), max_reads);
        let param = ConnParam { responder_resources: reads.0, initiator_depth: reads.1, ..param.clone() };
        self.raw.connect(qp.num(), &param)
    }

    fn answered(
        &self,
        qp: &SharedQp,
        param: &ConnParam,
        private_data: Vec<u8>,
        max_reads: (u8, u8),
    ) -> io::Result<EstablishedParam> {
        let guard = lock_qp(qp);
        let Some(qp) = guard.as_ref() else { return Err(io::ErrorKind::NotFound.into()) };
        let reads = within((param.responder_resources, param.initiator_depth), max_reads);
        let agreed = qp.to_ready(&self.raw, Retries { reads, ack_timeout: param.ack_timeout })?;
        self.raw.establish()?;
        Ok(EstablishedParam {
            private_data,
            path_mtu: agreed.path_mtu,
            responder_resources: agreed.reads.0,
            initiator_depth: agreed.reads.1,
            embedded_peer: false,
        })
    }
}

fn flush(qp: &SharedQp) {
    if let Some(qp) = lock_qp(qp).as_ref()
        && let Err(error) = qp.to_error()
    {
        tracing::debug!(%error, "a queue pair cannot be flushed");
    }
}

fn within(wanted: (u8, u8), most: (u8, u8)) -> (u8, u8) {
    (wanted.0.min(most.0), wanted.1.min(most.1))
}

/// Returns true if `error` means that the local network has no route to the peer, and false if `error` means that the
/// peer does not respond.
fn is_network(error: Option<i32>) -> bool {
    matches!(
        error,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENODEV | libc::EADDRNOTAVAIL | libc::EINVAL)
    )
}

fn unknown(id: CmId) -> Error {
    Error::NotFound { what: "connection", id: id.0 }
}
