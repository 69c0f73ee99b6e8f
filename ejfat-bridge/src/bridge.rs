//! The bridge in a server's loop.

use std::{
    net::SocketAddr,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use ejfat::{
    Time,
    bridge::{Action, Dispatcher, Home, WorkerId},
    reassembly::EventId,
    ring::{Answer, Geometry, Placing, Refusal, Subscription},
};
use ejfat_udp::Ports;
use mrsp::{
    builtin,
    catalogue::{Direction, Kind, Parameter},
};
use naa_server::{
    call::{Call, Failure},
    function::{Function, FunctionInfo},
    resident::{Asking, Resident, Stream, StreamId},
};

use crate::{
    BridgeConfig, Error, FillSink, Handle, Level, Snapshot, WorkerReport,
    bells::Bells,
    handle::Desk,
    intake::{self, Intake},
    judge::judge,
    local::{self, Applicant, Listener, Shared},
    remote::{Done, Remote},
    ring::{Credits, Ring, Way},
};

/// Batches of one port before the others, and the device, have their turn.
const TURNS: usize = 4;
/// Between two looks at everything.
const TICK: Duration = Duration::from_millis(50);
/// Between two looks at credit: an eighth of the time since something happened, but at least and at most so long.
const SOON: Duration = Duration::from_micros(100);
const LATER: Duration = Duration::from_millis(20);
/// The most while events wait for room.
const STARVED: Duration = Duration::from_millis(1);
/// Between two snapshots.
const TOLD: Duration = Duration::from_millis(100);

/// Puts events into rings.
#[derive(Debug)]
pub struct Bridge {
    info: FunctionInfo,
    intake: Intake,
    dispatcher: Dispatcher,
    /// By the worker's place.
    rings: Vec<Option<(WorkerId, Ring)>>,
    placing: Placing,
    listener: Option<Listener>,
    bells: Bells,
    /// Bytes of rings that workers of this machine may still have.
    local_memory: u64,
    instance: u64,
    /// A subscription that was answered, whose stream has not begun.
    accepted: Option<(WorkerId, Geometry)>,
    /// Workers of this machine that were told of an event just now, once for each.
    told: Vec<WorkerId>,
    /// An event that was copied to a twin just now.
    moved: Option<EventId>,
    closing: Vec<(StreamId, String)>,
    fill: Option<(Box<dyn FillSink>, Duration, Instant)>,
    desk: Arc<Desk>,
    refused: u64,
    failed: Option<String>,
    /// The server shuts down.
    finishing: bool,
    /// When something came, or credit did.
    active: Instant,
    next_tick: Instant,
    next_told: Instant,
}

/// The function by which workers subscribe, for the server's registry.
#[derive(Debug)]
struct Subscribe(FunctionInfo);

impl Function for Subscribe {
    fn info(&self) -> &FunctionInfo {
        &self.0
    }

    fn subscribes(&self) -> bool {
        true
    }

    fn run(&self, _: &mut Call<'_>) -> Result<(), Failure> {
        Err(Failure::Internal("the server has no bridge".into()))
    }
}

fn info() -> FunctionInfo {
    let parameter = |direction, kind, name: &str, description: &str| Parameter {
        direction,
        kind,
        name: name.into(),
        description: description.into(),
    };
    let parameters = vec![
        parameter(Direction::Input, Kind::Arguments, "subscription", "64 bytes: the ring's geometry"),
        parameter(Direction::Input, Kind::U32, "credits", "16 words, then one for each slot"),
        parameter(Direction::Output, Kind::Status, "answer", "64 bytes"),
        parameter(Direction::Output, Kind::Bytes, "descriptors", "64 bytes for each slot"),
        parameter(Direction::Output, Kind::Bytes, "ring", "the slots"),
    ];
    let (code, description) = (builtin::SUBSCRIBE, "events into a ring, as long as the session lasts");
    let name = builtin::name(code).unwrap_or("subscribe").into();
    FunctionInfo { code, name, description: description.into(), pooled: false, parameters }
}

impl Bridge {
    /// Binds the ports. `instance` is another one after each start: random.
    pub fn new(config: BridgeConfig, instance: u64) -> Result<Self, Error> {
        let intake = Intake::new(&config)?;
        let listener = config.local.as_deref().map(Listener::new).transpose()?;
        let bells = Bells::new(&intake.ports, listener.as_ref()).map_err(Error::io("make an epoll"))?;
        let slots = intake.reassembler.config().slots;
        let dispatcher = Dispatcher::new(config.dispatch, slots);
        let now = Instant::now();
        Ok(Self {
            info: info(),
            intake,
            dispatcher,
            rings: Vec::new(),
            placing: config.placing,
            listener,
            bells,
            local_memory: config.local_memory,
            instance,
            accepted: None,
            told: Vec::new(),
            moved: None,
            closing: Vec::new(),
            fill: config.fill.map(|(sink, interval)| (sink, interval, now)),
            desk: Arc::default(),
            refused: 0,
            failed: None,
            finishing: false,
            active: now,
            next_tick: now,
            next_told: now,
        })
    }

    /// For the server's registry.
    pub fn function() -> Arc<dyn Function> {
        Arc::new(Subscribe(info()))
    }

    pub fn handle(&self) -> Handle {
        Handle(self.desk.clone())
    }

    /// Where segments come, with the ports that the system chose.
    pub fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        self.intake.ports.addresses().map_err(Error::io("read the address of a UDP socket"))
    }

    /// Bytes of a socket's receive buffer, as the system granted it.
    pub fn buffer(&self) -> Result<usize, Error> {
        self.intake.ports.buffer().map_err(Error::io("read the size of a receive buffer"))
    }

    /// Where programs of this machine subscribe.
    pub fn local(&self) -> Option<&std::path::Path> {
        self.listener.as_ref().map(Listener::path)
    }

    fn ring(&mut self, worker: WorkerId) -> Option<&mut Ring> {
        let (id, ring) = self.rings.get_mut(worker.at())?.as_mut()?;
        (*id == worker).then_some(ring)
    }

    fn worker(&self, stream: StreamId) -> Option<WorkerId> {
        let its = |(_, ring): &&(WorkerId, Ring)| match &ring.way {
            Way::Remote(remote) => remote.stream().id == stream,
            Way::Shared(_) => false,
        };
        self.rings.iter().flatten().find(its).map(|(id, _)| *id)
    }

    fn insert(&mut self, worker: WorkerId, ring: Ring) {
        if self.rings.len() <= worker.at() {
            self.rings.resize_with(worker.at() + 1, || None);
        }
        self.rings[worker.at()] = Some((worker, ring));
    }

    /// All segments that are there, but not for ever.
    fn receive(&mut self) -> bool {
        let mut something = false;
        for port in 0..self.intake.ports.len() {
            for _ in 0..TURNS {
                match self.intake.receive(port) {
                    Ok(0) => break,
                    Ok(used) => self.batch(used),
                    Err(error) => {
                        self.fail(&error);
                        break;
                    }
                }
                something = true;
            }
        }
        something
    }

    fn fail(&mut self, error: &ejfat_udp::Error) {
        if self.failed.is_none() {
            tracing::error!("segments cannot be received: {error}");
            self.failed = Some(error.to_string());
        }
    }

    fn batch(&mut self, used: usize) {
        for at in 0..used {
            let (buffer, received) = self.intake.batch(at);
            let source = self.intake.source(&received);
            let mut from = 0;
            loop {
                let to = received.len.min(from + received.stride);
                self.segment(source, buffer, from, to);
                from = to;
                if from >= received.len {
                    break;
                }
            }
        }
        self.intake.buffers.done(used);
        self.pump();
    }

    /// A datagram, which lies in a receive buffer.
    fn segment(&mut self, source: Option<std::net::IpAddr>, buffer: u32, from: usize, to: usize) {
        let now = self.intake.now();
        let datagram = &self.intake.buffers.bytes(buffer)[from..to];
        let Ok(place) = self.intake.reassembler.handle(now, source, datagram) else { return };
        let home = if place.opened {
            let opened = self.intake.opened(&place, datagram);
            // Slots of events that made room are somebody else's by now.
            self.given_up(now);
            match self.dispatcher.open(now, intake::unix(), opened) {
                Ok(home) => home,
                Err(_) => {
                    self.intake.reassembler.release(place.id);
                    return;
                }
            }
        } else {
            self.dispatcher.home(place.id).unwrap_or(Home::Spill)
        };
        let payload = from + place.payload.start..from + place.payload.end;
        match home {
            Home::Spill => {
                let Intake { arena, buffers, .. } = &mut self.intake;
                arena.place(&place, &buffers.bytes(buffer)[payload]);
            }
            Home::Ring { worker, offset } => {
                self.place(worker, buffer, payload, offset + u64::from(place.offset));
            }
        }
        if place.complete {
            self.dispatcher.complete(now, place.id);
            self.act(now);
        }
    }

    /// A payload goes to a byte of a ring.
    fn place(&mut self, worker: WorkerId, buffer: u32, payload: std::ops::Range<usize>, at: u64) {
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut) else { return };
        let buffers = &mut self.intake.buffers;
        match &mut ring.way {
            // Without enough buffers for what comes next, this one must not wait for its worker.
            Way::Remote(remote) if remote.is_cut() && buffers.free() >= Ports::BATCH => {
                remote.cut(buffers, buffer, payload.start, payload.len() as u32, at);
            }
            Way::Remote(remote) if remote.is_cut() => {
                ring.memory.write(at as usize, &buffers.bytes(buffer)[payload.clone()]);
                remote.copy(at, payload.len() as u32);
            }
            Way::Remote(_) | Way::Shared(_) => {
                ring.memory.write(at as usize, &buffers.bytes(buffer)[payload])
            }
        }
    }

    fn given_up(&mut self, now: Time) {
        while let Some(incomplete) = self.intake.given_up(now) {
            self.dispatcher.gave_up(incomplete.id);
        }
    }

    /// Carries out what the dispatcher says.
    fn act(&mut self, now: Time) {
        loop {
            while let Some(action) = self.dispatcher.poll_action() {
                self.carry_out(action);
            }
            let Some(worker) = self.told.pop() else { return };
            self.dispatcher.acknowledged(now, worker);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Move { id, length, worker, offset } => {
                if let Some((_, ring)) = self.rings.get(worker.at()).and_then(Option::as_ref) {
                    ring.memory.write(offset as usize, self.intake.arena.bytes(id.slot(), length as usize));
                }
                self.moved = Some(id);
            }
            Action::Deliver { id, worker, descriptor } => {
                let is_in_twin = self.moved.take() == Some(id);
                self.release(id);
                let Some(ring) = self.ring(worker) else { return };
                match &mut ring.way {
                    Way::Remote(remote) => {
                        let is_in_twin = is_in_twin || !remote.is_cut();
                        remote.deliver(descriptor, is_in_twin);
                    }
                    Way::Shared(shared) => {
                        shared.deliver(&descriptor);
                        self.told.push(worker);
                    }
                }
            }
            Action::Rescue { id, length, worker, offset } => {
                if let Some((_, ring)) = self.rings.get(worker.at()).and_then(Option::as_ref) {
                    ring.memory.read(offset as usize, self.intake.arena.bytes_mut(id, length as usize));
                }
            }
            Action::Drop { id } => self.release(id),
        }
    }

    fn release(&mut self, id: EventId) {
        self.intake.reassembler.release(id);
        self.intake.arena.release(id);
    }

    /// Posts what was queued.
    fn pump(&mut self) {
        for (_, ring) in self.rings.iter_mut().flatten() {
            let Way::Remote(remote) = &mut ring.way else { continue };
            if remote.has_waiting()
                && let Err(error) = remote.pump()
            {
                self.closing.push((remote.stream().id, format!("cannot post to it: {error}")));
            }
        }
    }

    /// Looks at the credit of workers that have events, or of all.
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

    fn remove(&mut self, worker: WorkerId, now: Time) {
        // What it gave back before it went, it did not take along.
        if let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::as_mut)
            && let Some(words) = ring.credits.look(true)
        {
            self.dispatcher.look(now, worker, words);
            self.act(now);
        }
        self.dispatcher.remove(now, worker);
        // While its memory is there.
        self.act(now);
        let Some((_, ring)) = self.rings.get_mut(worker.at()).and_then(Option::take) else { return };
        match ring.way {
            Way::Remote(remote) => remote.end(&mut self.intake.buffers),
            Way::Shared(shared) => self.local_memory += shared.geometry().shared_bytes() as u64,
        }
    }

    fn take_applicants(&mut self, now: Instant) {
        let Self { listener, bells, .. } = self;
        let mut applicants = Vec::new();
        while let Some(applicant) = listener.as_mut().and_then(|listener| listener.next(now, bells)) {
            applicants.push(applicant);
        }
        for Applicant { socket, subscription } in applicants {
            if let Err(refusal) = self.take(socket, &subscription) {
                self.refused += 1;
                tracing::warn!(name = %subscription.name, "refused a worker of this machine: {refusal}");
            }
        }
    }

    fn take(&mut self, socket: std::os::fd::OwnedFd, subscription: &Subscription) -> Result<(), Refusal> {
        let time = self.intake.now();
        let geometry = subscription.geometry;
        if geometry.shared_bytes() as u64 > self.local_memory {
            local::refuse(&socket, Refusal::Memory);
            return Err(Refusal::Memory);
        }
        let Some(worker) = self.dispatcher.subscribe(time, subscription, Placing::Shared) else {
            local::refuse(&socket, Refusal::Full);
            return Err(Refusal::Full);
        };
        let answer = Answer { worker: worker.number(), placing: Placing::Shared, instance: self.instance };
        let made = Shared::new(socket, geometry).and_then(|(shared, memory, credits, files)| {
            shared.answer(answer, &files)?;
            let credits = Credits::new(&credits, geometry);
            Ok(Ring { memory, credits, way: Way::Shared(shared) })
        });
        match made {
            Ok(ring) => {
                self.local_memory -= geometry.shared_bytes() as u64;
                self.insert(worker, ring);
                tracing::info!(worker = worker.number(), name = %subscription.name, "a worker of this machine");
                self.dispatcher.ready(time, worker);
                self.act(time);
                Ok(())
            }
            Err(error) => {
                tracing::warn!("cannot give a worker its ring: {error}");
                self.remove(worker, time);
                Err(Refusal::Failed)
            }
        }
    }

    fn find_gone(&mut self) {
        let gone = |(id, ring): &(WorkerId, Ring)| match &ring.way {
            Way::Shared(shared) => shared.is_over().then_some(*id),
            Way::Remote(_) => None,
        };
        let gone: Vec<_> = self.rings.iter().flatten().filter_map(gone).collect();
        for worker in gone {
            tracing::info!(worker = worker.number(), "a worker of this machine is gone");
            self.remove(worker, self.intake.now());
        }
    }

    /// What is due now and then.
    fn tick(&mut self, now: Instant) {
        self.next_tick = now + TICK;
        let time = self.intake.time(now);
        self.take_applicants(now);
        self.find_gone();
        self.credit(true);
        self.dispatcher.tick(time);
        self.act(time);
        self.pump();
        if let Some((_, interval, next)) = &mut self.fill
            && now >= *next
        {
            *next = now + *interval;
            let levels: Vec<_> = self.dispatcher.workers().map(|its| level(&its)).collect();
            let all = self.dispatcher.fill();
            if let Some((sink, ..)) = &mut self.fill {
                sink.levels(&levels, all);
            }
        }
        if now >= self.next_told {
            self.next_told = now + TOLD;
            self.tell(time);
        }
    }

    fn tell(&mut self, now: Time) {
        let peer = |worker: WorkerId| match &self.rings.get(worker.at())?.as_ref()?.1.way {
            Way::Remote(remote) => Some(remote.stream().peer),
            Way::Shared(_) => None,
        };
        let workers = self.dispatcher.workers().map(|its| WorkerReport {
            level: level(&its),
            placing: its.placing.name(),
            peer: peer(its.id),
            slots: its.slots,
            slot_bytes: its.slot_bytes,
            in_use: its.in_use,
            outstanding: its.outstanding,
            sent: its.sent,
            bytes: its.bytes,
            released: its.released,
            wrong_credits: its.wrong_credits,
            seconds: Duration::from_nanos(now.0.saturating_sub(its.since.0)).as_secs_f64(),
        });
        let snapshot = Snapshot {
            workers: workers.collect(),
            reassembly: self.intake.reassembler.counters().clone(),
            events: self.dispatcher.counters().clone(),
            waiting: self.dispatcher.waiting(),
            memory: self.intake.reassembler.touched_memory(),
            kernel_drops: self.intake.ports.kernel_drops().unwrap_or(0),
            fill: self.dispatcher.fill(),
            refused: self.refused,
            failed: self.failed.clone(),
            now,
        };
        self.desk.put(snapshot);
    }

    /// Events are on their way, or out.
    fn next_look(&self, now: Instant) -> Instant {
        if self.dispatcher.with_events_out().next().is_none() {
            return self.next_tick;
        }
        let most = if self.dispatcher.waiting() > 0 { STARVED } else { LATER };
        now + (now.saturating_duration_since(self.active) / 8).clamp(SOON, most)
    }

    /// Nothing is on its way to a worker.
    fn is_quiet(&self) -> bool {
        let quiet = |(_, ring): &(WorkerId, Ring)| match &ring.way {
            Way::Remote(remote) => remote.is_quiet(),
            Way::Shared(_) => true,
        };
        self.dispatcher.waiting() == 0 && self.rings.iter().flatten().all(quiet)
    }
}

