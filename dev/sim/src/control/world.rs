//! What happens, in the order of virtual time.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU64,
};

use ejfat::{
    Time,
    lb::LbId,
    wire::{LbHeader, Select, SyncHeader},
};
use ejfat_control::{
    config::{AddressPolicy, Config, LoadBalancerConfig},
    control::{Action, Control, Options, Report},
    plane::{Answer, Call, PlaneId, PlaneKind},
    record::Change,
    request::{Caller, Deregister, Moment, Register, Reply, Request, Reserve, SendState},
    wall::WallTime,
};
use simnet::Random;

use super::{
    MS, S, US,
    judge::Judge,
    plan::{Fate, Plan, PlaneFault, Rates},
    plane::Plane,
    plot::Plot,
};
use crate::report::Summary;

const ROOT: &str = "the root token of the simulation";
/// Workers send their state so often.
const STATES: u64 = 100 * MS;
/// Senders sync so often.
const SYNCS: u64 = S;
/// From the end of a worker until no event goes to it any more, where planes answer in time.
const PROMPT: u64 = 150 * MS;
/// Seconds after which the newest epoch applies at the latest.
const IN_FORCE: f64 = 16.0;
/// What is drawn is looked at so often.
const SAMPLES: u64 = 100 * MS;
/// How many calls of a plane may wait.
const MOST_CALLS: usize = 64;

#[derive(Debug)]
enum Happening {
    Wake,
    Event { stream: usize },
    Segment { stream: usize, sender: usize, plane: usize, tick: (u32, u64), sent: u64 },
    Stranger { stream: usize },
    SyncSent { stream: usize, sender: usize },
    Sync { lb: LbId, from: IpAddr, sync: SyncHeader },
    Called { plane: usize, connection: u64, call: Box<Call>, begin: usize },
    Answered { plane: usize, connection: u64, answer: Box<Answer> },
    Stored,
    Registers { worker: usize },
    Sends { worker: usize },
    State { worker: usize, state: Box<SendState> },
    Turns { worker: usize },
    Back { worker: usize },
    Changes { stream: usize },
    Fault,
    Repaired,
    Connected { plane: usize },
    Restarts,
}

struct Stream {
    /// How often ticks began anew.
    anew: u32,
    tick: u64,
    rate: f64,
    /// Nothing is sent before.
    pauses_until: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// It does not run, or is not registered yet.
    Away,
    Registered {
        session: u64,
    },
}

struct Worker {
    life: Life,
    is_ready: bool,
    /// Since when it gets no events any more, once the deadline is over.
    gone: Option<u64>,
    /// When the newest state came.
    heard: u64,
    arrived: u64,
    queue: f64,
    taken: f64,
    looked: u64,
}

/// What waits for the store.
struct Stored {
    at: u64,
    changes: Vec<Change>,
    reply: Option<(usize, Reply)>,
}

pub(crate) struct World {
    plan: Plan,
    verbose: bool,
    now: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    next: u64,
    random: Random,
    config: Config,
    control: Control,
    term: u64,
    wakes_at: u64,
    store: BTreeMap<Vec<u8>, Vec<u8>>,
    storing: VecDeque<Stored>,
    planes: Vec<Plane>,
    streams: Vec<Stream>,
    workers: Vec<Worker>,
    judges: Vec<Judge>,
    /// When something was last not as it should be for `served`.
    troubled: u64,
    summary: Summary,
    failure: Option<String>,
}

fn data(lb: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, lb as u8, 1)
}

fn sender(lb: usize, n: usize) -> IpAddr {
    Ipv4Addr::new(10, 2, lb as u8, 1 + n as u8).into()
}

fn worker_address(n: usize) -> (IpAddr, u16) {
    (Ipv4Addr::new(10, 1, 0, 1 + n as u8).into(), 20_000)
}

fn lb(n: usize) -> LbId {
    LbId::new(n as u8).expect("few load balancers")
}

impl World {
    pub(crate) fn new(seed: u64, verbose: bool) -> Result<Self, String> {
        Self::of(Plan::draw(seed), seed, verbose)
    }

