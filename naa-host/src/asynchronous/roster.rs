//! Decides which task of a pool gets a place on which accelerator. The roster has no clock, no randomness and no
//! connections: its caller tells it the time and what happened, and asks it what to do.

use std::{collections::VecDeque, time::Duration};

/// The time since the pool was made.
pub(super) type Time = Duration;

/// The number of an accelerator of the pool, counted from 0.
pub(super) type Member = usize;

/// Identifies a task that asks for a place. Numbers grow in the order in which the tasks asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// The rules of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The time after the first failure of an accelerator before the pool tries it again. The time doubles with each
    /// further failure in a row.
    pub(super) first_delay: Duration,
    /// The longest time before an accelerator is tried again.
    pub(super) longest_delay: Duration,
    /// The time after which a task gives up if no accelerator can be reached; `None`: it never gives up.
    pub(super) patience: Option<Duration>,
    /// The time after which an attempt to reach an accelerator again counts as failed if nothing was heard of it.
    pub(super) scout_time: Duration,
}

/// What the pool has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Give the task a place on the accelerator. The place is lent until [`Roster::returned`], [`Roster::full`] or
    /// [`Roster::lost`] is called for it.
    Lend(Ticket, Member),
    /// Try whether the accelerator can be reached again, and call [`Roster::scouted`].
    Scout(Member),
    /// Tell the task that no accelerator can be reached.
    GiveUp(Ticket),
}

/// How an accelerator fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Tasks may have places.
    Well,
    /// The accelerator refused a session because it is full, while it had `places` other sessions of the pool. It gets
    /// no more than these before `until`.
    Full { places: usize, until: Time },
    /// The accelerator could not be reached, or its sessions ended. It is tried again at `until`.
    Gone { until: Time },
    /// The pool tries whether the accelerator can be reached again. If nothing is heard of the attempt before `until`, the
    /// pool tries again.
    Scouted { until: Time },
}

#[derive(Clone, Copy, Debug)]
struct Accelerator {
    /// The maximum number of places.
    limit: usize,
    /// The number of places that tasks have.
    lent: usize,
    health: Health,
    /// The number of failures in a row.
    failures: u32,
    /// The number of places that the roster had lent when it last lent one of this accelerator.
    last_lent: u64,
}

#[derive(Clone, Copy, Debug)]
struct Asker {
    ticket: Ticket,
    since: Time,
}

/// The accelerators of a pool, and the tasks that wait for a place.
#[derive(Debug)]
pub(super) struct Roster {
    accelerators: Vec<Accelerator>,
    /// The tasks that wait, in the order in which they asked first.
    askers: VecDeque<Asker>,
    rules: Rules,
    tickets: u64,
    lent: u64,
    /// True if a task has asked since accelerators were last looked through for those to try again.
    asked: bool,
}

impl Roster {
    /// Makes the roster of accelerators that have at most these numbers of places.
    pub(super) fn new(limits: impl IntoIterator<Item = usize>, rules: Rules) -> Self {
        let accelerator =
            |limit| Accelerator { limit, lent: 0, health: Health::Well, failures: 0, last_lent: 0 };
        Self {
            accelerators: limits.into_iter().map(accelerator).collect(),
            askers: VecDeque::new(),
            rules,
            tickets: 0,
            lent: 0,
            asked: false,
        }
    }