fn level(its: &ejfat::bridge::WorkerStats<'_>) -> Level {
    Level {
        worker: its.id.number(),
        name: its.name.to_owned(),
        member: its.filter.member,
        fill: its.fill,
        stalled: its.stalled,
    }
}

impl Resident for Bridge {
    fn info(&self) -> &FunctionInfo {
        &self.info
    }

    fn subscribe(&mut self, asking: &Asking<'_>, call: &mut Call<'_>) -> Result<(), Failure> {
        let time = self.intake.now();
        let taken = judge(asking, call)?.and_then(|subscription| {
            let worker = self.dispatcher.subscribe(time, &subscription, self.placing);
            worker.map(|worker| (worker, subscription)).ok_or(Refusal::Full)
        });
        let answer = taken.as_ref().map_err(|refusal| *refusal).map(|(worker, _)| Answer {
            worker: worker.number(),
            placing: self.placing,
            instance: self.instance,
        });
        let block = Answer::encode(&answer);
        if let Some(place) = call.parts().take_output(0) {
            place[..block.len()].copy_from_slice(&block);
        }
        match taken {
            Ok((worker, subscription)) => {
                tracing::info!(peer = %asking.peer, worker = worker.number(), name = %subscription.name, "a worker");
                call.set_produced(0, block.len());
                call.set_produced(1, 0);
                call.set_produced(2, 0);
                self.accepted = Some((worker, subscription.geometry));
                Ok(())
            }
            Err(refusal) => {
                self.refused += 1;
                call.set_status(block.len() as u32);
                Err(Failure::Arguments(refusal.to_string().into()))
            }
        }
    }

