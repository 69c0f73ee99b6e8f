//! Tests of the assignment in virtual time.

use std::collections::BTreeMap;

use simnet::Random;

use super::*;

const ZERO: Duration = Duration::ZERO;
const MS: Duration = Duration::from_millis(1);
const RULES: Rules = Rules {
    first_delay: Duration::from_millis(100),
    longest_delay: Duration::from_secs(10),
    give_up_after: Some(Duration::from_secs(5)),
    reconnect_limit: Duration::from_secs(15),
};
/// The largest random number: delays are as long as they can be.
const LONGEST: u32 = u32::MAX;

fn actions(assignment: &mut Assignment, now: Time) -> Vec<Action> {
    std::iter::from_fn(|| assignment.next(now)).collect()
}

/// Queues a task, which must get a place at once.
fn assign(assignment: &mut Assignment, now: Time) -> Member {
    let ticket = assignment.enqueue(now);
    match actions(assignment, now)[..] {
        [Action::Assign(its, member)] if its == ticket => member,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn the_accelerator_with_the_fewest_places_in_use_comes_first() {
    let mut assignment = Assignment::new([2, 2, 2], RULES);
    let mut first: Vec<_> = (0..3).map(|_| assign(&mut assignment, ZERO)).collect();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 2]);
    assignment.released(1);
    assert_eq!(assign(&mut assignment, MS), 1);
    // If several have as few places in use, the next one is the one that was used the longest time ago.
    (0..3).for_each(|member| assignment.released(member));
    assert_eq!(
        [assign(&mut assignment, MS), assign(&mut assignment, MS), assign(&mut assignment, MS)],
        [0, 2, 1]
    );
}

#[test]
fn tasks_get_places_in_the_order_in_which_they_asked() {
    let mut assignment = Assignment::new([1], RULES);
    assert_eq!(assign(&mut assignment, ZERO), 0);
    let [second, third, fourth] = [0, 1, 2].map(|_| assignment.enqueue(MS));
    assert_eq!(actions(&mut assignment, MS), []);
    assignment.remove(third);
    assignment.released(0);
    assert_eq!(actions(&mut assignment, 2 * MS), [Action::Assign(second, 0)]);
    // The task could not set up a session, and comes before the tasks that began to wait later.
    assignment.released(0);
    assignment.requeue(second, MS);
    assert_eq!(actions(&mut assignment, 3 * MS), [Action::Assign(second, 0)]);
    assignment.released(0);
    assert_eq!(actions(&mut assignment, 4 * MS), [Action::Assign(fourth, 0)]);
    assert_eq!(assignment.queued(), 0);
}

#[test]
fn an_unreachable_accelerator_is_tried_again_after_delays_that_double() {
    let mut assignment = Assignment::new([1], RULES);
    assign(&mut assignment, ZERO);
    assignment.unreachable(0, ZERO, LONGEST);
    assignment.enqueue(ZERO);
    assert_eq!(actions(&mut assignment, ZERO), []);
    let mut now = Duration::ZERO;
    for delay in [100, 200, 400, 800, 1600] {
        assert_eq!(assignment.deadline(), Some(now + delay * MS));
        assert_eq!(actions(&mut assignment, now + delay * MS - Duration::from_nanos(1)), []);
        now += delay * MS;
        assert_eq!(actions(&mut assignment, now), [Action::Reconnect(0)]);
        assert_eq!(assignment.deadline(), RULES.give_up_after, "nothing else is due during an attempt");
        assignment.reconnected(0, false, now, LONGEST);
    }
    assert_eq!(assignment.delay(40, LONGEST), RULES.longest_delay);
    assert_eq!(assignment.delay(1, 0), RULES.first_delay / 2, "half of a delay is random");
}

#[test]
fn an_accelerator_that_starts_later_is_used_once_a_task_is_queued() {
    let mut assignment = Assignment::new([4, 4], RULES);
    let first = assign(&mut assignment, ZERO);
    let other = assign(&mut assignment, ZERO);
    assignment.unreachable(other, ZERO, LONGEST);
    assert_eq!(assign(&mut assignment, 50 * MS), first);
    let ticket = assignment.enqueue(100 * MS);
    assert_eq!(actions(&mut assignment, 100 * MS), [Action::Reconnect(other), Action::Assign(ticket, first)]);
    assignment.reconnected(other, true, 101 * MS, 0);
    assert_eq!(assign(&mut assignment, 102 * MS), other);
}

