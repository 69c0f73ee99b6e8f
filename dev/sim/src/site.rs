//! A control plane with many workers at work, and data planes that answer at once: to measure what its parts cost.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    num::NonZeroU64,
    time::{Duration, Instant},
};

use ejfat::{Time, lb::LbId, wire::SyncHeader};
use ejfat_control::{
    config::{Config, LoadBalancerConfig},
    control::{Action, Control, ControlConfig},
    plane::{Answer, Call, Order, Outcome, PlaneId, PlaneKind, PlaneState},
    record::Change,
    request::{Caller, Moment, Register, Reply, Request, Reserve, SendState},
    wall::WallTime,
};
use simnet::Random;

const ROOT: &str = "the root token of a site that is measured";
const MS: u64 = 1_000_000;
/// Ticks per second of every load balancer.
const RATE: u64 = 1_000_000;
/// Workers send a state so often, and senders a sync every second.
const STATES: u64 = 100 * MS;

/// How large a site is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub load_balancers: u8,
    /// The number of workers of each load balancer.
    pub workers: u16,
    pub senders: u8,
}

impl Size {
    /// As many as ESnet's P4 program has room for.
    pub const FULL: Self = Self { load_balancers: 8, workers: 128, senders: 16 };
    /// More load balancers than ESnet's P4 program has room for. Our data planes have room for them.
    pub const LARGER: Self = Self { load_balancers: 16, workers: 128, senders: 16 };
}

#[derive(Debug)]
struct Worker {
    state: Request,
    /// Events per second that it takes.
    capacity: f64,
    taken: f64,
    at: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Site {
    size: Size,
    control: Control,
    now: u64,
    random: Random,
    workers: Vec<Worker>,
    /// What the only data plane was told to do last, for each load balancer.
    sets: BTreeMap<LbId, Vec<u64>>,
    packets: BTreeMap<(LbId, u16), u64>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    began: u64,
    /// The time that each period took in the control plane.
    pub periods: Vec<Duration>,
    /// Epochs that began.
    pub epochs: u64,
}

/// A load balancer that takes segments and syncs over IPv4.
pub(super) fn load_balancer(n: u8) -> LoadBalancerConfig {
    LoadBalancerConfig {
        data_v4: Some(Ipv4Addr::new(10, 0, n, 1)),
        data_v6: None,
        data_ports: 16_384..=32_767,
        sync_v4: Some(Ipv4Addr::new(10, 0, 0, 2)),
        sync_v6: None,
        sync_port: 19_500 + u16::from(n),
    }
}

/// Carries out changes of records.
pub(super) fn keep(records: &mut BTreeMap<Vec<u8>, Vec<u8>>, changes: &[Change]) {
    for change in changes {
        let (key, value) = change.encode();
        match value {
            Some(value) => records.insert(key, value),
            None => records.remove(&key),
        };
    }
}

fn sender(lb: u8, n: u8) -> IpAddr {
    Ipv4Addr::new(10, 2, lb, 1 + n).into()
}

impl Site {
    /// # Errors
    /// Why a request was refused: the size is more than there can be.
    pub fn new(size: Size, seed: u64) -> Result<Self, String> {
        let load_balancers = (0..size.load_balancers).map(load_balancer).collect();
        let workers = u16::from(size.load_balancers) * size.workers;
        let most_members = workers.max(Config::default().most_members);
        let config = Config { load_balancers, most_members, ..Config::default() };
        let planes = BTreeMap::from([(PlaneId(0), PlaneKind::Staged)]);
        let options = ControlConfig { planes, ..ControlConfig::default() };
        let nothing: [(Vec<u8>, Vec<u8>); 0] = [];
        let control = Control::begin(config, options, ROOT, nothing, NonZeroU64::MIN, Time(0))
            .map_err(|why| why.to_string())?;
        let mut site = Self {
            size,
            control,
            now: MS,
            random: Random::new(seed, 70),
            workers: Vec::new(),
            sets: BTreeMap::new(),
            packets: BTreeMap::new(),
            records: BTreeMap::new(),
            began: 0,
            periods: Vec::new(),
            epochs: 0,
        };
        site.control.connected(Time(site.now), PlaneId(0));
        site.pump();
        for lb in 0..size.load_balancers {
            site.reserve(lb)?;
        }
        site.pump();
        site.began = site.now;
        Ok(site)
    }

