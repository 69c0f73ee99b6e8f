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

#[derive(Debug, Default)]
pub(super) struct Ledger {
    fates: BTreeMap<(u16, u64), Fate>,
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

    pub(super) fn read(&mut self, name: Name, by: WorkerId) -> Result<(), String> {
        self.change(name, Fate::Sent(by), Fate::Read(by))
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
