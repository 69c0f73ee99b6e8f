//! The bridge itself, which executes the decisions of the dispatcher: it puts events into rings.

mod function;
mod kept;
mod lengths;
mod locals;
mod loop_service;
mod report;

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    bridge::{DispatchAction, Dispatcher, EventLocation, WorkerId},
    reassembly::{EventBufferId, SegmentDropCause},
    ring::{DeliveryMode, Descriptor, Geometry},
};
use ejfat_udp::{PortCounters, Ports};
use naa_server::{function::Handler, loop_service::StreamId};
use verbs::log_limit::LogLimit;

use crate::{
    BridgeConfig, BridgeHandle, Error,
    handle::QueryQueue,
    intake::{self, Intake},
    local::Listener,
    ring::{BridgeRing, RingTransport},
    wake_set::WakeSet,
};
use function::info;
use kept::Kept;
use lengths::{LoggedLengths, TooLong};

/// The maximum number of super-packets that the bridge receives from one port in a turn. The server loop drives the RDMA
/// device between two turns. The acknowledgements of WRITEs are received only then, and without them no further WRITE is
/// sent when the congestion window is full. A turn is therefore short: this number of super-packets has at most 1 MiB.
const AT_ONCE: usize = 16;
/// The longest time for which the bridge keeps an incomplete event after its time-out. The event is kept because
/// segments that reached a socket before the time-out may still be unread.
const BEHIND: Duration = Duration::from_secs(2);
/// The time between two calls of `Bridge::tick`, which checks all workers.
const TICK: Duration = Duration::from_millis(50);
/// The shortest (`SOON`) and the longest (`LATER`) sleep of the server loop between two reads of credits. These limits
/// apply while workers have unreleased events. Between these limits, the server loop sleeps for an eighth of the time
/// that has passed since segments or credits last arrived. Credits are also read each time the server loop wakes up for
/// another reason.
const SOON: Duration = Duration::from_micros(100);
const LATER: Duration = Duration::from_millis(20);
/// The longest sleep of the server loop between two reads of credits if workers have unreleased events and other events
/// wait to be delivered. If no event waits to be delivered, the longest sleep is `LATER`.
const STARVED: Duration = Duration::from_millis(1);
/// The time after which a remote worker counts as dead if the bridge waits for acknowledgements of WRITEs and receives
/// none. A worker can count as dead while the queue pair still retransmits unacknowledged WRITEs.
const DEAD: Duration = Duration::from_secs(15);
/// The time between two snapshots of the bridge's counters. Each handle of the bridge returns the newest snapshot.
const SNAPSHOT_PERIOD: Duration = Duration::from_millis(100);

/// The time at which a batch of segments arrived. The clocks are read once for all segments of the batch.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    at: Time,
    /// The UNIX time in nanoseconds.
    unix: u64,
}

/// A bridge, which receives segments and puts events into the rings of workers.
#[derive(Debug)]
pub struct Bridge {
    intake: Intake,
    dispatcher: Dispatcher,
    /// The rings of workers. The index of a worker's ring is `WorkerId::at`.
    rings: Vec<Option<(WorkerId, BridgeRing)>>,
    /// The rings of ended workers. The bridge keeps such a ring as long as events in it may be delivered again to other
    /// workers.
    kept: Vec<Kept>,
    placing: DeliveryMode,
    listener: Option<Listener>,
    wake_set: WakeSet,
    /// The number of bytes of memory that are still available for rings of local workers.
    local_memory: u64,
    instance: u64,
    /// The worker and ring geometry of an accepted subscription for which the server loop has not called
    /// [`LoopService::begin`](naa_server::loop_service::LoopService::begin) yet.
    accepted: Option<(WorkerId, Geometry)>,
    /// The ids of local workers, with one entry for each event that was just announced to a local worker.
    /// [`Bridge::act`] removes the entries one by one. For each removed entry, it tells the dispatcher that the worker
    /// has acknowledged one event.
    announced: Vec<WorkerId>,
    closing: Vec<(StreamId, String)>,
    queries: Arc<QueryQueue>,
    refused: u64,
    /// The log limit for log records about refused subscriptions of local workers.
    log_limit: LogLimit<()>,
    failed: Option<String>,
    /// True if the bridge has already logged that the address space has no room for the spill memory of an event.
    logged_addresses: bool,
    too_long: TooLong,
    logged_lengths: LoggedLengths,
    /// The number of unreleased events of workers that were removed while the bridge was ending. These events do not
    /// count as lost.
    left: u64,
    /// The start time of the last turn in which the bridge read all sockets until they were empty.
    dry: Time,
    /// The indexes of the ports whose sockets may have a datagram to read.
    ready: Vec<usize>,
    /// True if the server has begun to shut down.
    finishing: bool,
    /// The last time at which segments or credits arrived.
    active: Instant,
    next_tick: Instant,
    next_snapshot: Instant,
    /// The counters of the ports, which are a part of each snapshot. They are read less often than snapshots are made.
    ports: Arc<[PortCounters]>,
    next_ports: Time,
}

