//! Decides which task of a pool gets a place on which accelerator. A place is the right of a task to one session with the
//! accelerator. This module has no clock, no randomness and no connections: its caller passes the time and random
//! numbers, reports what happened, and asks for the next action.

use std::{collections::VecDeque, time::Duration};

/// The time since the pool was made.
pub(super) type Time = Duration;

/// The number of an accelerator of the pool, counted from 0.
pub(super) type Member = usize;

/// Identifies a task that waits for a place. A task that begins to wait later has a higher number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Ticket(u64);

/// The rules of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The time between the first failure of an accelerator and the next attempt to connect to it. The time doubles with
    /// each further failure in a row.
    pub(super) first_delay: Duration,
    /// The longest time between a failure of an accelerator and the next attempt to connect to it.
    pub(super) longest_delay: Duration,
    /// The time after which a task gives up if no accelerator can be reached, or `None` if tasks never give up.
    pub(super) give_up_after: Option<Duration>,
    /// The time after which an attempt to connect again counts as failed if its result was not reported.
    pub(super) reconnect_limit: Duration,
}

/// An action of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Give the task a place on the accelerator. The task has the place until the pool calls [`Assignment::released`],
    /// [`Assignment::full`] or [`Assignment::unreachable`].
    Assign(Ticket, Member),
    /// Try to connect to the accelerator again, and report the result by [`Assignment::reconnected`].
    Reconnect(Member),
    /// Tell the task that no accelerator can be reached.
    GiveUp(Ticket),
}

/// Says whether tasks may get places on an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reachability {
    /// Tasks may get places.
    Reachable,
    /// The accelerator refused a session because it is full. At that time, the tasks of the pool had `places` other
    /// places on it. They get no more than this number before `until`.
    Full { places: usize, until: Time },
    /// The accelerator could not be reached, or its sessions ended. The next attempt to connect is made at `until`.
    Unreachable { until: Time },
    /// The pool is trying to connect again. If the result is not reported before `until`, the pool tries again.
    Reconnecting { until: Time },
}

#[derive(Clone, Copy, Debug)]
struct Accelerator {
    /// The maximum number of places.
    limit: usize,
    /// The number of places that tasks have.
    in_use: usize,
    reachability: Reachability,
    /// The number of failures in a row.
    failures: u32,
    /// The value of [`Assignment::assigned`] when a task last got a place on this accelerator.
    last_used: u64,
}

#[derive(Clone, Copy, Debug)]
struct QueuedTask {
    ticket: Ticket,
    /// The time at which the task began to wait.
    since: Time,
}

/// The accelerators of a pool, and the tasks that wait for a place.
#[derive(Debug)]
pub(super) struct Assignment {
    accelerators: Vec<Accelerator>,
    /// The tasks that wait, in the order of their tickets.
    queue: VecDeque<QueuedTask>,
    rules: Rules,
    tickets: u64,
    /// The number of places that tasks have got so far.
    assigned: u64,
    /// True if a task was queued since the last check for accelerators to which the pool must try to connect again.
    recheck: bool,
}

impl Assignment {
    /// Makes an assignment for accelerators with these maximum numbers of places.
    pub(super) fn new(limits: impl IntoIterator<Item = usize>, rules: Rules) -> Self {
        let accelerator = |limit| Accelerator {
            limit,
            in_use: 0,
            reachability: Reachability::Reachable,
            failures: 0,
            last_used: 0,
        };
        Self {
            accelerators: limits.into_iter().map(accelerator).collect(),
            queue: VecDeque::new(),
            rules,
            tickets: 0,
            assigned: 0,
            recheck: false,
        }
    }

    /// Adds a new task to the end of the queue.
    pub(super) fn enqueue(&mut self, now: Time) -> Ticket {
        let ticket = Ticket(self.tickets);
        self.tickets += 1;
        self.requeue(ticket, now);
        ticket
    }

    /// Adds a task to the queue again, because it could not set up a session on its place. The task keeps its ticket, and
    /// so its position before all tasks that began to wait later. `since` is the time at which the task began to wait.
    pub(super) fn requeue(&mut self, ticket: Ticket, since: Time) {
        let at = self.queue.partition_point(|task| task.ticket < ticket);
        self.queue.insert(at, QueuedTask { ticket, since });
        self.recheck = true;
    }

