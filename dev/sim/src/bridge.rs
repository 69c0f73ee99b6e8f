//! A bridge between senders over faulty networks and workers of all sorts, in virtual time. Each event that a worker reads
//! is compared with what was sent, and again when it is given back; each other one is counted under one cause.

mod draw;
mod driver;
mod ledger;
mod person;
mod seat;
mod wire;
mod worker;

use std::collections::VecDeque;

use ejfat::{Time, bridge::Target, ring::Subscription};
use simnet::Random;

use super::{
    events::check,
    plan::{MS, SECOND, US},
    report::Summary,
    sender::Sender,
};
use draw::{Aim, Setting};
use driver::Driver;
use ledger::{Fate, Ledger};
use person::{End, Person};
use seat::Seat;

/// The virtual time in ns by which a run must have come to rest.
const AT_MOST: u64 = 30 * SECOND;
/// How often somebody subscribes to a bridge that is full.
const TRIES: u32 = 20;

pub(super) struct World {
    now: u64,
    seed: u64,
    setting: Setting,
    /// The last one is for probes.
    senders: Vec<Sender>,
    driver: Driver,
    seats: Vec<Seat>,
    /// When they come, who comes, and for which time they try.
    coming: VecDeque<(u64, Person, u32)>,
    ledger: Ledger,
    tick_at: u64,
    random: Random,
    verbose: bool,
    summary: Summary,
}