    fn of(plan: Plan, seed: u64, verbose: bool) -> Result<Self, String> {
        if verbose {
            eprintln!("{plan:#?}");
        }
        let of = |n: usize| LoadBalancerConfig {
            data_v4: Some(data(n)),
            data_v6: None,
            data_ports: 16_384..=32_767,
            sync_v4: Some(Ipv4Addr::new(10, 0, 0, 2)),
            sync_v6: None,
            sync_port: 19_500 + n as u16,
        };
        let config = Config {
            load_balancers: (0..plan.streams.len()).map(of).collect(),
            addresses: AddressPolicy::default(),
            slots: plan.slots,
            ..Config::default()
        };
        let control = begin(&config, &plan, &BTreeMap::new(), 1, 0)?;
        let planes = plan.planes.iter().map(|kind| Plane::new(*kind)).collect();
        let stream = |plan: &super::plan::StreamPlan| Stream {
            anew: 0,
            tick: plan.first_tick,
            rate: plan.rate,
            pauses_until: 0,
        };
        let worker = || Worker {
            life: Life::Away,
            is_ready: true,
            gone: None,
            heard: 0,
            arrived: 0,
            queue: 0.0,
            taken: 0.0,
            looked: 0,
        };
        let mut world = Self {
            now: 0,
            queue: BTreeMap::new(),
            next: 0,
            random: Random::new(seed, 61),
            config,
            control,
            term: 1,
            wakes_at: 0,
            store: BTreeMap::new(),
            storing: VecDeque::new(),
            planes,
            streams: plan.streams.iter().map(stream).collect(),
            workers: plan.workers.iter().map(|_| worker()).collect(),
            judges: plan.streams.iter().map(|_| Judge::default()).collect(),
            troubled: 0,
            summary: Summary { seeds: 1, ..Summary::default() },
            failure: None,
            plan,
            verbose,
        };
        world.set_up();
        Ok(world)
    }

    fn set_up(&mut self) {
        for n in 0..self.planes.len() {
            self.at(MS, Happening::Connected { plane: n });
        }
        for (n, stream) in self.plan.streams.clone().into_iter().enumerate() {
            self.reserve(n);
            self.at(2 * S, Happening::Event { stream: n });
            self.at(3 * S, Happening::Stranger { stream: n });
            for sender in 0..stream.senders {
                self.at(2 * S + sender as u64 * 77 * MS, Happening::SyncSent { stream: n, sender });
            }
            self.at(stream.changes_at, Happening::Changes { stream: n });
        }
        for (n, worker) in self.plan.workers.clone().into_iter().enumerate() {
            self.at(worker.registers + 10 * MS, Happening::Registers { worker: n });
            if worker.fate != Fate::Stays {
                self.at(worker.fate_at.max(worker.registers + 3 * S), Happening::Turns { worker: n });
            }
        }
        if self.plan.plane_fault != PlaneFault::None {
            self.at(self.plan.fault_at, Happening::Fault);
            self.at(self.plan.fault_at + self.plan.fault_lasts, Happening::Repaired);
        }
        if let Some(at) = self.plan.restarts_at {
            self.at(at, Happening::Restarts);
        }
    }

