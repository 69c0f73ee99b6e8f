//! What happens, in the order of virtual time.

mod deeds;
mod planes;
mod senders;
mod store;
mod workers;

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
    config::Config,
    control::{Action, Control, ControlConfig, Report},
    plane::{Answer, Call, PlaneId, PlaneKind},
    record::Change,
    request::{
        Caller, Deregister, LbName, Moment, Register, Reply, Request, Reserve, Reset, SendState, Senders,
        SlotDemand,
    },
    reservation::Strategy,
    wall::WallTime,
};
use simnet::Random;

use super::{
    MS, S, US,
    plan::{Deed, Plan, PlaneFault, Rates, StreamPlan, WorkerOutcome},
    plane_model::DataPlaneModel,
    plot::Plot,
    split_check::{KNOWN, SplitChecker},
};
use crate::{
    report::Summary,
    site::{keep, load_balancer},
};

const ROOT: &str = "the root token of the simulation";
/// Workers send their state so often.
const STATES: u64 = 100 * MS;
/// Senders sync so often.
const SYNCS: u64 = S;
/// From the end of a worker until no event goes to it any more, where planes answer in time.
const PROMPT: u64 = 50 * MS;
/// Seconds after which the newest epoch applies at the latest.
const IN_FORCE: f64 = 16.0;
/// The time between two samples for the drawing.
const SAMPLES: u64 = 100 * MS;
/// The time after a leap of ticks during which boundaries allow for another leap. Ticks leap while senders are removed. During this time
/// a removed worker may get events for longer.
const LEAPS: u64 = 7 * S;
/// The most calls of a data plane that may wait.
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
    Deed { stream: usize },
    Undone { stream: usize },
    Fault,
    Repaired,
    Connected { plane: usize },
    Restarts,
}

#[derive(Default)]
struct Stream {
    /// How often ticks began anew.
    anew: u32,
    tick: u64,
    rate: f64,
    /// Nothing is sent before.
    pauses_until: u64,
    /// When its load balancer was freed, until somebody reserves that again (ns).
    freed: Option<u64>,
    /// When its first sender was removed, until that is added again (ns).
    removed: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    /// It does not run, or is not registered yet.
    #[default]
    Away,
    Registered {
        session: u64,
    },
}

#[derive(Default)]
struct Worker {
    life: Life,
    is_ready: bool,
    /// Since when it gets no events any more, once the deadline is over.
    gone: Option<u64>,
    /// When the newest state came.
    state_at: u64,
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

pub(crate) struct Environment {
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
    planes: Vec<DataPlaneModel>,
    streams: Vec<Stream>,
    workers: Vec<Worker>,
    split_checkers: Vec<SplitChecker>,
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

impl Environment {
    pub(crate) fn new(seed: u64, verbose: bool) -> Result<Self, String> {
        Self::of(Plan::draw(seed), seed, verbose)
    }