    fn reserve(&mut self, lb: u8) -> Result<(), String> {
        let senders = (0..self.size.senders).map(|n| sender(lb, n).to_string()).collect();
        let request = Request::Reserve(Reserve { name: format!("run{lb}"), senders, ..Reserve::default() });
        let Reply::Reserved(reserved) = self.request(&request)? else {
            return Err("no reservation".to_owned());
        };
        for n in 0..self.size.workers {
            let address = Ipv4Addr::new(10, 16 + lb, (n >> 8) as u8, n as u8);
            let register = Register {
                lb_id: reserved.id.to_string(),
                name: format!("worker{n}"),
                weight: 1.0,
                address: Ipv4Addr::from_bits(address.to_bits() + 1).to_string(),
                port: 20_000,
                ..Register::default()
            };
            let Reply::Registered(registered) = self.request(&Request::Register(register))? else {
                return Err("no session".to_owned());
            };
            let session_id = registered.session.to_string();
            let state = SendState { session_id, is_ready: true, fill_level: 0.3, ..SendState::default() };
            let capacity = self.random.range(500..=8000) as f64;
            self.workers.push(Worker {
                state: Request::SendState(state),
                capacity,
                taken: 0.0,
                at: self.now,
            });
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        Moment { now: Time(self.now), wall: WallTime(1_800_000_000_000 + self.now / MS) }
    }

    fn request(&mut self, request: &Request) -> Result<Reply, String> {
        let moment = self.moment();
        let random = &mut self.random;
        let mut fill = |bytes: &mut [u8]| random.fill(bytes);
        let caller = Caller { token: Some(ROOT), peer: None };
        let accepted =
            self.control.request(moment, caller, request, &mut fill).map_err(|refusal| refusal.why)?;
        keep(&mut self.records, &accepted.changes);
        Ok(accepted.reply)
    }

    fn tick(&self) -> u64 {
        (self.now - self.began) / 1000 * (RATE / 1_000_000)
    }

    /// Lets the control plane do what is due, and the data plane answer.
    fn pump(&mut self) {
        loop {
            let actions = self.control.poll(self.moment());
            let mut calls = Vec::new();
            for action in actions {
                match action {
                    Action::Store(changes) => keep(&mut self.records, &changes),
                    Action::Call(call) => calls.push(call),
                    Action::Disconnect(_) | Action::Report(_) => {}
                }
            }
            if calls.is_empty() {
                return;
            }
            for call in calls {
                let answer = self.carry_out(&call);
                self.control.answer(Time(self.now), answer);
            }
        }
    }

    fn carry_out(&mut self, call: &Call) -> Answer {
        let tick = self.tick();
        let is_sending = self.now > self.began + 2_000 * MS && self.began > 0;
        let lbs = LbId::all().take(usize::from(self.size.load_balancers)).filter(|_| is_sending);
        let routed: BTreeMap<_, _> = lbs.map(|lb| (lb, tick)).collect();
        let outcome = match &call.order {
            Order::Claim => Outcome::State(Box::default()),
            Order::Look { counters } => {
                let sets = self.sets.iter().flat_map(|(lb, sets)| sets.iter().map(|from| (*lb, *from)));
                let sets = sets.collect();
                let packets = counters.then(|| self.packets.clone());
                let state = PlaneState { routed, sets, packets, ..PlaneState::default() };
                Outcome::State(Box::new(state))
            }
            Order::Stage(stage) => {
                self.epochs += 1;
                let sets = self.sets.entry(stage.lb).or_default();
                sets.push(stage.from);
                if sets.len() > 17 {
                    sets.remove(0);
                }
                Outcome::Done { routed: Some(routed) }
            }
            _ => Outcome::Done { routed: Some(routed) },
        };
        Answer { plane: call.plane, number: call.number, outcome }
    }

    /// One worker sends its state. Returns the time that it took to apply.
    pub fn state(&mut self, n: usize) -> Duration {
        let moment = self.moment();
        let worker = &mut self.workers[n];
        let seconds = (self.now - worker.at) as f64 / 1e9;
        worker.taken += worker.capacity * seconds;
        worker.at = self.now;
        if let Request::SendState(state) = &mut worker.state {
            let taken = worker.taken as i64;
            (state.events_received, state.events_reassembled, state.events_dequeued) = (taken, taken, taken);
        }
        let mut none = |_: &mut [u8]| {};
        let caller = Caller { token: Some(ROOT), peer: None };
        let began = Instant::now();
        let accepted = self.control.request(moment, caller, &worker.state, &mut none);
        let took = began.elapsed();
        assert!(accepted.is_ok(), "{accepted:?}");
        took
    }

    /// All workers take events at another rate from now on.
    pub fn change_all(&mut self) {
        for worker in &mut self.workers {
            worker.capacity = self.random.range(500..=8000) as f64;
        }
    }

    /// Lets a second pass: states, syncs, looks and a period.
    pub fn second(&mut self) {
        let workers = self.workers.len();
        let end = self.now + 1_000 * MS;
        let steps = STATES / (10 * MS);
        while self.now < end {
            self.now += 10 * MS;
            let step = self.now / (10 * MS) % steps;
            for n in (0..workers).filter(|n| *n as u64 % steps == step) {
                self.state(n);
            }
            let lb_of = |n: usize| LbId::new((n / usize::from(self.size.workers)) as u8).expect("few");
            for n in 0..workers {
                let member = (n % usize::from(self.size.workers)) as u16;
                let share = (self.workers[n].capacity * 0.01) as u64;
                *self.packets.entry((lb_of(n), member)).or_default() += share;
            }
            let began = Instant::now();
            let epochs = self.epochs;
            self.pump();
            if self.epochs > epochs {
                self.periods.push(began.elapsed());
            }
        }
        for lb in 0..self.size.load_balancers {
            for n in 0..self.size.senders {
                let sync = SyncHeader { source: 1, tick: self.tick(), ticks_per_second: 0, unix_nanos: 0 };
                let lb_id = LbId::new(lb).expect("few load balancers");
                self.control.sync(Time(self.now), lb_id, sender(lb, n), &sync);
            }
        }
    }

    /// The number of load balancers whose tables the data plane has.
    pub fn staged(&self) -> usize {
        self.sets.len()
    }

    /// Workers of all load balancers.
    pub fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Records that a store would have.
    pub fn records(&self) -> usize {
        self.records.len()
    }
}
