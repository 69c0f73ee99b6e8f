//! What became of each event that was sent.

use std::collections::HashMap;

use serde::Serialize;

use super::{
    nodes::Told,
    play::{Part, Played},
};

/// A packet that was sent just before a data plane died may still have waited there.
const WAITED: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fate {
    /// At the worker that the tables name, once, with the digest that it was sent with.
    Whole,
    /// The killed worker had it, or it was on its way there.
    HeldByKilled,
    /// Sent to the killed worker after its death.
    SentToKilled,
    /// Sent while the data plane was away, or had no tables yet.
    PlaneAway,
    /// At several workers, or several times at one.
    Repeated,
    Wrong,
    /// At another worker than the tables of its tick say.
    Misrouted,
    /// Nobody has it, and nothing says why.
    Unexplained,
}

impl Fate {
    pub(super) const LOSSES: [Self; 3] = [Self::HeldByKilled, Self::SentToKilled, Self::PlaneAway];
    pub(super) const FAULTS: [Self; 4] = [Self::Repeated, Self::Wrong, Self::Misrouted, Self::Unexplained];

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Whole => "whole at one worker",
            Self::HeldByKilled => "lost: at the killed worker when it died",
            Self::SentToKilled => "lost: sent to the killed worker after its death",
            Self::PlaneAway => "lost: sent while the data plane was away",
            Self::Repeated => "fault: came several times",
            Self::Wrong => "fault: came with other bytes",
            Self::Misrouted => "fault: came to another worker",
            Self::Unexplained => "fault: split, or lost without a cause",
        }
    }
}

/// An event of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) tick: u64,
    /// The worker that took it, or that the tables name.
    pub(super) worker: Option<usize>,
    pub(super) fate: Fate,
}

/// All events of a team, those of each sender in their order.
pub(super) fn judge(team: &Played) -> Vec<Judged> {
    let mut came = HashMap::<(u16, u64), Vec<(usize, &Told)>>::new();
    for (n, worker) in team.workers.iter().enumerate() {
        for told in &worker.ended.told {
            came.entry((told.data_id, told.event)).or_default().push((n, told));
        }
    }
    let one = |told: &Told| {
        let Told { data_id, event, tick, .. } = *told;
        let belongs = belongs(team, tick);
        let came = came.get(&(data_id, event)).map(Vec::as_slice);
        let fate = match came {
            None => missing(team, belongs, tick),
            Some([(n, _)]) if Some(*n) != belongs => Fate::Misrouted,
            Some([(_, one)]) if one.sha256 == told.sha256 && one.bytes == told.bytes => Fate::Whole,
            Some([_]) => Fate::Wrong,
            Some(_) => Fate::Repeated,
        };
        let worker = came.and_then(|came| came.first()).map(|(n, _)| *n).or(belongs);
        Judged { data_id, event, tick, worker, fate }
    };
    let mut all = Vec::new();
    for sent in &team.sent {
        let mut judged: Vec<_> = sent.told.iter().map(one).collect();
        while_away(team, &mut judged);
        killed_took_all_before(team, &mut judged);
        all.extend(judged);
    }
    all
}

/// The worker that the tables of a tick name.
fn belongs(team: &Played, tick: u64) -> Option<usize> {
    let tables = team.outage.as_ref().filter(|outage| tick < outage.killed).map(|outage| &outage.before);
    let at = tables.unwrap_or(&team.tables).worker(team.of.lb, team.from, tick)?;
    team.workers.iter().position(|worker| worker.at == at)
}

fn missing(team: &Played, belongs: Option<usize>, tick: u64) -> Fate {
    match belongs.map(|n| team.workers[n].part) {
        Some(Part::Killed(at)) if tick < at => Fate::HeldByKilled,
        Some(Part::Killed(_)) => Fate::SentToKilled,
        _ => Fate::Unexplained,
    }
}

/// Of a sender's events those that are missing since its data plane died, without one between them that came.
fn while_away(team: &Played, judged: &mut [Judged]) {
    let Some(outage) = &team.outage else { return };
    let since = outage.killed.saturating_sub(WAITED);
    let is_missing = |of: &Judged| of.fate == Fate::Unexplained || of.fate == Fate::SentToKilled;
    let begin = judged.iter().position(|of| of.tick >= since && of.fate == Fate::Unexplained);
    let run = begin.map(|begin| &mut judged[begin..]).into_iter().flatten();
    run.take_while(|of| is_missing(of)).for_each(|of| of.fate = Fate::PlaneAway);
}

/// What was sent to the killed worker before an event that it took cannot have been there when it died.
fn killed_took_all_before(team: &Played, judged: &mut [Judged]) {
    for (n, worker) in team.workers.iter().enumerate() {
        let Part::Killed(_) = worker.part else { continue };
        let last = judged.iter().rposition(|of| of.fate == Fate::Whole && of.worker == Some(n)).unwrap_or(0);
        let early = judged[..last].iter_mut();
        early
            .filter(|of| of.worker == Some(n) && Fate::LOSSES.contains(&of.fate))
            .for_each(|of| of.fate = Fate::Unexplained);
    }
}
