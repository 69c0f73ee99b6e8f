//! The truth about each event that was opened.

use std::collections::BTreeMap;

use ejfat::{
    bridge::{Counters, EventLossCause, WorkerId},
    reassembly::EventKey,
};

use super::super::{events::check, sender::Sender};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrueOutcome {
    Open,
    Sent(WorkerId),
    Read(WorkerId),
    Incomplete,
    /// By the cause, where the trace buffer still had it.
    Lost(Option<EventLossCause>),
}

/// A worker that was told of an event and ended, after which the event was delivered again.
#[derive(Debug)]
struct Before {
    worker: WorkerId,
    read: bool,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// What became of each event. An event that was delivered again has the newest worker here.
    outcomes: BTreeMap<(u16, u64), TrueOutcome>,
    /// The workers to which each event was delivered before, in order.
    before: BTreeMap<(u16, u64), Vec<Before>>,
}

fn key(name: EventKey) -> (u16, u64) {
    (name.data_id, name.event)
}

/// What was sent under a name.
pub(super) fn sent(senders: &[Sender], name: EventKey) -> Result<&[u8], String> {
    let event = senders.get(usize::from(name.data_id)).and_then(|its| its.events.get(name.event as usize));
    Ok(event.ok_or_else(|| format!("{name:?} was never sent"))?)
}

impl Ledger {
    pub(super) fn open(&mut self, name: EventKey) -> Result<(), String> {
        let before = self.outcomes.insert(key(name), TrueOutcome::Open);
        check(before.is_none(), || format!("{name:?} is opened after {before:?}"))
    }

    fn change(&mut self, name: EventKey, from: TrueOutcome, to: TrueOutcome) -> Result<(), String> {
        let before = self.outcomes.insert(key(name), to);
        check(before == Some(from), || format!("{name:?} is {to:?} after {before:?}"))
    }

    /// An open one ends, or is told to a worker.
    pub(super) fn end(&mut self, name: EventKey, to: TrueOutcome) -> Result<(), String> {
        self.change(name, TrueOutcome::Open, to)
    }

    /// An event is delivered again: `from` had it and ended, and now `to` is told of it.
    pub(super) fn deliver_again(
        &mut self,
        name: EventKey,
        from: WorkerId,
        to: WorkerId,
    ) -> Result<(), String> {
        let before = self.outcomes.insert(key(name), TrueOutcome::Sent(to));
        let read = match before {
            Some(TrueOutcome::Sent(worker)) if worker == from => false,
            Some(TrueOutcome::Read(worker)) if worker == from => true,
            _ => return Err(format!("{name:?} is told {to:?} again for {from:?} after {before:?}")),
        };
        self.before.entry(key(name)).or_default().push(Before { worker: from, read });
        Ok(())
    }

    /// A worker reads an event that it was told of. `again` is what the descriptor says: whether the event is delivered again.
    pub(super) fn read(&mut self, name: EventKey, by: WorkerId, again: bool) -> Result<(), String> {
        let outcome = self.outcome(name);
        let before = self.before.entry(key(name)).or_default();
        let times = before.len();
        // A worker that the bridge has given up may still read what it was told of, also if another worker has the event now.
        let at = match before.iter().position(|before| before.worker == by) {
            Some(at) => {
                check(!std::mem::replace(&mut before[at].read, true), || {
                    format!("{by:?} has {name:?} twice")
                })?;
                at
            }
            None => {
                check(outcome == Some(TrueOutcome::Sent(by)), || {
                    format!("{by:?} reads {name:?}, which is {outcome:?}")
                })?;
                self.outcomes.insert(key(name), TrueOutcome::Read(by));
                times
            }
        };
        check(again == (at > 0), || format!("{name:?} says {again} to {by:?}, who is number {at} to have it"))
    }

    /// How often events were delivered again, all together.
    pub(super) fn delivered_again(&self) -> u64 {
        self.before.values().map(|before| before.len() as u64).sum()
    }

    /// How many events were delivered and read by no worker, of those whose newest worker `of` selects.
    pub(super) fn unread(&self, of: impl Fn(WorkerId) -> bool) -> u64 {
        let read = |key| self.before.get(key).is_some_and(|before| before.iter().any(|before| before.read));
        let is_sent = |outcome: &TrueOutcome| matches!(outcome, TrueOutcome::Sent(by) if of(*by));
        let its = self.outcomes.iter().filter(|(key, outcome)| is_sent(outcome) && !read(key));
        its.count() as u64
    }

    pub(super) fn outcome(&self, name: EventKey) -> Option<TrueOutcome> {
        self.outcomes.get(&key(name)).copied()
    }

    fn count(&self, which: impl Fn(TrueOutcome) -> bool) -> u64 {
        self.outcomes.values().filter(|&&outcome| which(outcome)).count() as u64
    }

    /// How many one worker read.
    pub(super) fn read_by(&self, worker: WorkerId) -> u64 {
        self.count(|outcome| outcome == TrueOutcome::Read(worker))
    }

    /// What the dispatcher counted is what happened.
    pub(super) fn agrees(&self, counters: &Counters) -> Result<(), String> {
        let sent = |outcome| matches!(outcome, TrueOutcome::Sent(_) | TrueOutcome::Read(_));
        let lost = |outcome| matches!(outcome, TrueOutcome::Lost(_));
        let sums = [
            ("opened", self.outcomes.len() as u64, counters.opened),
            ("open", self.count(|outcome| outcome == TrueOutcome::Open), counters.open),
            ("sent", self.count(sent), counters.sent),
            ("delivered again", self.delivered_again(), counters.delivered_again),
            ("incomplete", self.count(|outcome| outcome == TrueOutcome::Incomplete), counters.incomplete),
            ("lost", self.count(lost), counters.lost_of_any_cause()),
        ];
        for (what, truth, counted) in sums {
            check(truth == counted, || format!("{truth} events are {what}, not {counted}: {counters:?}"))?;
        }
        let unknown = self.count(|outcome| outcome == TrueOutcome::Lost(None));
        for cause in EventLossCause::ALL {
            let truth = self.count(|outcome| outcome == TrueOutcome::Lost(Some(cause)));
            let counted = counters.lost(cause);
            let fits = (truth..=truth + unknown).contains(&counted);
            check(fits, || format!("{truth} events are lost by {cause:?}, not {counted}"))?;
        }
        Ok(())
    }
}
