//! A bridge between senders over faulty networks and workers of all sorts, in virtual time. Each event that a worker reads
//! is compared with what was sent, and again when it is given back; each other one is counted under one cause.

mod behaviour;
mod dispatch_model;
mod draw;
mod ledger;
mod subscriber;
mod wire;
mod worker;

use std::collections::VecDeque;

use ejfat::{Time, bridge::EligibleWorkers, ring::Subscription};
use simnet::Random;

use super::{
    events::check,
    plan::{MS, SECOND, US},
    report::Summary,
    sender::Sender,
};
use behaviour::{End, WorkerBehaviour};
use dispatch_model::DispatchModel;
use draw::{Aim, Setting};
use ledger::{Ledger, TrueOutcome};
use subscriber::Subscriber;

/// The virtual time in ns by which a run must have come to rest.
const AT_MOST: u64 = 30 * SECOND;
/// How often somebody subscribes to a bridge that is full.
const TRIES: u32 = 20;

pub(super) struct Environment {
    now: u64,
    seed: u64,
    setting: Setting,
    /// The last one is for probes.
    senders: Vec<Sender>,
    model: DispatchModel,
    subscribers: Vec<Subscriber>,
    /// When they come, who comes, and for which time they try.
    coming: VecDeque<(u64, WorkerBehaviour, u32)>,
    ledger: Ledger,
    tick_at: u64,
    random: Random,
    verbose: bool,
}

impl Environment {
    pub(super) fn new(seed: u64, verbose: bool) -> Self {
        let r = &mut Random::new(seed, 70);
        let setting = Setting::draw(r, seed);
        let drawn = (0..setting.senders).map(|n| Sender::draw(r, n, setting.behind_lb, seed));
        let senders: Vec<_> = drawn.chain([Sender::faultless(setting.senders, seed)]).collect();
        if verbose {
            let faults: Vec<_> = senders.iter().map(|sender| sender.link.faults()).collect();
            eprintln!("{setting:#?}\n{faults:#?}");
        }
        Self {
            now: 0,
            seed,
            senders,
            model: DispatchModel::new(&setting),
            subscribers: Vec::new(),
            coming: setting.behaviours.iter().map(|(at, behaviour)| (*at, behaviour.clone(), 0)).collect(),
            ledger: Ledger::default(),
            tick_at: 0,
            random: Random::new(seed, 71),
            verbose,
            setting,
        }
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        let outcome = self.drive();
        if self.verbose {
            eprintln!("{:#?}", self.model.dispatcher.counters());
        }
        outcome.map_err(|why| format!("at {} ns: {why}", self.now))?;
        Ok(self.summary())
    }

    fn drive(&mut self) -> Result<(), String> {
        self.run_to_rest()?;
        self.check_rest()?;
        for at in 0..self.subscribers.len() {
            if !self.subscribers[at].gone && !self.subscribers[at].worker.is_honest() {
                self.model.remove(self.now, at, &mut self.subscribers, &mut self.ledger)?;
            }
        }
        self.run_to_rest()?;
        self.probe_all()?;
        self.check_rest()?;
        self.subscribers.iter().try_for_each(|one| one.worker.compare_all(&self.senders))?;
        Ok(())
    }

    fn run_to_rest(&mut self) -> Result<(), String> {
        loop {
            self.step()?;
            if self.at_rest() {
                return Ok(());
            }
            self.now = self.now.max(self.next_time());
            check(self.now < AT_MOST, || "it does not come to rest".into())?;
        }
    }

    fn next_time(&self) -> u64 {
        let sends = self.senders.iter().filter_map(Sender::next_send);
        let arrivals = self.senders.iter().filter_map(|sender| sender.link.next_arrival());
        let timeout = self.model.reassembler.next_timeout().map(|at| at.0);
        let subscribers = self.subscribers.iter().filter_map(Subscriber::next_event);
        let coming = self.coming.iter().map(|&(at, ..)| at);
        let next = sends.chain(arrivals).chain(timeout).chain(subscribers).chain(coming);
        next.fold(self.tick_at, u64::min)
    }

    /// Nothing happens any more, but that hoarders have what they have.
    fn at_rest(&self) -> bool {
        let over = |sender: &Sender| sender.next_send().is_none() && sender.link.next_arrival().is_none();
        let dispatcher = &self.model.dispatcher;
        let honest = |id| self.subscribers.iter().any(|one| one.id == id && one.worker.is_honest());
        self.coming.is_empty()
            && self.senders.iter().all(over)
            && self.model.reassembler.open_events() == 0
            && dispatcher.waiting() == 0
            && dispatcher.waiting_for_redelivery() == 0
            && self.subscribers.iter().all(|one| one.next_event().is_none())
            && dispatcher.workers().all(|worker| !worker.stalled || !honest(worker.id))
    }