#[test]
fn sessions_that_end_together_are_one_failure() {
    let mut assignment = Assignment::new([4], RULES);
    (0..4).for_each(|_| assert_eq!(assign(&mut assignment, ZERO), 0));
    (0..4).for_each(|_| assignment.unreachable(0, ZERO, LONGEST));
    assignment.enqueue(ZERO);
    assert_eq!(assignment.deadline(), Some(100 * MS));
    assert_eq!(assignment.load(0), (0, false));
}

#[test]
fn a_full_accelerator_keeps_the_sessions_it_has() {
    let mut assignment = Assignment::new([4], RULES);
    assign(&mut assignment, ZERO);
    assign(&mut assignment, ZERO);
    assignment.full(0, ZERO, LONGEST);
    let ticket = assignment.enqueue(MS);
    assert_eq!(actions(&mut assignment, MS), []);
    assignment.released(0);
    assert_eq!(actions(&mut assignment, 2 * MS), [Action::Assign(ticket, 0)]);
    // Later there may be room.
    let ticket = assignment.enqueue(3 * MS);
    assert_eq!(actions(&mut assignment, 99 * MS), []);
    assert_eq!(assignment.deadline(), Some(100 * MS));
    assert_eq!(actions(&mut assignment, 100 * MS), [Action::Assign(ticket, 0)]);
}

#[test]
fn an_attempt_to_connect_whose_result_is_not_reported_has_failed() {
    let mut assignment = Assignment::new([1], Rules { give_up_after: None, ..RULES });
    assign(&mut assignment, ZERO);
    assignment.unreachable(0, ZERO, LONGEST);
    assignment.enqueue(ZERO);
    assert_eq!(actions(&mut assignment, 100 * MS), [Action::Reconnect(0)]);
    assert_eq!(assignment.deadline(), Some(100 * MS + RULES.reconnect_limit));
    assert_eq!(actions(&mut assignment, 100 * MS + RULES.reconnect_limit), [Action::Reconnect(0)]);
}

#[test]
fn tasks_give_up_only_if_every_accelerator_has_failed() {
    let mut assignment = Assignment::new([1, 1], RULES);
    let first = assign(&mut assignment, ZERO);
    let other = assign(&mut assignment, ZERO);
    assignment.unreachable(first, ZERO, LONGEST);
    let ticket = assignment.enqueue(ZERO);
    let late = RULES.give_up_after.unwrap();
    assert_eq!(actions(&mut assignment, 100 * MS), [Action::Reconnect(first)]);
    assignment.reconnected(first, false, 100 * MS, LONGEST);
    assert_eq!(actions(&mut assignment, late), [Action::Reconnect(first)], "the other is only busy");
    assignment.reconnected(first, false, late, LONGEST);
    assignment.unreachable(other, late, LONGEST);
    assert_eq!(actions(&mut assignment, late), [Action::GiveUp(ticket)]);
    assert_eq!(assignment.queued(), 0);
}

/// A simulated pool with its accelerators and tasks.
struct SimulatedPool {
    random: Random,
    assignment: Assignment,
    limits: Vec<usize>,
    is_up: Vec<bool>,
    attempts: Vec<Option<Time>>,
    /// The tasks that have a place, each with the time at which it releases the place.
    working: Vec<(Ticket, Member, Time)>,
    queued: BTreeMap<Ticket, Time>,
    now: Time,
}