    /// Removes a task that no longer waits.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        self.queue.retain(|task| task.ticket != ticket);
    }

    /// Returns the next action, or `None` if there is nothing to do before [`deadline`](Self::deadline).
    pub(super) fn next(&mut self, now: Time) -> Option<Action> {
        self.end_full(now);
        if let Some(member) = self.due(now) {
            let until = now + self.rules.reconnect_limit;
            self.accelerators[member].reachability = Reachability::Reconnecting { until };
            return Some(Action::Reconnect(member));
        }
        let first = *self.queue.front()?;
        if let Some(member) = self.least_loaded() {
            self.queue.pop_front();
            self.assigned += 1;
            let accelerator = &mut self.accelerators[member];
            accelerator.in_use += 1;
            accelerator.last_used = self.assigned;
            return Some(Action::Assign(first.ticket, member));
        }
        self.recheck = false;
        self.give_up(now)
    }

    /// Returns the accelerator on which tasks have the fewest places, of the accelerators that have room. If several
    /// accelerators have the same number, the method returns the one that was used the longest time ago.
    fn least_loaded(&self) -> Option<Member> {
        let free = self.accelerators.iter().enumerate().filter(|(_, accelerator)| accelerator.has_room());
        let least = free.min_by_key(|(_, accelerator)| (accelerator.in_use, accelerator.last_used));
        least.map(|(member, _)| member)
    }

    /// Returns an accelerator to which the pool must try to connect again. If no task waits and no task was queued since
    /// the last check, the method returns `None`, because nobody needs the accelerator.
    fn due(&mut self, now: Time) -> Option<Member> {
        if !self.recheck && self.queue.is_empty() {
            return None;
        }
        let is_due = |accelerator: &Accelerator| match accelerator.reachability {
            Reachability::Unreachable { until } | Reachability::Reconnecting { until } => until <= now,
            Reachability::Reachable | Reachability::Full { .. } => false,
        };
        let due = self.accelerators.iter().position(is_due);
        if due.is_none() && self.queue.is_empty() {
            self.recheck = false;
        }
        due
    }

    /// Lets tasks ask full accelerators for further sessions again when the time for that has come.
    fn end_full(&mut self, now: Time) {
        for accelerator in &mut self.accelerators {
            if matches!(accelerator.reachability, Reachability::Full { until, .. } if until <= now) {
                accelerator.reachability = Reachability::Reachable;
            }
        }
    }

    /// Returns [`Action::GiveUp`] for the first task if it has waited long enough.
    fn give_up(&mut self, now: Time) -> Option<Action> {
        let first = self.queue.front()?;
        if now < self.give_up_at(first)? {
            return None;
        }
        let ticket = first.ticket;
        self.queue.pop_front();
        Some(Action::GiveUp(ticket))
    }

    /// Returns the time at which the task gives up, or `None` if it does not give up. A task gives up only if the last
    /// attempt to reach each accelerator has failed and no task has a place.
    fn give_up_at(&self, task: &QueuedTask) -> Option<Time> {
        let has_failed = |accelerator: &Accelerator| accelerator.failures > 0 && accelerator.in_use == 0;
        let all = self.accelerators.iter().all(has_failed);
        self.rules.give_up_after.filter(|_| all).map(|time| task.since.saturating_add(time))
    }

    /// Returns the time at which the pool must call [`next`](Self::next) if nothing happens before, or `None` if there is
    /// no such time.
    pub(super) fn deadline(&self) -> Option<Time> {
        let first = self.queue.front()?;
        let times = self.accelerators.iter().map(|accelerator| match accelerator.reachability {
            Reachability::Full { until, .. }
            | Reachability::Unreachable { until }
            | Reachability::Reconnecting { until } => Some(until),
            Reachability::Reachable => None,
        });
        times.flatten().chain(self.give_up_at(first)).min()
    }

    /// Reports that a task has released its place.
    pub(super) fn released(&mut self, member: Member) {
        self.accelerators[member].in_use -= 1;
    }

    /// Reports that a task has a session with the accelerator.
    pub(super) fn connected(&mut self, member: Member) {
        let accelerator = &mut self.accelerators[member];
        if let Reachability::Reachable | Reachability::Full { .. } = accelerator.reachability {
            accelerator.failures = 0;
        }
    }

    /// Reports that a task has released its place because the accelerator could not be reached, or because the accelerator
    /// ended the session. `random` is a random number.
    pub(super) fn unreachable(&mut self, member: Member, now: Time, random: u32) {
        self.accelerators[member].in_use -= 1;
        self.failed(member, now, random);
    }

    /// Reports that a task has released its place because the accelerator accepts no further session. `random` is a random
    /// number.
    pub(super) fn full(&mut self, member: Member, now: Time, random: u32) {
        let until = now + self.delay(1, random);
        let accelerator = &mut self.accelerators[member];
        accelerator.in_use -= 1;
        match (accelerator.in_use, accelerator.reachability) {
            (0, _) => self.failed(member, now, random),
            (places, Reachability::Reachable | Reachability::Full { .. }) => {
                accelerator.reachability = Reachability::Full { places, until };
            }
            (_, Reachability::Unreachable { .. } | Reachability::Reconnecting { .. }) => {}
        }
    }

    /// Reports the result of an attempt to connect again. `random` is a random number.
    pub(super) fn reconnected(&mut self, member: Member, is_connected: bool, now: Time, random: u32) {
        self.accelerators[member].reachability = Reachability::Reachable;
        if is_connected {
            self.accelerators[member].failures = 0;
        } else {
            self.failed(member, now, random);
        }
    }

    fn failed(&mut self, member: Member, now: Time, random: u32) {
        // When an accelerator ends, all its sessions end. Only the end of the first session counts as a failure.
        if let Reachability::Unreachable { .. } | Reachability::Reconnecting { .. } =
            self.accelerators[member].reachability
        {
            return;
        }
        let failures = self.accelerators[member].failures.saturating_add(1);
        let until = now + self.delay(failures, random);
        let accelerator = &mut self.accelerators[member];
        (accelerator.failures, accelerator.reachability) = (failures, Reachability::Unreachable { until });
    }

    /// Returns the time before the next attempt to connect to an accelerator with this number of failures in a row. Half
    /// of the time is random, so that many pools do not connect to an accelerator at the same moment.
    fn delay(&self, failures: u32, random: u32) -> Duration {
        let doubled = self.rules.first_delay.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let whole = doubled.min(self.rules.longest_delay);
        whole.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
    }

    /// Returns the number of tasks that wait for a place.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of places that tasks have on the accelerator, and whether tasks may get further ones.
    pub(super) fn load(&self, member: Member) -> (usize, bool) {
        let accelerator = &self.accelerators[member];
        let may = matches!(accelerator.reachability, Reachability::Reachable | Reachability::Full { .. });
        (accelerator.in_use, may)
    }
}

impl Accelerator {
    fn has_room(&self) -> bool {
        let limit = match self.reachability {
            Reachability::Reachable => self.limit,
            Reachability::Full { places, .. } => places.min(self.limit),
            Reachability::Unreachable { .. } | Reachability::Reconnecting { .. } => 0,
        };
        self.in_use < limit
    }
}

#[cfg(test)]
mod tests;