impl Bridge {
    /// Makes a bridge and binds its ports. `instance` must be a new random number at each start.
    ///
    /// # Errors
    /// Fails with [`Error::Udp`] if a port cannot be bound, and with [`Error::Bounds`] if the limits of the reassembler
    /// are not valid. Fails with [`Error::Path`] if the path of the socket for local workers is too long, and with
    /// [`Error::Io`] if another operation of the operating system fails.
    pub fn new(config: BridgeConfig, instance: u64) -> Result<Self, Error> {
        let intake = Intake::new(&config)?;
        let listener = config.local.as_deref().map(Listener::new).transpose()?;
        let wake_set = WakeSet::new(&intake.ports, listener.as_ref()).map_err(Error::io("make an epoll"))?;
        let slots = intake.reassembler.config().slots;
        let dispatcher = Dispatcher::new(config.dispatch, slots);
        let now = Instant::now();
        Ok(Self {
            intake,
            dispatcher,
            rings: Vec::new(),
            kept: Vec::new(),
            placing: config.placing,
            listener,
            wake_set,
            local_memory: config.local_memory,
            instance,
            accepted: None,
            announced: Vec::new(),
            closing: Vec::new(),
            queries: Arc::default(),
            refused: 0,
            log_limit: LogLimit::default(),
            failed: None,
            logged_addresses: false,
            too_long: TooLong::default(),
            logged_lengths: LoggedLengths::default(),
            left: 0,
            dry: Time::default(),
            ready: Vec::new(),
            finishing: false,
            active: now,
            next_tick: now,
            next_snapshot: now,
            ports: Arc::default(),
            next_ports: Time::default(),
        })
    }

    /// Returns the function by which workers subscribe. The caller must add the returned function to the server's
    /// registry of functions.
    pub fn function() -> Handler {
        Handler::Subscription(info())
    }

    /// Returns a handle by which other threads read the state of the bridge.
    pub fn handle(&self) -> BridgeHandle {
        BridgeHandle(self.queries.clone())
    }