    fn of(plan: Plan, seed: u64, verbose: bool) -> Result<Self, String> {
        if verbose {
            eprintln!("{plan:#?}");
        }
        let load_balancers = (0..plan.streams.len() as u8).map(load_balancer).collect();
        let config = Config { load_balancers, slots: plan.slots, ..Config::default() };
        let control = begin(&config, &plan, &BTreeMap::new(), 1, 0)?;
        let planes = plan.planes.iter().map(|kind| DataPlaneModel::new(*kind)).collect();
        let stream =
            |plan: &StreamPlan| Stream { tick: plan.first_tick, rate: plan.rate, ..Stream::default() };
        let worker = || Worker { is_ready: true, ..Worker::default() };
        let mut env = Self {
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
            split_checkers: plan.streams.iter().map(|_| SplitChecker::new(2 * S)).collect(),
            troubled: 0,
            summary: Summary { seeds: 1, ..Summary::default() },
            failure: None,
            plan,
            verbose,
        };
        env.set_up();
        Ok(env)
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
            if stream.deed != Deed::None {
                self.at(stream.deed_at, Happening::Deed { stream: n });
            }
        }
        for (n, worker) in self.plan.workers.clone().into_iter().enumerate() {
            self.at(worker.registers + 10 * MS, Happening::Registers { worker: n });
            if worker.outcome != WorkerOutcome::Stays {
                self.at(worker.outcome_at.max(worker.registers + 3 * S), Happening::Turns { worker: n });
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
        for (n, checker) in self.split_checkers.iter().enumerate() {
            if let Some(tick) = checker.unlisted() {
                return Err(format!(
                    "listed: tick {tick} of load balancer {n} was split, and told by nobody"
                ));
            }
            // Epochs of planes that tell no ticks begin by syncs alone. Forged ones put them off, and so does a clock that is set before
            // the control plane knows the rate: a new control plane, or one that counts syncs again after a deed.
            let StreamPlan { forges, deed, rates, .. } = self.plan.streams[n];
            let is_set = !matches!(rates, Rates::Steady | Rates::Faster | Rates::Pause);
            let has_forgotten = deed != Deed::None || self.plan.restarts_at.is_some();
            let is_hurt = forges || is_set && has_forgotten;
            let has_smartnic = self.plan.planes.contains(&PlaneKind::RuleByRule);
            let is_hurt = is_hurt && has_smartnic;
            if let Some(why) = self.is_out_of_force(n).filter(|_| !is_hurt) {
                return Err(format!("in force: {why}"));
            }
            // While senders pause, more epochs may begin than a SmartNIC has, so that the senders' ticks are below all of them. These are
            // told, although nothing may be on its way then.
            let may_be_announced = has_smartnic && rates == Rates::Pause;
            if calm && (checker.split_later > 0 || checker.announced_later > 0 && !may_be_announced) {
                let (split, announced) = (&checker.split, &checker.announced);
                return Err(format!("unsplit: load balancer {n}, split {split:?}, told {announced:?}"));
            }
            self.summary.packets += checker.delivered + checker.dropped;
            self.summary.lost += checker.dropped;
            self.summary.reordered += checker.split.len() as u64;
        }
        self.summary.virtual_nanos = self.now;
        Ok(self.summary)
    }

    /// Draws what workers get while some are slow, new or dead, and when a clock is set back.
    pub(crate) fn draw() -> Result<String, String> {
        let plan = Plan::to_draw();
        let (ends, most, workers) = (plan.ends, plan.slots, plan.workers.len());
        let mut env = Self::of(plan, 1, false)?;
        let (mut samples, mut next) = (Vec::new(), 0);
        while let Some(((at, _), happening)) = env.queue.pop_first() {
            while next <= at.min(ends) {
                let slots = (0..workers).map(|worker| env.slots(worker, next)).collect();
                samples.push((next, slots));
                next += SAMPLES;
            }
            if at > ends {
                break;
            }
            env.now = at;
            env.happen(happening);
            if let Some(why) = env.failure.take() {
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
                self.say(|| format!("sync of {from} for {lb:?}: tick {}", sync.tick));
                // A daemon takes no others.
                if self.control.sync_sources(Time(self.now), lb).contains(&from) {
                    self.control.sync(Time(self.now), lb, from, &sync);
                }
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
            Happening::Deed { stream } => self.deed(stream),
            Happening::Undone { stream } => self.undo(stream),
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
                self.split_checkers[usize::from(lb.get())].announce(self.now, from, to);
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
}

fn begin(
    config: &Config,
    plan: &Plan,
    store: &BTreeMap<Vec<u8>, Vec<u8>>,
    term: u64,
    now: u64,
) -> Result<Control, String> {
    let planes: BTreeMap<_, PlaneKind> = (0..).map(PlaneId).zip(plan.planes.iter().copied()).collect();
    let options = ControlConfig { planes, ..ControlConfig::default() };
    let term = NonZeroU64::new(term).expect("terms begin at 1");
    Control::begin(config.clone(), options, ROOT, store.iter(), term, Time(now))
        .map_err(|why| why.to_string())
}

/// Text of a line.
fn shown(text: &str) -> String {
    let end = text.char_indices().nth(160).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}