impl SimulatedPool {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let limits: Vec<_> = (0..=random.below(4)).map(|_| 1 + random.below(3) as usize).collect();
        let count = limits.len();
        Self {
            assignment: Assignment::new(limits.iter().copied(), RULES),
            is_up: (0..count).map(|_| random.below(3) > 0).collect(),
            attempts: vec![None; count],
            working: Vec::new(),
            queued: BTreeMap::new(),
            now: Duration::ZERO,
            random,
            limits,
        }
    }

    fn random(&mut self) -> u32 {
        self.random.below(1 << 32) as u32
    }

    fn soon(&mut self, most: u64) -> Time {
        self.now + self.random.below(most) as u32 * MS
    }

    fn act(&mut self) {
        while let Some(action) = self.assignment.next(self.now) {
            match action {
                Action::Assign(ticket, member) => {
                    // No task that began to wait earlier is still waiting.
                    assert_eq!(self.queued.keys().next(), Some(&ticket));
                    self.queued.remove(&ticket);
                    let until = self.soon(50);
                    self.working.push((ticket, member, until));
                    let in_use = self.working.iter().filter(|(_, its, _)| *its == member).count();
                    assert!(in_use <= self.limits[member], "{in_use} places of {member}");
                    assert_eq!(self.assignment.load(member).0, in_use);
                }
                Action::Reconnect(member) => {
                    assert!(self.attempts[member].is_none(), "two attempts at once");
                    self.attempts[member] = Some(self.soon(20));
                }
                Action::GiveUp(ticket) => {
                    let since = self.queued.remove(&ticket).unwrap();
                    assert!(self.now >= since + RULES.give_up_after.unwrap());
                    assert!(self.working.is_empty(), "an accelerator works");
                }
            }
        }
    }

    /// Ends the attempts to connect and the uses of places that end at `now`.
    fn happen(&mut self) {
        for member in 0..self.attempts.len() {
            if self.attempts[member].is_some_and(|at| at <= self.now) {
                self.attempts[member] = None;
                let random = self.random();
                self.assignment.reconnected(member, self.is_up[member], self.now, random);
                self.act();
            }
        }
        while let Some(at) = self.working.iter().position(|(_, _, until)| *until <= self.now) {
            let (ticket, member, _) = self.working.swap_remove(at);
            let random = self.random();
            match self.random.below(8) {
                _ if !self.is_up[member] => {
                    self.assignment.unreachable(member, self.now, random);
                    self.again(ticket);
                }
                0 => {
                    self.assignment.full(member, self.now, random);
                    self.again(ticket);
                }
                _ => {
                    self.assignment.connected(member);
                    self.assignment.released(member);
                }
            }
            self.act();
        }
    }

    fn again(&mut self, ticket: Ticket) {
        self.queued.insert(ticket, self.now);
        self.assignment.requeue(ticket, self.now);
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..4 => {
                let ticket = self.assignment.enqueue(self.now);
                self.queued.insert(ticket, self.now);
            }
            4 => {
                let at = self.random.below(self.queued.len().max(1) as u64) as usize;
                if let Some(ticket) = self.queued.keys().nth(at).copied() {
                    self.queued.remove(&ticket);
                    self.assignment.remove(ticket);
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

    /// Lets all accelerators work and queues no further task. Then all tasks must get places in bounded time.
    fn settle(&mut self) {
        self.is_up.fill(true);
        let end = self.now + Duration::from_secs(600);
        while !(self.queued.is_empty() && self.working.is_empty()) {
            self.act();
            let attempts = self.attempts.iter().flatten().copied();
            let working = self.working.iter().map(|(_, _, until)| *until);
            let next = attempts.chain(working).chain(self.assignment.deadline()).min();
            let next = next.expect("tasks wait, and nothing is due");
            self.now = self.now.max(next);
            assert!(self.now < end, "tasks wait for ever");
            self.happen();
        }
        assert_eq!(self.assignment.queued(), 0);
        for member in 0..self.limits.len() {
            assert_eq!(self.assignment.load(member).0, 0, "a place of {member} is lost");
        }
    }
}

#[test]
fn no_place_and_no_task_is_lost_whatever_happens() {
    for seed in 0..10_000 {
        let result = std::panic::catch_unwind(|| {
            let mut pool = SimulatedPool::new(seed);
            (0..100).for_each(|_| pool.step());
            pool.settle();
        });
        assert!(result.is_ok(), "seed {seed}");
    }
}