    fn begin(&mut self, stream: Stream, now: Instant) {
        let Some((worker, geometry)) = self.accepted.take() else { return };
        let (id, time) = (stream.id, self.intake.time(now));
        match Remote::new(stream, geometry, self.placing, &self.intake.buffers) {
            Ok(Some(remote)) => {
                let (memory, credits) = (remote.ring().memory.clone(), &remote.credits().memory);
                let credits = Credits::new(credits, geometry);
                self.insert(worker, Ring { memory, credits, way: Way::Remote(remote) });
                self.dispatcher.ready(time, worker);
                self.act(time);
                self.pump();
            }
            Ok(None) => self.closing.push((id, "it has other parameters than a subscription".into())),
            Err(error) => self.closing.push((id, format!("this machine: {error}"))),
        }
        if self.rings.get(worker.at()).is_none_or(Option::is_none) {
            self.remove(worker, time);
        }
    }

    fn completed(&mut self, stream: StreamId, now: Instant) {
        let time = self.intake.time(now);
        let Some(worker) = self.worker(stream) else { return };
        let Some(ring) = self.ring(worker) else { return };
        let Way::Remote(remote) = &mut ring.way else { return };
        match remote.completed() {
            Some(Done::Event) => {
                self.dispatcher.acknowledged(time, worker);
                self.act(time);
            }
            Some(Done::Piece { buffer: Some(buffer) }) => self.intake.buffers.release(buffer),
            Some(Done::Piece { buffer: None }) | None => {}
        }
    }