    /// Puts a task at the end of the queue.
    pub(super) fn ask(&mut self, now: Time) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.ask_again(ticket, now);
        ticket
    }

    /// Puts a task whose place was of no use back into the queue, before all tasks that asked first after it. `since` is
    /// the time at which it asked first.
    pub(super) fn ask_again(&mut self, ticket: Ticket, since: Time) {
        let at = self.askers.partition_point(|asker| asker.ticket < ticket);
        self.askers.insert(at, Asker { ticket, since });
        self.asked = true;
    }

    /// Removes a task that no longer waits.
    pub(super) fn leave(&mut self, ticket: Ticket) {
        self.askers.retain(|asker| asker.ticket != ticket);
    }

    /// Returns the next action, or `None` if there is nothing to do before [`deadline`](Self::deadline).
    pub(super) fn next(&mut self, now: Time) -> Option<Action> {
        self.recover(now);
        if let Some(member) = self.due(now) {
            self.accelerators[member].health = Health::Scouted { until: now + self.rules.scout_time };
            return Some(Action::Scout(member));
        }
        let first = *self.askers.front()?;
        if let Some(member) = self.least_loaded() {
            self.askers.pop_front();
            self.lent += 1;
            let accelerator = &mut self.accelerators[member];
            accelerator.lent += 1;
            accelerator.last_lent = self.lent;
            return Some(Action::Lend(first.ticket, member));
        }
        self.asked = false;
        self.give_up(now)
    }

    /// Returns the accelerator with the fewest lent places, of those that may lend one. If several have as few, the
    /// result is the one that lent its last place the longest time ago.
    fn least_loaded(&self) -> Option<Member> {
        let free = self.accelerators.iter().enumerate().filter(|(_, accelerator)| accelerator.has_room());
        let least = free.min_by_key(|(_, accelerator)| (accelerator.lent, accelerator.last_lent));
        least.map(|(member, _)| member)
    }

    /// Returns an accelerator that must be tried again. A pool whose tasks ask for nothing tries nothing.
    fn due(&mut self, now: Time) -> Option<Member> {
        if !self.asked && self.askers.is_empty() {
            return None;
        }
        let is_due = |accelerator: &Accelerator| match accelerator.health {
            Health::Gone { until } | Health::Scouted { until } => until <= now,
            Health::Well | Health::Full { .. } => false,
        };
        let due = self.accelerators.iter().position(is_due);
        if due.is_none() && self.askers.is_empty() {
            self.asked = false;
        }
        due
    }

    fn recover(&mut self, now: Time) {
        for accelerator in &mut self.accelerators {
            if matches!(accelerator.health, Health::Full { until, .. } if until <= now) {
                accelerator.health = Health::Well;
            }
        }
    }

    /// Returns a task that gives up: it has waited longer than its patience, and every accelerator has failed.
    fn give_up(&mut self, now: Time) -> Option<Action> {
        let first = self.askers.front()?;
        let end = self.end_of_patience(first)?;
        if now < end {
            return None;
        }
        let ticket = first.ticket;
        self.askers.pop_front();
        Some(Action::GiveUp(ticket))
    }

    /// Returns the time at which a task gives up if every accelerator has failed and stays so, else `None`.
    fn end_of_patience(&self, asker: &Asker) -> Option<Time> {
        let is_gone = |accelerator: &Accelerator| accelerator.failures > 0 && accelerator.lent == 0;
        let all = self.accelerators.iter().all(is_gone);
        self.rules.patience.filter(|_| all).map(|patience| asker.since.saturating_add(patience))
    }

    /// Returns the time at which [`next`](Self::next) must be called if nothing happens before.
    pub(super) fn deadline(&self) -> Option<Time> {
        let first = self.askers.front()?;
        let healths = self.accelerators.iter().map(|accelerator| match accelerator.health {
            Health::Full { until, .. } | Health::Gone { until } | Health::Scouted { until } => Some(until),
            Health::Well => None,
        });
        healths.flatten().chain(self.end_of_patience(first)).min()
    }

    /// Notes that a task gave its place back, and that the accelerator works.
    pub(super) fn returned(&mut self, member: Member) {
        self.accelerators[member].lent -= 1;
    }

    /// Notes that a session with the accelerator was set up.
    pub(super) fn reached(&mut self, member: Member) {
        let accelerator = &mut self.accelerators[member];
        if let Health::Well | Health::Full { .. } = accelerator.health {
            accelerator.failures = 0;
        }
    }

    /// Notes that a lent place was of no use, because the accelerator cannot be reached, or because its session ended.
    /// `dice` is a random number.
    pub(super) fn lost(&mut self, member: Member, now: Time, dice: u32) {
        self.accelerators[member].lent -= 1;
        self.gone(member, now, dice);
    }

    /// Notes that a lent place was of no use, because the accelerator accepts no further session. `dice` is a random
    /// number.
    pub(super) fn full(&mut self, member: Member, now: Time, dice: u32) {
        let until = now + self.delay(1, dice);
        let accelerator = &mut self.accelerators[member];
        accelerator.lent -= 1;
        match (accelerator.lent, accelerator.health) {
            (0, _) => self.gone(member, now, dice),
            (places, Health::Well | Health::Full { .. }) => {
                accelerator.health = Health::Full { places, until }
            }
            (_, Health::Gone { .. } | Health::Scouted { .. }) => {}
        }
    }

    /// Notes whether an accelerator that was tried again was reached. `dice` is a random number.
    pub(super) fn scouted(&mut self, member: Member, is_reached: bool, now: Time, dice: u32) {
        if is_reached {
            let accelerator = &mut self.accelerators[member];
            (accelerator.failures, accelerator.health) = (0, Health::Well);
        } else {
            self.accelerators[member].health = Health::Well;
            self.gone(member, now, dice);
        }
    }

    fn gone(&mut self, member: Member, now: Time, dice: u32) {
        // All sessions of an accelerator end when the accelerator ends. Only the first end counts as a failure.
        if let Health::Gone { .. } | Health::Scouted { .. } = self.accelerators[member].health {
            return;
        }
        let failures = self.accelerators[member].failures.saturating_add(1);
        let until = now + self.delay(failures, dice);
        let accelerator = &mut self.accelerators[member];
        (accelerator.failures, accelerator.health) = (failures, Health::Gone { until });
    }

    /// Returns the time before an accelerator that has failed so often is tried again. Half of it is random, so that
    /// many pools do not try an accelerator at the same moment.
    fn delay(&self, failures: u32, dice: u32) -> Duration {
        let doubled = self.rules.first_delay.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let whole = doubled.min(self.rules.longest_delay);
        whole.mul_f64(0.5 + 0.5 * f64::from(dice) / f64::from(u32::MAX))
    }

    /// Returns how many tasks wait for a place.
    pub(super) fn waiting(&self) -> usize {
        self.askers.len()
    }

    /// Returns how many places of the accelerator are lent, and whether tasks may get further ones.
    pub(super) fn load(&self, member: Member) -> (usize, bool) {
        let accelerator = &self.accelerators[member];
        (accelerator.lent, matches!(accelerator.health, Health::Well | Health::Full { .. }))
    }
}

