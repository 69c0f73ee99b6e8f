//! Workers and the bridge are killed at random moments while events stream.

use std::{sync::Arc, time::Duration};

use simnet::Random;

use super::{
    Case,
    contents::Contents,
    counts::Counts,
    far::{BridgeProcess, WorkerLocation, WorkerProcess},
    ledger::Ledger,
    senders::{Pace, Senders},
    serve::BridgeProcessConfig,
    until,
};

/// A dead peer is noticed within about 2 s, and the worst of machines is slow.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Between two kills, at most, in microseconds.
const PAUSE: u64 = 300_000;
const PACE: Pace = Pace { rate: 0.05e9, limit: Duration::from_millis(100), mtu: 9000 };

struct Environment<'a> {
    case: &'a Case,
    /// Whether workers ask for events that killed workers had. Then no bridge is killed.
    redelivery: bool,
    config: BridgeProcessConfig,
    ledger: Arc<Ledger>,
    /// The bridge while it runs.
    bridge: Option<BridgeProcess>,
    workers: Vec<WorkerProcess>,
    random: Random,
    bridges_killed: u32,
    workers_killed: u32,
}

/// # Errors
/// What went wrong, in which round, and the seed.
pub fn kills(case: &Case, rounds: u32, redelivery: bool) -> Result<String, String> {
    let (config, seed) = (case.bridge("kills"), case.seed);
    let ledger = Arc::<Ledger>::default();
    let bridge = Some(BridgeProcess::start(&case.program, &config, &ledger)?);
    let worker = |(n, place): (usize, &WorkerLocation)| {
        let asks = (case.ack_timeout, redelivery);
        WorkerProcess::new(format!("w{n}"), place.clone(), &case.program, asks, &ledger)
    };
    let workers = case.workers.iter().enumerate().map(worker).collect();
    let mut env = Environment {
        case,
        redelivery,
        config,
        ledger: ledger.clone(),
        bridge,
        workers,
        random: Random::new(seed, u64::MAX),
        bridges_killed: 0,
        workers_killed: 0,
    };
    for at in 0..env.workers.len() {
        env.workers[at].start(&env.config)?;
    }
    env.workers.iter_mut().try_for_each(WorkerProcess::await_ready)?;
    let contents = Arc::new(Contents::new(seed));
    let senders = Senders::start(env.config.segments(), &contents, &ledger, None, PACE)?;
    for round in 0..rounds {
        let with_seed = |why| format!("seed {seed}, round {round}: {why}");
        env.round(round % 5 == 2 && !redelivery).map_err(with_seed)?;
        ledger.check().map_err(with_seed)?;
    }
    let _ = senders.end()?;
    let note = env.finish().map_err(|why| format!("seed {seed}, at the end: {why}"))?;
    ledger.check().map_err(|why| format!("seed {seed}: {why}"))?;
    let _ = std::fs::remove_file(&env.config.local);
    Ok(note)
}