    fn ended(&mut self, stream: StreamId, now: Instant) {
        if let Some(worker) = self.worker(stream) {
            tracing::info!(worker = worker.number(), "a worker is gone");
            self.remove(worker, self.intake.time(now));
            self.pump();
        }
    }

    fn turn(&mut self, now: Instant) -> bool {
        let mut something = !self.finishing && self.receive();
        self.given_up(self.intake.time(now));
        something |= self.credit(false);
        self.pump();
        if let Some((worker, _)) = self.accepted.take() {
            // Its session ended before it began.
            self.remove(worker, self.intake.time(now));
        }
        if something {
            self.active = now;
        }
        if now >= self.next_tick {
            self.tick(now);
        }
        let dispatcher = &self.dispatcher;
        self.desk.answer(|tick| dispatcher.trace(tick));
        something
    }

    fn finish(&mut self) -> bool {
        if !std::mem::replace(&mut self.finishing, true) {
            self.bells.silence(&self.intake.ports);
        }
        self.is_quiet()
    }

    fn poll_closing(&mut self) -> Option<(StreamId, String)> {
        self.closing.pop()
    }

    fn deadline(&self) -> Option<Instant> {
        let now = Instant::now();
        let timeout = self
            .intake
            .reassembler
            .next_timeout()
            .map(|due| now + Duration::from_nanos(due.0.saturating_sub(self.intake.time(now).0)));
        Some(timeout.into_iter().fold(self.next_look(now).min(self.next_tick), Instant::min))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.bells.all()
    }

    fn woken(&mut self) {
        if self.bells.of_workers() {
            self.next_tick = Instant::now();
        }
    }
}