    fn step(&mut self) -> Result<(), String> {
        self.subscribe();
        for at in 0..self.subscribers.len() {
            self.end(at)?;
        }
        self.send_and_receive()?;
        self.model.give_up(self.now, &mut self.ledger)?;
        for at in 0..self.subscribers.len() {
            self.model.pass(self.now, at, &mut self.subscribers, &self.senders, &mut self.ledger)?;
            let subscriber = &mut self.subscribers[at];
            for credit in subscriber.worker.act(self.now, &self.senders, &mut self.ledger)? {
                subscriber.wire.credit(self.now, credit);
            }
        }
        if self.tick_at <= self.now {
            self.tick_at = self.now + self.setting.tick;
            self.model.dispatcher.tick(Time(self.now));
            self.model.carry_out(self.now, &mut self.subscribers, &mut self.ledger)?;
        }
        self.model.check()
    }

    fn send_and_receive(&mut self) -> Result<(), String> {
        for sender in &mut self.senders {
            if sender.next_send().is_some_and(|at| at <= self.now) {
                sender.send(self.now);
            }
            while let Some(arrival) = sender.link.receive(self.now) {
                // Others do not arrive: their UDP checksum is wrong.
                if arrival.corrupted.is_none() {
                    let (subscribers, ledger) = (&mut self.subscribers, &mut self.ledger);
                    self.model.arrive(self.now, sender.address, &arrival.packet, subscribers, ledger)?;
                }
            }
        }
        Ok(())
    }

    fn subscribe(&mut self) {
        for _ in 0..self.coming.len() {
            let Some((at, behaviour, tries)) = self.coming.pop_front() else { return };
            if at > self.now {
                self.coming.push_back((at, behaviour, tries));
                continue;
            }
            let asked = Subscription::decode(&behaviour.subscription().encode());
            let asked = asked.expect("what is encoded can be decoded");
            match self.model.dispatcher.subscribe(Time(self.now), &asked, behaviour.placing) {
                Some(id) => self.subscribers.push(Subscriber::new(id, behaviour, self.now, self.seed)),
                None if tries < TRIES => self.coming.push_back((self.now + MS, behaviour, tries + 1)),
                None => {}
            }
        }
    }