impl Environment<'_> {
    /// Kills somebody, now and then two; the others go on, and who was killed comes back. So few rounds as there may be,
    /// the bridge is to be among those who are killed.
    fn round(&mut self, with_bridge: bool) -> Result<(), String> {
        std::thread::sleep(Duration::from_micros(self.random.below(PAUSE)));
        let all = self.workers.len() as u64 + u64::from(!self.redelivery);
        let mut victims = vec![self.random.below(all) as usize];
        if self.random.chance(200_000) {
            victims.push(self.random.below(all) as usize);
        }
        if with_bridge {
            victims.push(self.workers.len());
        }
        victims.sort_unstable();
        victims.dedup();
        // The one behind the workers is the bridge.
        let count = self.workers.len();
        let bridge_dies = victims.last() == Some(&count);
        for &victim in &victims {
            self.kill(victim);
        }
        if bridge_dies {
            self.config.instance += 1;
            self.bridge = Some(BridgeProcess::start(&self.case.program, &self.config, &self.ledger)?);
        } else {
            self.await_events("goes on", |at| !victims.contains(&at))?;
        }
        for at in victims.into_iter().filter(|&at| at < count) {
            self.workers[at].start(&self.config)?;
        }
        self.await_events("is back", |_| true)
    }

    fn kill(&mut self, victim: usize) {
        match self.workers.get_mut(victim) {
            Some(worker) => {
                worker.kill();
                self.workers_killed += 1;
            }
            None => {
                if let Some(bridge) = self.bridge.take() {
                    bridge.kill();
                }
                self.bridges_killed += 1;
            }
        }
    }

    /// Each of these workers gets another event, of the bridge that lives.
    fn await_events(&mut self, what: &str, which: impl Fn(usize) -> bool) -> Result<(), String> {
        let before: Vec<_> = self.workers.iter().map(WorkerProcess::events).collect();
        let instance = self.config.instance;
        let mut waited: Vec<_> = (0..self.workers.len()).filter(|&at| which(at)).collect();
        let workers = &mut self.workers;
        let mut ended = None;
        let done = until(TIME_LIMIT, || {
            waited.retain(|&at| workers[at].events() == before[at] || workers[at].instance() != instance);
            ended = waited.iter().copied().find(|&at| workers[at].is_over());
            waited.is_empty() || ended.is_some()
        });
        let name = |at: &usize| self.workers[*at].name.clone();
        if let Some(at) = ended {
            return Err(format!("{} ended by itself; standard error has more", name(&at)));
        }
        if done {
            return Ok(());
        }
        let names: Vec<_> = waited.iter().map(name).collect();
        let counts = self.bridge.as_ref().map(|bridge| bridge.counts().to_string()).unwrap_or_default();
        Err(format!("none of these {what} within {TIME_LIMIT:?}: {}; {counts}", names.join(", ")))
    }

    /// Nothing more is sent: the bridge that lives comes to an end with all it was given, and its sums hold.
    fn finish(&mut self) -> Result<String, String> {
        let bridge = self.bridge.take().ok_or("there is no bridge")?;
        let mut last = bridge.counts();
        let mut stays = 0;
        let workers = self.workers.len() as u64;
        // Its counts are a moment old.
        let done = until(TIME_LIMIT, || {
            let now = bridge.counts();
            let is_quiet = now.is_done() && now.workers == workers && now == last;
            stays = if is_quiet { stays + 1 } else { 0 };
            last = now;
            stays > 60
        });
        if !done {
            return Err(format!("the bridge is not done: {last}"));
        }
        self.workers.iter_mut().try_for_each(WorkerProcess::end)?;
        let taken = self.ledger.of_instance(self.config.instance);
        if taken > last.sent || taken < last.released {
            return Err(format!("workers took {taken} events of the last bridge: {last}"));
        }
        if self.redelivery {
            self.check_redelivery(&last)?;
        }
        bridge.end()?;
        let totals = self.ledger.totals();
        Ok(format!(
            "killed {} workers and {} bridges; {} of {} events taken, {} twice; the last bridge: {last}",
            self.workers_killed,
            self.bridges_killed,
            totals.taken,
            totals.sent,
            self.ledger.twice()
        ))
    }

    /// Checks that each complete event was taken by a worker, or is counted as held by a killed worker and not delivered again.
    fn check_redelivery(&self, last: &Counts) -> Result<(), String> {
        let complete = last.opened - last.incomplete - last.lost;
        let (taken, counted) = (self.ledger.totals().taken, last.held_by_ended - last.delivered_again);
        if taken > complete || complete - taken > counted {
            return Err(format!(
                "workers took {taken} of {complete} events, and {counted} are counted: {last}"
            ));
        }
        if last.held_by_ended == 0 || last.delivered_again == 0 {
            return Err(format!("nobody had anything when killed, or it did not come again: {last}"));
        }
        Ok(())
    }
}