    fn at(&mut self, at: u64, happening: Happening) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), happening);
    }

    fn moment(&self) -> Moment {
        Moment { now: Time(self.now), wall: WallTime(1_800_000_000_000 + self.now / MS) }
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:10.6} {}", self.now as f64 / S as f64, text());
        }
    }

    fn fail(&mut self, why: String) {
        self.say(|| format!("FAILS: {why}"));
        self.failure.get_or_insert(why);
    }

    pub(crate) fn run(mut self) -> Result<Summary, String> {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            if at > self.plan.ends {
                break;
            }
            self.now = at;
            self.happen(happening);
            if let Some(why) = self.failure.take() {
                return Err(format!("at {:.6} s: {why}", self.now as f64 / S as f64));
            }
        }
        let calm = self.plan.is_calm();
        for (n, judge) in self.judges.iter().enumerate() {
            if let Some(tick) = judge.unlisted() {
                return Err(format!(
                    "listed: tick {tick} of load balancer {n} was split, and told by nobody"
                ));
            }
            // Where no ticks are told, forged syncs put epochs off.
            let forges = self.plan.streams[n].forges && self.plan.planes.contains(&PlaneKind::RuleByRule);
            if let Some(why) = self.is_out_of_force(n).filter(|_| !forges) {
                return Err(format!("in force: {why}"));
            }
            if calm && judge.later > 0 {
                let (split, told) = (&judge.split, &judge.told);
                return Err(format!("unsplit: load balancer {n}, split {split:?}, told {told:?}"));
            }
            self.summary.packets += judge.delivered + judge.dropped;
            self.summary.lost += judge.dropped;
            self.summary.reordered += judge.split.len() as u64;
        }
        self.summary.virtual_nanos = self.now;
        Ok(self.summary)
    }

    /// Draws what workers get while some are slow, new or dead, and when a clock is set back.
    pub(crate) fn draw() -> Result<String, String> {
        let plan = Plan::to_draw();
        let (ends, most, workers) = (plan.ends, plan.slots, plan.workers.len());
        let mut world = Self::of(plan, 1, false)?;
        let (mut samples, mut next) = (Vec::new(), 0);
        while let Some(((at, _), happening)) = world.queue.pop_first() {
            while next <= at.min(ends) {
                let slots = (0..workers).map(|worker| world.slots(worker, next)).collect();
                samples.push((next, slots));
                next += SAMPLES;
            }
            if at > ends {
                break;
            }
            world.now = at;
            world.happen(happening);
            if let Some(why) = world.failure.take() {
                return Err(why);
            }
        }
        let plot = Plot {
            title: "Slots of each worker: 4000 events a second, calendars once a second",
            ends,
            most,
            samples: &samples,
            names: &["takes 2000/s", "takes 2000/s", "takes 1000/s", "newcomer, 2000/s"],
            marks: &[
                (15 * S, "one slows to 200"),
                (32 * S, "a newcomer"),
                (50 * S, "a worker dies"),
                (70 * S, "senders' clock set back"),
            ],
        };
        Ok(plot.svg())
    }

    fn slots(&self, worker: usize, at: u64) -> u32 {
        let address = worker_address(worker).0;
        let member = self.control.registry().durable().sessions().find(|of| of.worker.address == address);
        let published = self.control.published(Time(at), lb(0));
        let slots = member.zip(published).and_then(|(session, published)| {
            published.slots.iter().find(|(member, _)| *member == session.member).map(|(_, slots)| *slots)
        });
        slots.unwrap_or(0)
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Wake => {
                if self.wakes_at == self.now {
                    self.pump();
                }
            }
            Happening::Event { stream } => self.send_event(stream),
            Happening::Segment { stream, sender, plane, tick, sent } => {
                self.segment(stream, sender, plane, tick, sent);
            }
            Happening::Stranger { stream } => self.stranger(stream),
            Happening::SyncSent { stream, sender } => self.send_sync(stream, sender),
            Happening::Sync { lb, from, sync } => {
                self.control.sync(Time(self.now), lb, from, &sync);
                self.pump();
            }
            Happening::Called { plane, connection, call, begin } => {
                self.called(plane, connection, *call, begin);
            }
            Happening::Answered { plane, connection, answer } => {
                let of = &self.planes[plane];
                if of.is_connected && of.connection == connection {
                    self.say(|| format!("plane {plane}: {:?}", shown(&format!("{:?}", answer.outcome))));
                    self.control.answer(Time(self.now), *answer);
                    self.pump();
                }
            }
            Happening::Stored => self.stored(),
            Happening::Registers { worker } => self.register(worker),
            Happening::Sends { worker } => self.send_state(worker),
            Happening::State { worker, state } => self.take_state(worker, &state),
            Happening::Turns { worker } => self.turn(worker),
            Happening::Back { worker } => self.back(worker),
            Happening::Changes { stream } => self.change_rate(stream),
            Happening::Fault => self.fault(),
            Happening::Repaired => self.repair(),
            Happening::Connected { plane } => self.connect(plane),
            Happening::Restarts => self.restart(),
        }
    }

    /// Does what the control plane wants.
    fn pump(&mut self) {
        let actions = self.control.poll(self.moment());
        for action in actions {
            match action {
                Action::Store(changes) => self.append(changes, None),
                Action::Call(call) => self.call(call),
                Action::Disconnect(PlaneId(plane)) => self.disconnect(plane.into()),
                Action::Report(report) => self.report(report),
            }
        }
        let wakes_at = self.control.next_wakeup().0.max(self.now + 10 * US);
        if wakes_at != self.wakes_at {
            self.wakes_at = wakes_at;
            self.at(wakes_at, Happening::Wake);
        }
    }

    fn report(&mut self, report: Report) {
        self.say(|| format!("{report:?}"));
        match report {
            Report::MaySplit { lb, from, to } => {
                self.judges[usize::from(lb.get())].tell(self.now, from, to);
            }
            Report::Replaced { plane } => {
                self.fail(format!("plane {plane:?} has a higher term than the only control plane"));
            }
            Report::Refused { plane, why, .. } if self.plan.is_calm() => {
                self.fail(format!("{plane:?} refused: {why}"));
            }
            Report::PlaneLost { why, .. } if self.plan.is_calm() => self.fail(format!("lost: {why}")),
            _ => {}
        }
    }

    // Data planes.

    fn latency(&mut self) -> u64 {
        let is_late = self.plan.plane_fault == PlaneFault::Late
            && (self.plan.fault_at..self.plan.fault_at + self.plan.fault_lasts).contains(&self.now)
            && self.random.chance(100_000);
        if is_late {
            self.troubled = self.now + 3 * S;
            return self.random.range(20 * MS..=1500 * MS);
        }
        self.random.range(300 * US..=4 * MS)
    }

    fn call(&mut self, call: Call) {
        let n = usize::from(call.plane.0);
        let latency = self.latency();
        let now = self.now;
        let plane = &mut self.planes[n];
        if !plane.is_connected {
            return;
        }
        plane.called_at = plane.called_at.max(now + latency);
        let (at, connection) = (plane.called_at, plane.connection);
        self.say(|| format!("plane {n} <- {}", shown(&format!("{call:?}"))));
        let waiting =
            |happening: &&Happening| matches!(happening, Happening::Called { plane, .. } if *plane == n);
        if self.queue.len() > 2000 && self.queue.values().filter(waiting).count() > MOST_CALLS {
            self.fail(format!("bounded: more than {MOST_CALLS} calls of plane {n} wait"));
        }
        self.at(at, Happening::Called { plane: n, connection, call: Box::new(call), begin: 0 });
    }

    fn called(&mut self, n: usize, connection: u64, call: Call, begin: usize) {
        let latency = self.latency();
        let plane = &mut self.planes[n];
        // A call of a connection that has ended may come all the same.
        if !plane.is_up {
            return;
        }
        let outcome = match plane.carry_out(&call, begin) {
            Ok(outcome) => outcome,
            Err(begin) => {
                let at = self.now + 20 * US;
                plane.called_at = plane.called_at.max(at);
                let call = Box::new(call);
                return self.at(at, Happening::Called { plane: n, connection, call, begin });
            }
        };
        plane.answered_at = plane.answered_at.max(self.now + latency);
        let at = plane.answered_at;
        let answer = Box::new(Answer { plane: call.plane, number: call.number, outcome });
        self.at(at, Happening::Answered { plane: n, connection, answer });
    }

    fn connect(&mut self, n: usize) {
        let plane = &mut self.planes[n];
        if !plane.is_up {
            return;
        }
        plane.connection += 1;
        plane.is_connected = true;
        (plane.called_at, plane.answered_at) = (self.now, self.now);
        self.say(|| format!("plane {n} is connected"));
        self.control.connected(Time(self.now), PlaneId(n as u16));
        self.pump();
    }

    /// The control plane ended the connection.
    fn disconnect(&mut self, n: usize) {
        self.planes[n].is_connected = false;
        self.troubled = self.now + 3 * S;
        self.at(self.now + 200 * MS, Happening::Connected { plane: n });
    }

    fn fault(&mut self) {
        let until = self.plan.fault_at + self.plan.fault_lasts + 5 * S;
        match self.plan.plane_fault {
            PlaneFault::None | PlaneFault::Late => {}
            PlaneFault::Dies => {
                self.planes[0].is_up = false;
                self.troubled = self.troubled.max(until);
                if self.random.chance(500_000) {
                    self.planes[0].is_connected = false;
                    self.control.disconnected(Time(self.now), PlaneId(0));
                    self.pump();
                }
            }
            PlaneFault::Disconnects => {
                self.planes[0].is_connected = false;
                self.troubled = self.troubled.max(until);
                self.control.disconnected(Time(self.now), PlaneId(0));
                self.pump();
            }
        }
    }

    fn repair(&mut self) {
        match self.plan.plane_fault {
            PlaneFault::None | PlaneFault::Late => {}
            PlaneFault::Dies => {
                self.planes[0].restart();
                self.planes[0].is_up = true;
                if self.planes[0].is_connected {
                    self.planes[0].is_connected = false;
                    self.control.disconnected(Time(self.now), PlaneId(0));
                    self.pump();
                }
                self.at(self.now + 50 * MS, Happening::Connected { plane: 0 });
            }
            PlaneFault::Disconnects => self.connect(0),
        }
    }

    // Senders.

    fn send_event(&mut self, n: usize) {
        let plan = self.plan.streams[n].clone();
        let gap = (S as f64 / self.streams[n].rate) as u64;
        let stream = &mut self.streams[n];
        if self.now < stream.pauses_until {
            let at = stream.pauses_until;
            return self.at(at, Happening::Event { stream: n });
        }
        let tick = (stream.anew, stream.tick);
        stream.tick += plan.step;
        self.at(self.now + gap, Happening::Event { stream: n });
        let up: Vec<_> = (0..self.planes.len()).filter(|&plane| self.planes[plane].is_up).collect();
        if up.is_empty() {
            return;
        }
        let of_event = self.random.below(up.len() as u64) as usize;
        for sender in 0..plan.senders {
            for _ in 0..plan.segments {
                let at =
                    if self.plan.sprays { self.random.below(up.len() as u64) as usize } else { of_event };
                // Clocks of senders, the sending itself and the network.
                let late = self.random.range(100 * US..=15 * MS);
                let segment = Happening::Segment { stream: n, sender, plane: up[at], tick, sent: self.now };
                self.at(self.now + late, segment);
            }
        }
    }

    fn datagram(tick: u64) -> [u8; LbHeader::LEN] {
        let select = Select::V2 { entropy: 0 };
        LbHeader { select, protocol: LbHeader::REASSEMBLY, tick }.encode()
    }

    fn segment(&mut self, n: usize, from: usize, plane: usize, at: (u32, u64), sent: u64) {
        let tick = at.1;
        let plane = &mut self.planes[plane];
        if !plane.is_up {
            return;
        }
        let to = plane.route(data(n).into(), sender(n, from), &Self::datagram(tick));
        let Some((address, _)) = to else {
            self.judges[n].dropped += 1;
            let is_served = self.now > self.troubled && self.now > 6 * S && self.plan.is_calm();
            if is_served && self.has_served(n) {
                self.fail(format!("served: tick {tick} of load balancer {n} was dropped"));
            }
            return;
        };
        let worker = (0..self.workers.len()).find(|&worker| worker_address(worker).0 == address);
        let Some(worker) = worker.filter(|&worker| self.plan.workers[worker].lb == n) else {
            return self.fail(format!("tick {tick} of load balancer {n} went to {address}"));
        };
        if self.judges[n].see(self.now, at, worker) {
            let of = &mut self.workers[worker];
            of.arrived += 1;
            of.queue += 1.0;
        }
        // The next event may be a whole step of ticks ahead.
        let deadline = PROMPT + 2 * (S as f64 / self.streams[n].rate) as u64;
        let is_late = |gone: &u64| self.plan.is_prompt() && sent > gone + deadline;
        if let Some(gone) = self.workers[worker].gone.filter(is_late) {
            let since = (sent - gone) / MS;
            self.fail(format!(
                "gone: tick {tick} of load balancer {n} went to worker {worker}, {since} ms after its end"
            ));
        }
    }

    /// Whether the newest epoch of a load balancer begins long after the ticks that its senders have.
    fn is_out_of_force(&self, n: usize) -> Option<String> {
        let published = self.control.published(Time(self.now), lb(n))?;
        let stream = &self.streams[n];
        let reached = (stream.rate * self.plan.streams[n].step as f64 * IN_FORCE) as u64;
        let is_far = published.from > stream.tick.saturating_add(reached);
        is_far.then(|| {
            format!(
                "load balancer {n} has an epoch from {} on, senders are at {}",
                published.from, stream.tick
            )
        })
    }

    /// Whether a worker has been ready for long.
    fn has_served(&self, n: usize) -> bool {
        let of = |(worker, plan): (&Worker, &super::plan::WorkerPlan)| {
            plan.lb == n && plan.fate == Fate::Stays && plan.registers == 0 && worker.life != Life::Away
        };
        self.workers.iter().zip(&self.plan.workers).any(of)
    }

    fn stranger(&mut self, n: usize) {
        self.at(self.now + S, Happening::Stranger { stream: n });
        let tick = self.streams[n].tick.saturating_add(self.random.below(1 << 40));
        let stranger = Ipv4Addr::new(10, 3, 0, 1).into();
        for plane in &mut self.planes {
            if plane.route(data(n).into(), stranger, &Self::datagram(tick)).is_some() {
                self.failure.get_or_insert(format!("strangers: tick {tick} of a stranger went to a worker"));
            }
        }
    }

    fn send_sync(&mut self, n: usize, from: usize) {
        let plan = self.plan.streams[n].clone();
        self.at(self.now + SYNCS, Happening::SyncSent { stream: n, sender: from });
        if self.now < self.streams[n].pauses_until {
            return;
        }
        let sync = |tick, source| SyncHeader { source, tick, ticks_per_second: 0, unix_nanos: 0 };
        let tick = self.streams[n].tick;
        if plan.forges && self.random.chance(300_000) {
            let tick = match self.random.below(3) {
                0 => self.random.next_u64(),
                1 => tick.saturating_sub(self.random.below(1 << 20)),
                _ => tick.saturating_add(self.random.below(1 << 12)),
            };
            let source = self.random.below(3) as u32;
            let late = self.random.range(0..=900 * MS);
            self.at(
                self.now + late,
                Happening::Sync { lb: lb(n), from: sender(n, from), sync: sync(tick, source) },
            );
        }
        if self.random.chance(plan.lost_syncs) {
            return;
        }
        let late = self.random.range(100 * US..=200 * MS);
        self.at(self.now + late, Happening::Sync { lb: lb(n), from: sender(n, from), sync: sync(tick, 0) });
    }

    fn change_rate(&mut self, n: usize) {
        let pause = self.random.range(300 * MS..=6 * S);
        let (now, step) = (self.now, self.plan.streams[n].step);
        let faster = self.random.range(1000..=1700) as f64 / 1000.0;
        let back = self.random.next_u64();
        let stream = &mut self.streams[n];
        match self.plan.streams[n].rates {
            Rates::Steady => {}
            Rates::Faster => stream.rate *= faster,
            Rates::TenTimes => stream.rate *= 10.0,
            Rates::Pause => stream.pauses_until = now + pause,
            Rates::ClockPause => {
                stream.pauses_until = now + pause;
                stream.tick += (stream.rate * pause as f64 / S as f64) as u64 * step;
            }
            Rates::Forward => stream.tick += back % (1 << (back >> 58)),
            Rates::Back => {
                stream.tick = back % (stream.tick + 1);
                stream.anew += 1;
            }
        }
        let rates = self.plan.streams[n].rates;
        self.say(|| format!("senders of load balancer {n}: {rates:?}, tick {}", self.streams[n].tick));
    }

    // Workers.

    fn caller() -> Caller<'static> {
        Caller { token: Some(ROOT), peer: None }
    }

    fn request(&mut self, request: &Request, worker: Option<usize>) -> Result<(), String> {
        let moment = self.moment();
        let random = &mut self.random;
        let mut fill = |bytes: &mut [u8]| random.fill(bytes);
        let accepted = self
            .control
            .request(moment, Self::caller(), request, &mut fill)
            .map_err(|refusal| refusal.why)?;
        if accepted.changes.is_empty() {
            self.pump();
            return Ok(());
        }
        self.append(accepted.changes, worker.map(|worker| (worker, accepted.reply)));
        self.pump();
        Ok(())
    }

    fn reserve(&mut self, n: usize) {
        let senders = (0..self.plan.streams[n].senders).map(|of| sender(n, of).to_string()).collect();
        let request = Request::Reserve(Reserve { name: format!("run{n}"), senders, ..Reserve::default() });
        if let Err(why) = self.request(&request, None) {
            self.fail(format!("reserve: {why}"));
        }
    }

    fn reservation(&self, n: usize) -> Option<String> {
        let mut all = self.control.registry().durable().reservations();
        all.find(|of| of.lb == lb(n)).map(|of| of.id.to_string())
    }

    fn register(&mut self, n: usize) {
        let plan = &self.plan.workers[n];
        let (address, port) = worker_address(n);
        let Some(lb_id) = self.reservation(plan.lb) else {
            // The reservation was not stored before the control plane died.
            self.reserve(plan.lb);
            return self.at(self.now + 50 * MS, Happening::Registers { worker: n });
        };
        let request = Request::Register(Register {
            lb_id,
            name: format!("worker{n}"),
            weight: 1.0,
            address: address.to_string(),
            port: port.into(),
            ..Register::default()
        });
        self.say(|| format!("worker {n} registers"));
        if let Err(why) = self.request(&request, Some(n)) {
            self.say(|| format!("worker {n} is refused: {why}"));
            // Its session of before has not ended yet.
            self.at(self.now + S, Happening::Registers { worker: n });
        }
    }

    fn look_at_worker(&mut self, n: usize) {
        let (now, plan) = (self.now, &self.plan.workers[n]);
        let worker = &mut self.workers[n];
        let seconds = (now - worker.looked) as f64 / S as f64;
        let taken = (plan.capacity * seconds).min(worker.queue);
        (worker.taken, worker.queue, worker.looked) = (worker.taken + taken, worker.queue - taken, now);
        worker.queue = worker.queue.min(plan.capacity);
    }

    fn send_state(&mut self, n: usize) {
        let Life::Registered { session } = self.workers[n].life else { return };
        self.look_at_worker(n);
        let (plan, worker) = (&self.plan.workers[n], &self.workers[n]);
        let counts = plan.counts as i64;
        let state = SendState {
            session_id: session.to_string(),
            fill_level: (worker.queue / plan.capacity).clamp(0.0, 1.0) as f32,
            is_ready: worker.is_ready,
            events_received: worker.arrived as i64 * counts,
            events_reassembled: worker.arrived as i64 * counts,
            events_dequeued: worker.taken as i64 * counts,
            ..SendState::default()
        };
        let late = self.random.range(100 * US..=self.plan.state_delay);
        if !self.random.chance(10_000) {
            self.at(self.now + late, Happening::State { worker: n, state: Box::new(state) });
        }
        self.at(self.now + STATES, Happening::Sends { worker: n });
    }

    fn take_state(&mut self, n: usize, state: &SendState) {
        let answer = self.request(&Request::SendState(state.clone()), None);
        let is_its = matches!(self.workers[n].life, Life::Registered { session } if session.to_string() == state.session_id);
        if !is_its {
            if answer.is_ok() && self.workers[n].gone.is_some() {
                // It was on its way when the worker died, and counts for its life.
                self.workers[n].gone = Some(self.now + self.config.liveness.silent.as_nanos() as u64);
            }
            return;
        }
        self.workers[n].heard = self.now;
        match answer {
            Ok(()) if state.is_ready => self.workers[n].gone = None,
            Ok(()) => drop(self.workers[n].gone.get_or_insert(self.now)),
            Err(why) => {
                self.say(|| format!("state of worker {n} is refused: {why}"));
                self.workers[n].life = Life::Away;
                self.at(self.now + 100 * MS, Happening::Registers { worker: n });
            }
        }
    }

    fn turn(&mut self, n: usize) {
        let Life::Registered { session } = self.workers[n].life else { return };
        let plan = self.plan.workers[n].clone();
        self.say(|| format!("worker {n}: {:?}", plan.fate));
        match plan.fate {
            Fate::Stays => {}
            Fate::Slows => {
                self.look_at_worker(n);
                self.plan.workers[n].capacity /= 5.0;
            }
            Fate::Pauses => {
                self.workers[n].is_ready = false;
                self.at(self.now + plan.lasts, Happening::Back { worker: n });
            }
            Fate::Leaves => {
                let request = Deregister { session_id: session.to_string(), ..Deregister::default() };
                self.workers[n].life = Life::Away;
                if self.request(&Request::Deregister(request), None).is_ok() {
                    self.workers[n].gone = Some(self.now);
                }
            }
            Fate::Dies | Fate::Returns => {
                self.workers[n].life = Life::Away;
                self.workers[n].gone =
                    Some(self.workers[n].heard + self.config.liveness.silent.as_nanos() as u64);
                if plan.fate == Fate::Returns {
                    self.at(self.now + plan.lasts, Happening::Back { worker: n });
                }
            }
        }
    }

    fn back(&mut self, n: usize) {
        if self.plan.workers[n].fate == Fate::Pauses {
            self.workers[n].is_ready = true;
            self.workers[n].gone = None;
        } else {
            let worker = &mut self.workers[n];
            (worker.arrived, worker.queue, worker.taken) = (0, 0.0, 0.0);
            self.at(self.now, Happening::Registers { worker: n });
        }
    }

    // The store.

    fn append(&mut self, changes: Vec<Change>, reply: Option<(usize, Reply)>) {
        let after = self.storing.back().map_or(0, |last| last.at);
        let at = (self.now + self.random.range(MS..=15 * MS)).max(after);
        self.storing.push_back(Stored { at, changes, reply });
        self.at(at, Happening::Stored);
    }

    fn stored(&mut self) {
        let Some(Stored { changes, reply, .. }) = self.storing.pop_front() else { return };
        for change in &changes {
            let (key, value) = change.encode();
            match value {
                Some(value) => drop(self.store.insert(key, value)),
                None => drop(self.store.remove(&key)),
            }
        }
        if self.store.len() > 2000 {
            self.fail(format!("bounded: {} records", self.store.len()));
        }
        if let Some((worker, Reply::Registered(registered))) = reply {
            let worker_of = &mut self.workers[worker];
            worker_of.life = Life::Registered { session: registered.session.0 };
            (worker_of.is_ready, worker_of.gone) = (true, None);
            worker_of.looked = self.now;
            self.at(self.now + 10 * MS, Happening::Sends { worker });
        }
    }

    /// The control plane dies, and another begins from what is stored.
    fn restart(&mut self) {
        self.say(|| "the control plane restarts".to_owned());
        // What is on its way to the store may still get there, or not; replies are lost.
        let kept = self.random.below(self.storing.len() as u64 + 1) as usize;
        let mut storing = std::mem::take(&mut self.storing);
        for mut stored in storing.drain(..).take(kept) {
            let worker = stored.reply.take().map(|(worker, _)| worker);
            self.storing.push_back(stored);
            self.stored();
            if let Some(worker) = worker {
                self.at(self.now + S, Happening::Registers { worker });
            }
        }
        self.queue.retain(|_, happening| !matches!(happening, Happening::Stored));
        self.term += 1;
        self.control = match begin(&self.config, &self.plan, &self.store, self.term, self.now) {
            Ok(control) => control,
            Err(why) => return self.fail(format!("durable: {why}")),
        };
        let again: BTreeMap<_, _> =
            self.control.registry().durable().records().map(|record| record.encode()).collect();
        if again != self.store {
            return self.fail("durable: the records are not those that were stored".to_owned());
        }
        for n in 0..self.planes.len() {
            if std::mem::take(&mut self.planes[n].is_connected) {
                let late = self.random.range(MS..=300 * MS);
                self.at(self.now + late, Happening::Connected { plane: n });
            }
        }
        self.pump();
    }
}

fn begin(
    config: &Config,
    plan: &Plan,
    store: &BTreeMap<Vec<u8>, Vec<u8>>,
    term: u64,
    now: u64,
) -> Result<Control, String> {
    let planes: BTreeMap<_, PlaneKind> = (0..).map(PlaneId).zip(plan.planes.iter().copied()).collect();
    let options = Options { planes, ..Options::default() };
    let term = NonZeroU64::new(term).expect("terms begin at 1");
    Control::begin(config.clone(), options, ROOT, store.iter(), term, Time(now))
        .map_err(|why| why.to_string())
}

/// Text of a line.
fn shown(text: &str) -> String {
    let end = text.char_indices().nth(160).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}