impl World {
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
            driver: Driver::new(&setting),
            seats: Vec::new(),
            coming: setting.persons.iter().map(|(at, person)| (*at, person.clone(), 0)).collect(),
            ledger: Ledger::default(),
            tick_at: 0,
            random: Random::new(seed, 71),
            verbose,
            summary: Summary { seeds: 1, ..Summary::default() },
            setting,
        }
    }

    pub(super) fn run(mut self) -> Result<Summary, String> {
        let outcome = self.play();
        if self.verbose {
            eprintln!("{:#?}", self.driver.dispatcher.counters());
        }
        outcome.map_err(|why| format!("at {} ns: {why}", self.now))?;
        Ok(self.summary)
    }

    fn play(&mut self) -> Result<(), String> {
        self.run_to_rest()?;
        self.check_rest()?;
        for at in 0..self.seats.len() {
            if !self.seats[at].gone && !self.seats[at].worker.is_honest() {
                self.driver.remove(self.now, at, &mut self.seats, &mut self.ledger)?;
            }
        }
        self.run_to_rest()?;
        self.probe_all()?;
        self.check_rest()?;
        self.seats.iter().try_for_each(|seat| seat.worker.compare_all(&self.senders))?;
        self.sum_up();
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
        let timeout = self.driver.reassembler.next_timeout().map(|at| at.0);
        let seats = self.seats.iter().filter_map(Seat::next_event);
        let coming = self.coming.iter().map(|&(at, ..)| at);
        let next = sends.chain(arrivals).chain(timeout).chain(seats).chain(coming);
        next.fold(self.tick_at, u64::min)
    }

    /// Nothing happens any more, but that hoarders have what they have.
    fn at_rest(&self) -> bool {
        let over = |sender: &Sender| sender.next_send().is_none() && sender.link.next_arrival().is_none();
        let dispatcher = &self.driver.dispatcher;
        let honest = |id| self.seats.iter().any(|seat| seat.id == id && seat.worker.is_honest());
        self.coming.is_empty()
            && self.senders.iter().all(over)
            && self.driver.reassembler.open_events() == 0
            && dispatcher.waiting() == 0
            && dispatcher.waiting_again() == 0
            && self.seats.iter().all(|seat| seat.next_event().is_none())
            && dispatcher.workers().all(|worker| !worker.stalled || !honest(worker.id))
    }

    fn step(&mut self) -> Result<(), String> {
        self.subscribe();
        for at in 0..self.seats.len() {
            self.end(at)?;
        }
        self.send_and_receive()?;
        self.driver.give_up(self.now, &mut self.ledger)?;
        for at in 0..self.seats.len() {
            self.driver.pass(self.now, at, &mut self.seats, &self.senders, &mut self.ledger)?;
            let seat = &mut self.seats[at];
            for credit in seat.worker.act(self.now, &self.senders, &mut self.ledger)? {
                seat.wire.credit(self.now, credit);
            }
        }
        if self.tick_at <= self.now {
            self.tick_at = self.now + self.setting.tick;
            self.driver.dispatcher.tick(Time(self.now));
            self.driver.carry_out(self.now, &mut self.seats, &mut self.ledger)?;
        }
        self.driver.check()
    }

    fn send_and_receive(&mut self) -> Result<(), String> {
        for sender in &mut self.senders {
            if sender.next_send().is_some_and(|at| at <= self.now) {
                sender.send(self.now);
            }
            while let Some(arrival) = sender.link.receive(self.now) {
                // Others do not arrive: their UDP checksum is wrong.
                if arrival.corrupted.is_none() {
                    let (seats, ledger) = (&mut self.seats, &mut self.ledger);
                    self.driver.arrive(self.now, sender.address, &arrival.packet, seats, ledger)?;
                }
            }
        }
        Ok(())
    }

    fn subscribe(&mut self) {
        for _ in 0..self.coming.len() {
            let Some((at, person, tries)) = self.coming.pop_front() else { return };
            if at > self.now {
                self.coming.push_back((at, person, tries));
                continue;
            }
            let asked = Subscription::decode(&person.subscription().encode());
            let asked = asked.expect("what is encoded can be decoded");
            match self.driver.dispatcher.subscribe(Time(self.now), &asked, person.placing) {
                Some(id) => self.seats.push(Seat::new(id, person, self.now, self.seed)),
                None if tries < TRIES => self.coming.push_back((self.now + MS, person, tries + 1)),
                None => {}
            }
        }
    }

    /// What ends a subscription, if that is due.
    fn end(&mut self, at: usize) -> Result<(), String> {
        let (now, seat) = (self.now, &mut self.seats[at]);
        if seat.gone {
            return Ok(());
        }
        if seat.end.at().is_some_and(|at| at <= now) {
            match std::mem::replace(&mut seat.end, End::Never) {
                End::Never => {}
                End::Dies { found, .. } => {
                    seat.worker.die();
                    seat.wire.worker_died(now);
                    seat.found_at = Some(found);
                }
                End::CutOff { found, .. } => {
                    seat.wire.break_at(now);
                    seat.found_at = Some(found);
                }
                End::Leaves { .. } => {
                    seat.worker.die();
                    seat.found_at = Some(now);
                }
            }
        }
        if self.seats[at].found_at.is_some_and(|at| at <= now) || self.seats[at].worker.gave_up() {
            self.remove(at)?;
        }
        Ok(())
    }

    fn remove(&mut self, at: usize) -> Result<(), String> {
        self.driver.remove(self.now, at, &mut self.seats, &mut self.ledger)?;
        let (after, times) = self.seats[at].worker.person().comes_again;
        if times > 0 {
            let (now, data_id) = (self.now + after, self.setting.senders as u16 - 1);
            let person = Person::draw(&mut self.random, now, data_id, self.setting.members);
            self.coming.push_back((now, Person { comes_again: (after, times - 1), ..person }, 0));
        }
        Ok(())
    }

    /// Honest workers gave everything back, and every event has ended.
    fn check_rest(&self) -> Result<(), String> {
        let dispatcher = &self.driver.dispatcher;
        let counters = dispatcher.counters();
        check(counters.open == 0, || format!("{} events are open", counters.open))?;
        let opened = self.driver.reassembler.counters().opened;
        check(opened == counters.opened, || format!("{opened} were opened: {counters:?}"))?;
        self.ledger.agrees(counters)?;
        // Complete events that no worker read are counted: a worker that ended held them, and they were not delivered again.
        let truthful = |id| {
            let seat = self.seats.iter().find(|seat| seat.id == id);
            seat.is_some_and(|seat| seat.gone && seat.worker.tells_the_truth())
        };
        let (unread, lost) =
            (self.ledger.unread(truthful), counters.held_by_ended - counters.delivered_again);
        check(unread <= lost, || {
            format!("{unread} events were read by no worker, and {lost} are counted as lost")
        })?;
        let kept = self.seats.iter().filter(|seat| seat.gone && !seat.forgotten).count();
        check(kept == 0, || format!("{kept} rings of workers that ended are kept at the end"))?;
        for stats in dispatcher.workers() {
            let seat = self.seats.iter().find(|seat| seat.id == stats.id).ok_or("a worker from nowhere")?;
            let read = self.ledger.read_by(stats.id);
            check(stats.released <= read || !seat.worker.is_honest(), || format!("{stats:?} read {read}"))?;
            let idle = (stats.in_use, stats.outstanding, stats.wrong_credits) == (0, 0, 0);
            check(!seat.worker.is_honest() || idle && stats.released == read, || {
                format!("not everything was given back of {read} events: {stats:?}")
            })?;
        }
        Ok(())
    }

    /// Every worker that is there still gets events.
    fn probe_all(&mut self) -> Result<(), String> {
        if self.seats.iter().all(|seat| seat.gone) {
            self.coming.push_back((self.now, Person::faultless(), 0));
            self.run_to_rest()?;
        }
        for at in 0..self.seats.len() {
            let Person { filter, geometry, .. } = *self.seats[at].worker.person();
            if self.seats[at].gone {
                continue;
            }
            let targets = [Target::Anybody, Target::DataId(filter.data_ids.0)];
            for target in targets.into_iter().chain(filter.member.map(Target::Member)) {
                let most = (geometry.ring_bytes() as u64).min(64);
                self.probe(target, most)?;
            }
        }
        Ok(())
    }

    fn probe(&mut self, target: Target, most: u64) -> Result<(), String> {
        self.driver.aim_at(Aim::At(target));
        let mut event = vec![0; self.random.range(1..=most) as usize];
        self.random.fill(&mut event);
        let sender = self.senders.last_mut().expect("there is one for probes");
        sender.events.push(event);
        let name = sender.name(sender.events.len() - 1);
        sender.rest_until(self.now + US);
        self.run_to_rest()?;
        let fate = self.ledger.fate(name);
        let Some(Fate::Read(by)) = fate else {
            return Err(format!("a probe to {target:?} gets through to nobody: {fate:?}"));
        };
        let filter = self.seats.iter().find(|seat| seat.id == by).map(|seat| seat.worker.person().filter);
        let right = filter.is_some_and(|filter| match target {
            Target::Anybody => true,
            Target::DataId(id) => filter.takes(id),
            Target::Member(member) => filter.member == Some(member),
        });
        check(right, || format!("a probe to {target:?} went to {by:?}"))
    }

    fn sum_up(&mut self) {
        for stats in self.senders.iter().map(|sender| *sender.link.stats()) {
            self.summary.packets += stats.sent;
            self.summary.lost += stats.lost;
            self.summary.duplicated += stats.duplicated;
            self.summary.reordered += stats.reordered;
            self.summary.corrupted += stats.corrupted;
        }
        let counters = self.driver.dispatcher.counters();
        self.summary.completions = counters.sent;
        self.summary.bytes = counters.sent_bytes;
        self.summary.virtual_nanos = self.now;
    }
}

#[cfg(test)]
mod tests {
    use ejfat::bridge::{Counters, Loss};

    use super::*;

    /// Otherwise the simulation shows nothing about it.
    #[test]
    fn events_end_in_every_way_there_is() {
        let runs = (0..1500).map(|seed| {
            let mut world = World::new(seed, false);
            world.play().unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            world.driver.dispatcher.counters().clone()
        });
        let runs: Vec<_> = runs.collect();
        let some = |what: &str, count: &dyn Fn(&Counters) -> u64| {
            let seeds = runs.iter().filter(|&run| count(run) > 0).count();
            assert!(seeds >= 5, "{what} in {seeds} seeds only");
        };
        Loss::ALL.into_iter().for_each(|loss| some(loss.name(), &|run| run.lost(loss)));
        some("incomplete", &|run| run.incomplete);
        some("released", &|run| run.released);
        some("spilled", &|run| run.spilled);
        some("held by workers that ended", &|run| run.held_by_ended);
        some("delivered again", &|run| run.delivered_again);
        some("wrong credits", &|run| run.wrong_credits);
    }
}