impl Accelerator {
    fn has_room(&self) -> bool {
        let limit = match self.health {
            Health::Well => self.limit,
            Health::Full { places, .. } => places.min(self.limit),
            Health::Gone { .. } | Health::Scouted { .. } => 0,
        };
        self.lent < limit
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use simnet::Random;

    use super::*;

    const ZERO: Duration = Duration::ZERO;
    const MS: Duration = Duration::from_millis(1);
    const RULES: Rules = Rules {
        first_delay: Duration::from_millis(100),
        longest_delay: Duration::from_secs(10),
        patience: Some(Duration::from_secs(5)),
        scout_time: Duration::from_secs(15),
    };
    /// The largest random number: delays are as long as they can be.
    const LONGEST: u32 = u32::MAX;

    fn actions(roster: &mut Roster, now: Time) -> Vec<Action> {
        std::iter::from_fn(|| roster.next(now)).collect()
    }

    /// Asks for a place, which the roster must lend at once.
    fn lend(roster: &mut Roster, now: Time) -> Member {
        let ticket = roster.ask(now);
        match actions(roster, now)[..] {
            [Action::Lend(its, member)] if its == ticket => member,
            ref other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_accelerator_with_the_fewest_lent_places_comes_first() {
        let mut roster = Roster::new([2, 2, 2], RULES);
        let mut first: Vec<_> = (0..3).map(|_| lend(&mut roster, ZERO)).collect();
        first.sort_unstable();
        assert_eq!(first, [0, 1, 2]);
        roster.returned(1);
        assert_eq!(lend(&mut roster, MS), 1);
        // If several have as few places, the next one is the one that was not used for the longest time.
        (0..3).for_each(|member| roster.returned(member));
        assert_eq!([lend(&mut roster, MS), lend(&mut roster, MS), lend(&mut roster, MS)], [0, 2, 1]);
    }

    #[test]
    fn tasks_get_places_in_the_order_in_which_they_asked() {
        let mut roster = Roster::new([1], RULES);
        assert_eq!(lend(&mut roster, ZERO), 0);
        let [second, third, fourth] = [0, 1, 2].map(|_| roster.ask(MS));
        assert_eq!(actions(&mut roster, MS), []);
        roster.leave(third);
        roster.returned(0);
        assert_eq!(actions(&mut roster, 2 * MS), [Action::Lend(second, 0)]);
        // The place was of no use, so the task comes before those that asked later.
        roster.returned(0);
        roster.ask_again(second, MS);
        assert_eq!(actions(&mut roster, 3 * MS), [Action::Lend(second, 0)]);
        roster.returned(0);
        assert_eq!(actions(&mut roster, 4 * MS), [Action::Lend(fourth, 0)]);
        assert_eq!(roster.waiting(), 0);
    }

    #[test]
    fn an_accelerator_that_is_gone_is_tried_again_ever_more_rarely() {
        let mut roster = Roster::new([1], RULES);
        lend(&mut roster, ZERO);
        roster.lost(0, ZERO, LONGEST);
        roster.ask(ZERO);
        assert_eq!(actions(&mut roster, ZERO), []);
        let mut now = Duration::ZERO;
        for delay in [100, 200, 400, 800, 1600] {
            assert_eq!(roster.deadline(), Some(now + delay * MS));
            assert_eq!(actions(&mut roster, now + delay * MS - Duration::from_nanos(1)), []);
            now += delay * MS;
            assert_eq!(actions(&mut roster, now), [Action::Scout(0)]);
            assert_eq!(roster.deadline(), RULES.patience, "nothing else is due during an attempt");
            roster.scouted(0, false, now, LONGEST);
        }
        assert_eq!(roster.delay(40, LONGEST), RULES.longest_delay);
        assert_eq!(roster.delay(1, 0), RULES.first_delay / 2, "half of a delay is random");
    }

    #[test]
    fn an_accelerator_that_starts_is_taken_in_when_tasks_ask() {
        let mut roster = Roster::new([4, 4], RULES);
        let first = lend(&mut roster, ZERO);
        let other = lend(&mut roster, ZERO);
        roster.lost(other, ZERO, LONGEST);
        assert_eq!(lend(&mut roster, 50 * MS), first);
        let ticket = roster.ask(100 * MS);
        assert_eq!(actions(&mut roster, 100 * MS), [Action::Scout(other), Action::Lend(ticket, first)]);
        roster.scouted(other, true, 101 * MS, 0);
        assert_eq!(lend(&mut roster, 102 * MS), other);
    }

    #[test]
    fn sessions_that_end_together_are_one_failure() {
        let mut roster = Roster::new([4], RULES);
        (0..4).for_each(|_| assert_eq!(lend(&mut roster, ZERO), 0));
        (0..4).for_each(|_| roster.lost(0, ZERO, LONGEST));
        roster.ask(ZERO);
        assert_eq!(roster.deadline(), Some(100 * MS));
        assert_eq!(roster.load(0), (0, false));
    }

    #[test]
    fn a_full_accelerator_keeps_the_sessions_it_has() {
        let mut roster = Roster::new([4], RULES);
        lend(&mut roster, ZERO);
        lend(&mut roster, ZERO);
        roster.full(0, ZERO, LONGEST);
        let ticket = roster.ask(MS);
        assert_eq!(actions(&mut roster, MS), []);
        roster.returned(0);
        assert_eq!(actions(&mut roster, 2 * MS), [Action::Lend(ticket, 0)]);
        // Later there may be room.
        let ticket = roster.ask(3 * MS);
        assert_eq!(actions(&mut roster, 99 * MS), []);
        assert_eq!(roster.deadline(), Some(100 * MS));
        assert_eq!(actions(&mut roster, 100 * MS), [Action::Lend(ticket, 0)]);
    }

    #[test]
    fn an_attempt_of_which_nothing_is_heard_has_failed() {
        let mut roster = Roster::new([1], Rules { patience: None, ..RULES });
        lend(&mut roster, ZERO);
        roster.lost(0, ZERO, LONGEST);
        roster.ask(ZERO);
        assert_eq!(actions(&mut roster, 100 * MS), [Action::Scout(0)]);
        assert_eq!(roster.deadline(), Some(100 * MS + RULES.scout_time));
        assert_eq!(actions(&mut roster, 100 * MS + RULES.scout_time), [Action::Scout(0)]);
    }

    #[test]
    fn tasks_give_up_only_if_every_accelerator_has_failed() {
        let mut roster = Roster::new([1, 1], RULES);
        let first = lend(&mut roster, ZERO);
        let other = lend(&mut roster, ZERO);
        roster.lost(first, ZERO, LONGEST);
        let ticket = roster.ask(ZERO);
        let late = RULES.patience.unwrap();
        assert_eq!(actions(&mut roster, 100 * MS), [Action::Scout(first)]);
        roster.scouted(first, false, 100 * MS, LONGEST);
        assert_eq!(actions(&mut roster, late), [Action::Scout(first)], "the other is only busy");
        roster.scouted(first, false, late, LONGEST);
        roster.lost(other, late, LONGEST);
        assert_eq!(actions(&mut roster, late), [Action::GiveUp(ticket)]);
        assert_eq!(roster.waiting(), 0);
    }

    /// What the pool of a simulation knows.
    struct World {
        random: Random,
        roster: Roster,
        limits: Vec<usize>,
        is_up: Vec<bool>,
        scouts: Vec<Option<Time>>,
        /// The tasks that have a place, with the time at which they give it back.
        working: Vec<(Ticket, Member, Time)>,
        asked: BTreeMap<Ticket, Time>,
        now: Time,
    }

    impl World {
        fn new(seed: u64) -> Self {
            let mut random = Random::new(seed, 0);
            let limits: Vec<_> = (0..=random.below(4)).map(|_| 1 + random.below(3) as usize).collect();
            let count = limits.len();
            Self {
                roster: Roster::new(limits.iter().copied(), RULES),
                is_up: (0..count).map(|_| random.below(3) > 0).collect(),
                scouts: vec![None; count],
                working: Vec::new(),
                asked: BTreeMap::new(),
                now: Duration::ZERO,
                random,
                limits,
            }
        }

        fn dice(&mut self) -> u32 {
            self.random.below(1 << 32) as u32
        }

        fn soon(&mut self, most: u64) -> Time {
            self.now + self.random.below(most) as u32 * MS
        }

        fn act(&mut self) {
            while let Some(action) = self.roster.next(self.now) {
                match action {
                    Action::Lend(ticket, member) => {
                        // Nobody who asked first before still waits.
                        assert_eq!(self.asked.keys().next(), Some(&ticket));
                        self.asked.remove(&ticket);
                        let until = self.soon(50);
                        self.working.push((ticket, member, until));
                        let lent = self.working.iter().filter(|(_, its, _)| *its == member).count();
                        assert!(lent <= self.limits[member], "{lent} places of {member}");
                        assert_eq!(self.roster.load(member).0, lent);
                    }
                    Action::Scout(member) => {
                        assert!(self.scouts[member].is_none(), "two attempts at once");
                        self.scouts[member] = Some(self.soon(20));
                    }
                    Action::GiveUp(ticket) => {
                        let since = self.asked.remove(&ticket).unwrap();
                        assert!(self.now >= since + RULES.patience.unwrap());
                        assert!(self.working.is_empty(), "an accelerator works");
                    }
                }
            }
        }

        /// Lets the next thing happen that is due at `now`.
        fn happen(&mut self) {
            for member in 0..self.scouts.len() {
                if self.scouts[member].is_some_and(|at| at <= self.now) {
                    self.scouts[member] = None;
                    let dice = self.dice();
                    self.roster.scouted(member, self.is_up[member], self.now, dice);
                    self.act();
                }
            }
            while let Some(at) = self.working.iter().position(|(_, _, until)| *until <= self.now) {
                let (ticket, member, _) = self.working.swap_remove(at);
                let dice = self.dice();
                match self.random.below(8) {
                    _ if !self.is_up[member] => {
                        self.roster.lost(member, self.now, dice);
                        self.again(ticket);
                    }
                    0 => {
                        self.roster.full(member, self.now, dice);
                        self.again(ticket);
                    }
                    _ => {
                        self.roster.reached(member);
                        self.roster.returned(member);
                    }
                }
                self.act();
            }
        }

        fn again(&mut self, ticket: Ticket) {
            self.asked.insert(ticket, self.now);
            self.roster.ask_again(ticket, self.now);
        }

        fn step(&mut self) {
            match self.random.below(10) {
                0..4 => {
                    let ticket = self.roster.ask(self.now);
                    self.asked.insert(ticket, self.now);
                }
                4 => {
                    let at = self.random.below(self.asked.len().max(1) as u64) as usize;
                    if let Some(ticket) = self.asked.keys().nth(at).copied() {
                        self.asked.remove(&ticket);
                        self.roster.leave(ticket);
                    }
                }
                5 => {
                    let member = self.random.below(self.is_up.len() as u64) as usize;
                    self.is_up[member] = !self.is_up[member];
                }
                _ => self.now = self.soon(60),
            }
            self.act();
            self.happen();
        }

        /// Lets nobody ask any more, and all accelerators work: then all tasks are served, in bounded time.
        fn settle(&mut self) {
            self.is_up.fill(true);
            let end = self.now + Duration::from_secs(600);
            while !(self.asked.is_empty() && self.working.is_empty()) {
                self.act();
                let scouts = self.scouts.iter().flatten().copied();
                let working = self.working.iter().map(|(_, _, until)| *until);
                let next = scouts.chain(working).chain(self.roster.deadline()).min();
                let next = next.expect("tasks wait, and nothing is due");
                self.now = self.now.max(next);
                assert!(self.now < end, "tasks wait for ever");
                self.happen();
            }
            assert_eq!(self.roster.waiting(), 0);
            for member in 0..self.limits.len() {
                assert_eq!(self.roster.load(member).0, 0, "a place of {member} is lost");
            }
        }
    }

    #[test]
    fn no_place_and_no_task_is_lost_whatever_happens() {
        for seed in 0..10_000 {
            let result = std::panic::catch_unwind(|| {
                let mut world = World::new(seed);
                (0..100).for_each(|_| world.step());
                world.settle();
            });
            assert!(result.is_ok(), "seed {seed}");
        }
    }
}
