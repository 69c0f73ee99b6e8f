//! The truth about each event that was opened.

use std::collections::BTreeMap;

use ejfat::{
    bridge::{Counters, Loss, WorkerId},
    reassembly::Name,
};

use super::super::{events::check, sender::Sender};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Open,
    Sent(WorkerId),
    Read(WorkerId),
    Incomplete,
    /// By the cause, where the journal still had it.
    Lost(Option<Loss>),
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
    fates: BTreeMap<(u16, u64), Fate>,
    /// The workers to which each event was delivered before, in order.
    before: BTreeMap<(u16, u64), Vec<Before>>,
}

fn key(name: Name) -> (u16, u64) {
    (name.data_id, name.event)
}

/// What was sent under a name.
pub(super) fn sent(senders: &[Sender], name: Name) -> Result<&[u8], String> {
    let event = senders.get(usize::from(name.data_id)).and_then(|its| its.events.get(name.event as usize));
    Ok(event.ok_or_else(|| format!("{name:?} was never sent"))?)
}

impl Ledger {
    pub(super) fn open(&mut self, name: Name) -> Result<(), String> {
        let before = self.fates.insert(key(name), Fate::Open);
        check(before.is_none(), || format!("{name:?} is opened after {before:?}"))
    }

    fn change(&mut self, name: Name, from: Fate, to: Fate) -> Result<(), String> {
        let before = self.fates.insert(key(name), to);
        check(before == Some(from), || format!("{name:?} is {to:?} after {before:?}"))
    }

    /// An open one ends, or is told to a worker.
    pub(super) fn end(&mut self, name: Name, to: Fate) -> Result<(), String> {
        self.change(name, Fate::Open, to)
    }

    /// An event is delivered again: `from` had it and ended, and now `to` is told of it.
    pub(super) fn again(&mut self, name: Name, from: WorkerId, to: WorkerId) -> Result<(), String> {
        let before = self.fates.insert(key(name), Fate::Sent(to));
        let read = match before {
            Some(Fate::Sent(worker)) if worker == from => false,
            Some(Fate::Read(worker)) if worker == from => true,
            _ => return Err(format!("{name:?} is told {to:?} again for {from:?} after {before:?}")),
        };
        self.before.entry(key(name)).or_default().push(Before { worker: from, read });
        Ok(())
    }

    /// A worker reads an event that it was told of. `again` is what the descriptor says: whether the event is delivered again.
    pub(super) fn read(&mut self, name: Name, by: WorkerId, again: bool) -> Result<(), String> {
        let fate = self.fate(name);
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
                check(fate == Some(Fate::Sent(by)), || format!("{by:?} reads {name:?}, which is {fate:?}"))?;
                self.fates.insert(key(name), Fate::Read(by));
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
        let its =
            self.fates.iter().filter(|(key, fate)| matches!(fate, Fate::Sent(by) if of(*by)) && !read(key));
        its.count() as u64
    }

    pub(super) fn fate(&self, name: Name) -> Option<Fate> {
        self.fates.get(&key(name)).copied()
    }

    fn count(&self, which: impl Fn(Fate) -> bool) -> u64 {
        self.fates.values().filter(|&&fate| which(fate)).count() as u64
    }

    /// How many one worker read.
    pub(super) fn read_by(&self, worker: WorkerId) -> u64 {
        self.count(|fate| fate == Fate::Read(worker))
    }

    /// What the dispatcher counted is what happened.
    pub(super) fn agrees(&self, counters: &Counters) -> Result<(), String> {
        let told = |fate| matches!(fate, Fate::Sent(_) | Fate::Read(_));
        let lost = |fate| matches!(fate, Fate::Lost(_));
        let sums = [
            ("opened", self.fates.len() as u64, counters.opened),
            ("open", self.count(|fate| fate == Fate::Open), counters.open),
            ("sent", self.count(told), counters.sent),
            ("delivered again", self.delivered_again(), counters.delivered_again),
            ("incomplete", self.count(|fate| fate == Fate::Incomplete), counters.incomplete),
            ("lost", self.count(lost), counters.lost_of_any_cause()),
        ];
        for (what, truth, counted) in sums {
            check(truth == counted, || format!("{truth} events are {what}, not {counted}: {counters:?}"))?;
        }
        let unknown = self.count(|fate| fate == Fate::Lost(None));
        for cause in Loss::ALL {
            let (truth, counted) = (self.count(|fate| fate == Fate::Lost(Some(cause))), counters.lost(cause));
            let fits = (truth..=truth + unknown).contains(&counted);
            check(fits, || format!("{truth} events are lost by {cause:?}, not {counted}"))?;
        }
        Ok(())
    }
}