    /// Returns the addresses at which the bridge receives segments, with the ports that the operating system chose.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.intake.ports.addresses()
    }

    /// Returns the ports that the bridge left out of the configured port ranges, because another process has bound
    /// these ports.
    pub fn skipped(&self) -> &[SocketAddr] {
        self.intake.ports.skipped()
    }

    /// Returns the size in bytes of the first UDP socket's receive buffer; 0 if the bridge has no UDP socket. The size
    /// does not include the memory that the Linux kernel adds for its own data.
    ///
    /// # Errors
    /// Fails with [`Error::Io`] if the operating system does not report the size of the receive buffer.
    pub fn buffer(&self) -> Result<usize, Error> {
        self.intake.ports.buffer().map_err(Error::io("read the size of a receive buffer"))
    }

    /// Returns the path of the socket at which local workers subscribe; `None` if there is no such socket.
    pub fn local(&self) -> Option<&std::path::Path> {
        self.listener.as_ref().map(Listener::path)
    }

    fn ring(&mut self, worker: WorkerId) -> Option<&mut BridgeRing> {
        let (id, ring) = self.rings.get_mut(worker.at())?.as_mut()?;
        (*id == worker).then_some(ring)
    }

    fn worker(&self, stream: StreamId) -> Option<WorkerId> {
        let its = |(_, ring): &&(WorkerId, BridgeRing)| match &ring.transport {
            RingTransport::Rdma(remote) => remote.stream().id == stream,
            RingTransport::Shared(_) => false,
        };
        self.rings.iter().flatten().find(its).map(|(id, _)| *id)
    }

    fn insert(&mut self, worker: WorkerId, ring: BridgeRing) {
        if self.rings.len() <= worker.at() {
            self.rings.resize_with(worker.at() + 1, || None);
        }
        self.rings[worker.at()] = Some((worker, ring));
    }

    /// Receives the segments that have arrived, up to [`AT_ONCE`] super-packets from each port. Returns true if any
    /// segment arrived.
    fn receive(&mut self) -> bool {
        let (mut something, mut dry) = (false, 0);
        let begin = self.intake.now();
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        let all = self.intake.ports.ready(|port| ready.push(port)).unwrap_or_else(|error| {
            self.fail(&error);
            false
        });
        for &port in &ready {
            let mut left = AT_ONCE;
            while left > 0 {
                match self.intake.receive(port, left) {
                    Ok(0) => {
                        dry += 1;
                        break;
                    }
                    Ok(used) => {
                        self.failed = None;
                        self.batch(used);
                        left -= used;
                    }
                    Err(error) => {
                        self.fail(&error);
                        break;
                    }
                }
                something = true;
            }
        }
        if all && dry == ready.len() {
            self.dry = begin;
        }
        self.ready = ready;
        something
    }

    /// Gives up incomplete events that timed out. Segments that arrived before the time-out of their event may still be
    /// unread in a socket. The bridge therefore first reads all sockets until they are empty. A timed-out event is kept
    /// until then, but at most for the time `BEHIND` after its time-out.
    fn expire(&mut self, now: Time) {
        let behind = Time(now.0.saturating_sub(BEHIND.as_nanos() as u64));
        while let Some(incomplete) = self.intake.given_up(self.dry.max(behind)) {
            self.dispatcher.gave_up(incomplete.id);
        }
    }

    fn fail(&mut self, error: &ejfat_udp::Error) {
        if self.failed.is_none() {
            tracing::error!("segments cannot be received: {error}");
            self.failed = Some(error.to_string());
        }
    }

    fn batch(&mut self, used: usize) {
        let arrival = Arrival { at: self.intake.now(), unix: intake::unix() };
        for at in 0..used {
            let (buffer, received) = self.intake.batch(at);
            let source = received.from;
            let mut from = 0;
            loop {
                let to = received.len.min(from + received.stride);
                self.segment(arrival, source, buffer, from..to);
                from = to;
                if from >= received.len {
                    break;
                }
            }
        }
        self.intake.buffers.done(used);
        self.pump();
    }

    /// Handles the datagram in the bytes `range` of a receive buffer.
    fn segment(&mut self, arrival: Arrival, source: IpAddr, buffer: u32, range: Range<usize>) {
        let Arrival { at: now, unix } = arrival;
        let from = range.start;
        let datagram = &self.intake.buffers.bytes(buffer)[range.clone()];
        let place = match self.intake.reassembler.handle(now, Some(source), datagram) {
            Ok(place) => place,
            Err(SegmentDropCause::TooLong) => {
                self.too_long(now, source, buffer, range);
                return;
            }
            Err(_) => return,
        };
        let location = if place.opened {
            let opened = self.intake.opened(&place);
            // Before the dispatcher opens the new event, it must forget the evicted events, because the new event may
            // use the event buffer of an evicted event.
            while let Some(evicted) = self.intake.evicted() {
                self.dispatcher.gave_up(evicted.id);
            }
            match self.dispatcher.open(now, unix, opened) {
                Ok(location) => location,
                Err(_) => {
                    self.intake.reassembler.release(place.id);
                    return;
                }
            }
        } else {
            self.dispatcher.location(place.id).unwrap_or(EventLocation::Spill)
        };
        let payload = from + place.payload.start..from + place.payload.end;
        match location {
            EventLocation::Spill => {
                let Intake { spill, buffers, .. } = &mut self.intake;
                if let Err(error) = spill.place(&place, &buffers.bytes(buffer)[payload]) {
                    self.give_up(place.id, &error);
                    return;
                }
            }
            EventLocation::Ring { worker, offset } => {
                self.place(worker, buffer, payload, offset + u64::from(place.offset));
            }
        }
        if place.complete {
            self.dispatcher.complete(now, place.id);
            self.act(now);
        }
    }

    /// Puts a segment's payload at the offset `at` of a worker's ring. If the delivery mode is cut-through and enough
    /// receive buffers are free, an RDMA WRITE takes the payload from the receive buffer. Otherwise, the payload is
    /// copied from the receive buffer to the shared memory or the staging ring.
    fn place(&mut self, worker: WorkerId, buffer: u32, payload: Range<usize>, at: u64) {
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut) else { return };
        let buffers = &mut self.intake.buffers;
        match &mut ring.transport {
            // A WRITE that reads the segment from its receive buffer keeps this buffer in use until the worker
            // acknowledges the WRITE. The bridge therefore posts such a WRITE only if enough other buffers are free for
            // the next `Ports::BATCH` super-packets.
            RingTransport::Rdma(remote) if remote.is_cut() && buffers.free() >= Ports::BATCH => {
                remote.cut(buffers, buffer, payload.start, payload.len() as u32, at);
            }
            RingTransport::Rdma(remote) if remote.is_cut() => {
                ring.memory.write(at as usize, &buffers.bytes(buffer)[payload.clone()]);
                remote.copy(at, payload.len() as u32);
            }
            RingTransport::Rdma(_) | RingTransport::Shared(_) => {
                ring.memory.write(at as usize, &buffers.bytes(buffer)[payload])
            }
        }
    }

    /// Executes the actions that the dispatcher has decided on.
    fn act(&mut self, now: Time) {
        loop {
            while let Some(action) = self.dispatcher.poll_action() {
                self.carry_out(action);
            }
            let Some(worker) = self.announced.pop() else { return };
            self.dispatcher.acknowledged(now, worker);
        }
    }

    fn carry_out(&mut self, action: DispatchAction) {
        match action {
            DispatchAction::Deliver { id, worker, descriptor, spilled } => {
                if spilled && let Some((_, ring)) = self.rings.get(worker.at()).and_then(Option::as_ref) {
                    let bytes = self.intake.spill.bytes(id.slot(), descriptor.length as usize);
                    ring.memory.write(descriptor.offset as usize, bytes);
                }
                self.release(id);
                self.announce(worker, descriptor, spilled);
            }
            DispatchAction::Redeliver { from, offset, worker, descriptor } => {
                self.deliver_again(from, offset, worker, descriptor);
            }
            DispatchAction::Forget { worker, given_up } => self.forget(worker, given_up),
            DispatchAction::Rescue { id, length, worker, offset } => {
                let Some((_, ring)) = self.rings.get(worker.at()).and_then(Option::as_ref) else { return };
                match self.intake.spill.bytes_mut(id, length as usize) {
                    Ok(bytes) => ring.memory.read(offset as usize, bytes),
                    Err(error) => self.give_up(id, &error),
                }
            }
            DispatchAction::Drop { id } => self.release(id),
        }
    }

    /// Announces an event to a worker whose ring has the event. `is_in_staging` is true if the event was copied as a
    /// whole into the staging ring, and false if the event was written segment by segment.
    fn announce(&mut self, worker: WorkerId, descriptor: Descriptor, is_in_staging: bool) {
        let Some(ring) = self.ring(worker) else { return };
        match &mut ring.transport {
            RingTransport::Rdma(remote) => {
                let is_in_staging = is_in_staging || !remote.is_cut();
                remote.deliver(descriptor, is_in_staging);
            }
            RingTransport::Shared(shared) => {
                shared.deliver(&descriptor);
                self.announced.push(worker);
            }
        }
    }

    /// Gives up an event because the address space has no room for the event's spill memory.
    fn give_up(&mut self, id: EventBufferId, error: &ejfat_udp::Error) {
        if !std::mem::replace(&mut self.logged_addresses, true) {
            tracing::warn!("an event is given up: {error}");
        }
        self.dispatcher.gave_up(id);
        self.intake.reassembler.abandon(id);
        self.intake.spill.release(id);
    }

    fn release(&mut self, id: EventBufferId) {
        self.intake.reassembler.release(id);
        self.intake.spill.release(id);
    }

    /// Posts the queued WRITEs of all remote workers. If a worker has the maximum number of unacknowledged WRITEs, the
    /// other WRITEs to this worker stay queued. A worker with too many queued WRITEs gets no new events from the
    /// dispatcher.
    fn pump(&mut self) {
        for (worker, ring) in self.rings.iter_mut().flatten() {
            let RingTransport::Rdma(remote) = &mut ring.transport else { continue };
            if remote.has_waiting()
                && let Err(error) = remote.pump()
            {
                self.closing.push((remote.stream().id, format!("cannot post to it: {error}")));
            }
            if remote.is_behind() != remote.was_behind {
                remote.was_behind = !remote.was_behind;
                self.dispatcher.set_behind(*worker, remote.was_behind);
            }
        }
    }

    /// Closes the session of each remote worker that has unacknowledged WRITEs and has acknowledged none of them for
    /// the time `DEAD`.
    fn find_dead(&mut self, now: Instant) {
        for (_, ring) in self.rings.iter().flatten() {
            let RingTransport::Rdma(remote) = &ring.transport else { continue };
            if remote.waits_since(now) > DEAD {
                self.closing.push((remote.stream().id, format!("it acknowledged nothing for {DEAD:?}")));
            }
        }
    }

    /// Passes credit words to the dispatcher. If `of_all` is true, these are the credit words of all workers.
    /// Otherwise, they are only those of workers that have written credits since the last read. Returns true if there
    /// were new credits.
    fn credit(&mut self, of_all: bool) -> bool {
        let mut something = false;
        for at in 0..self.rings.len() {
            let Some((worker, ring)) = &mut self.rings[at] else { continue };
            let worker = *worker;
            let Some(words) = ring.credits.look(of_all) else { continue };
            let now = self.intake.now();
            if self.dispatcher.look(now, worker, words).credits > 0 {
                something = true;
                self.act(now);
            }
        }
        if something {
            self.pump();
        }
        something
    }

    /// Removes a worker whose subscription was accepted, but whose session ended before the server loop called
    /// [`LoopService::begin`](naa_server::loop_service::LoopService::begin).
    fn forget_accepted(&mut self) {
        if let Some((worker, _)) = self.accepted.take() {
            self.remove(worker, self.intake.now());
        }
    }

    fn remove(&mut self, worker: WorkerId, now: Time) {
        // The credits are read once more, because credits that the worker wrote before its end still count.
        if let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut)
            && let Some(words) = ring.credits.look(true)
        {
            self.dispatcher.look(now, worker, words);
            self.act(now);
        }
        self.keep(worker);
        let held = self.dispatcher.counters().held_by_ended;
        self.dispatcher.remove(now, worker);
        if self.finishing {
            // A worker that is removed while the bridge is ending may still read its unreleased events in its ring.
            // These events therefore do not count as lost. `left` counts them.
            self.left += self.dispatcher.counters().held_by_ended - held;
        }
        // The actions of the dispatcher read the worker's ring, so the actions are executed before the ring is dropped.
        self.act(now);
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::take) else { return };
        if let RingTransport::Rdma(remote) = ring.transport {
            remote.end(&mut self.intake.buffers);
        }
        if self.finishing {
            self.report(now);
        }
    }

    /// Does the periodic work: checks all workers, subscribes new local workers, and reports the state to the handles
    /// and to the control plane.
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        let time = self.intake.time(now);
        self.take_applicants(now);
        self.find_gone();
        self.find_dead(now);
        self.credit(true);
        self.dispatcher.tick(time);
        self.act(time);
        self.pump();
        self.log_small_rings();
        if now >= self.next_snapshot {
            self.next_snapshot = now + SNAPSHOT_PERIOD;
            self.report(time);
        }
    }

    /// Returns the latest time at which the credits must be read again. If no worker has unreleased events, the result
    /// is the time of the next call of `tick`, which reads the credits of all workers.
    fn next_look(&self, now: Instant) -> Instant {
        if self.dispatcher.with_events_out().next().is_none() {
            return self.next_tick;
        }
        let starved = self.dispatcher.waiting() > 0 || self.dispatcher.waiting_for_redelivery() > 0;
        let most = if starved { STARVED } else { LATER };
        now + (now.saturating_duration_since(self.active) / 8).clamp(SOON, most)
    }

    /// Returns true if no event waits for room, and no WRITE to any worker is queued or unacknowledged.
    fn is_quiet(&self) -> bool {
        let quiet = |(_, ring): &(WorkerId, BridgeRing)| match &ring.transport {
            RingTransport::Rdma(remote) => remote.is_quiet(),
            RingTransport::Shared(_) => true,
        };
        self.dispatcher.waiting() == 0 && self.rings.iter().flatten().all(quiet)
    }
}