    /// What ends a subscription, if that is due.
    fn end(&mut self, at: usize) -> Result<(), String> {
        let (now, subscriber) = (self.now, &mut self.subscribers[at]);
        if subscriber.gone {
            return Ok(());
        }
        if subscriber.end.at().is_some_and(|at| at <= now) {
            match std::mem::replace(&mut subscriber.end, End::Never) {
                End::Never => {}
                End::Dies { found, .. } => {
                    subscriber.worker.die();
                    subscriber.wire.worker_died(now);
                    subscriber.found_at = Some(found);
                }
                End::CutOff { found, .. } => {
                    subscriber.wire.break_at(now);
                    subscriber.found_at = Some(found);
                }
                End::Leaves { .. } => {
                    subscriber.worker.die();
                    subscriber.found_at = Some(now);
                }
            }
        }
        let subscriber = &self.subscribers[at];
        if subscriber.found_at.is_some_and(|at| at <= now) || subscriber.worker.gave_up() {
            self.remove(at)?;
        }
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Result<(), String> {
        self.model.remove(self.now, at, &mut self.subscribers, &mut self.ledger)?;
        let (after, times) = self.subscribers[at].worker.behaviour().comes_again;
        if times > 0 {
            let (now, data_id) = (self.now + after, self.setting.senders as u16 - 1);
            let behaviour = WorkerBehaviour::draw(&mut self.random, now, data_id, self.setting.members);
            self.coming.push_back((now, WorkerBehaviour { comes_again: (after, times - 1), ..behaviour }, 0));
        }
        Ok(())
    }

    /// Honest workers gave everything back, and every event has ended.
    fn check_rest(&self) -> Result<(), String> {
        let dispatcher = &self.model.dispatcher;
        let counters = dispatcher.counters();
        check(counters.open == 0, || format!("{} events are open", counters.open))?;
        let opened = self.model.reassembler.counters().opened;
        check(opened == counters.opened, || format!("{opened} were opened: {counters:?}"))?;
        self.ledger.agrees(counters)?;
        // Complete events that no worker read are counted: a worker that ended held them, and they were not delivered again.
        let truthful = |id| {
            let subscriber = self.subscribers.iter().find(|one| one.id == id);
            subscriber.is_some_and(|one| one.gone && one.worker.is_truthful())
        };
        let (unread, lost) =
            (self.ledger.unread(truthful), counters.held_by_ended - counters.delivered_again);
        check(unread <= lost, || {
            format!("{unread} events were read by no worker, and {lost} are counted as lost")
        })?;
        let kept = self.subscribers.iter().filter(|one| one.gone && !one.forgotten).count();
        check(kept == 0, || format!("{kept} rings of workers that ended are kept at the end"))?;
        for stats in dispatcher.workers() {
            let subscriber = self.subscribers.iter().find(|one| one.id == stats.id);
            let subscriber = subscriber.ok_or("a worker from nowhere")?;
            let read = self.ledger.read_by(stats.id);
            check(stats.released <= read || !subscriber.worker.is_honest(), || {
                format!("{stats:?} read {read}")
            })?;
            let idle = (stats.in_use, stats.outstanding, stats.wrong_credits) == (0, 0, 0);
            check(!subscriber.worker.is_honest() || idle && stats.released == read, || {
                format!("not everything was given back of {read} events: {stats:?}")
            })?;
        }
        Ok(())
    }

    /// Every worker that is there still gets events.
    fn probe_all(&mut self) -> Result<(), String> {
        if self.subscribers.iter().all(|one| one.gone) {
            self.coming.push_back((self.now, WorkerBehaviour::faultless(), 0));
            self.run_to_rest()?;
        }
        for at in 0..self.subscribers.len() {
            let WorkerBehaviour { filter, geometry, .. } = *self.subscribers[at].worker.behaviour();
            if self.subscribers[at].gone {
                continue;
            }
            let targets = [EligibleWorkers::Anybody, EligibleWorkers::DataId(filter.data_ids.0)];
            for target in targets.into_iter().chain(filter.member.map(EligibleWorkers::Member)) {
                let most = (geometry.ring_bytes() as u64).min(64);
                self.probe(target, most)?;
            }
        }
        Ok(())
    }

    fn probe(&mut self, target: EligibleWorkers, most: u64) -> Result<(), String> {
        self.model.aim_at(Aim::At(target));
        let mut event = vec![0; self.random.range(1..=most) as usize];
        self.random.fill(&mut event);
        let sender = self.senders.last_mut().expect("there is one for probes");
        sender.events.push(event);
        let name = sender.name(sender.events.len() - 1);
        sender.rest_until(self.now + US);
        self.run_to_rest()?;
        let outcome = self.ledger.outcome(name);
        let Some(TrueOutcome::Read(by)) = outcome else {
            return Err(format!("a probe to {target:?} gets through to nobody: {outcome:?}"));
        };
        let taker = self.subscribers.iter().find(|one| one.id == by);
        let filter = taker.map(|one| one.worker.behaviour().filter);
        let right = filter.is_some_and(|filter| match target {
            EligibleWorkers::Anybody => true,
            EligibleWorkers::DataId(id) => filter.takes(id),
            EligibleWorkers::Member(member) => filter.member == Some(member),
        });
        check(right, || format!("a probe to {target:?} went to {by:?}"))
    }

    fn summary(&self) -> Summary {
        let counters = self.model.dispatcher.counters();
        Summary {
            completions: counters.sent,
            bytes: counters.sent_bytes,
            virtual_nanos: self.now,
            ..Summary::of(self.senders.iter().map(|sender| sender.link.counters()))
        }
    }
}

#[cfg(test)]
mod tests {
    use ejfat::bridge::{Counters, EventLossCause};

    use super::*;

    /// Otherwise the simulation shows nothing about it.
    #[test]
    fn events_end_in_every_way_there_is() {
        let runs = (0..1500).map(|seed| {
            let mut env = Environment::new(seed, false);
            env.drive().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            env.model.dispatcher.counters().clone()
        });
        let runs: Vec<_> = runs.collect();
        let some = |what: &str, count: &dyn Fn(&Counters) -> u64| {
            let seeds = runs.iter().filter(|&run| count(run) > 0).count();
            assert!(seeds >= 5, "{what} in {seeds} seeds only");
        };
        EventLossCause::ALL.into_iter().for_each(|loss| some(loss.name(), &|run| run.lost(loss)));
        some("incomplete", &|run| run.incomplete);
        some("released", &|run| run.released);
        some("spilled", &|run| run.spilled);
        some("held by workers that ended", &|run| run.held_by_ended);
        some("delivered again", &|run| run.delivered_again);
        some("wrong credits", &|run| run.wrong_credits);
    }
}
