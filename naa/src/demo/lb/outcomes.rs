//! Determines the outcome of each event that was sent.

use serde::Serialize;

use super::run::{EndedTeam, Part};
use crate::demo::nodes::{EventLine, came};

/// A packet may have waited in a data plane for so many ticks (microseconds) when the data plane was killed.
const WAITED: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SentEventOutcome {
    /// The worker that the tables name got it once, with the digest that the sender told.
    Whole,
    /// It was sent to the killed worker before that worker's death, and the worker did not tell of it.
    HeldByKilled,
    /// It was sent to the killed worker after that worker's death.
    SentToKilled,
    /// It was sent while the data plane was away, or had no tables yet.
    PlaneAway,
    /// Several workers got it, or one worker got it several times.
    Repeated,
    /// It came with other bytes than were sent.
    Wrong,
    /// It came to another worker than the one that the tables name for its tick.
    Misrouted,
    /// No worker got it, and no kill explains that.
    Unexplained,
}

impl SentEventOutcome {
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

/// An event that a sender sent, and what became of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentEvent {
    pub(super) data_id: u16,
    pub(super) event: u64,
    pub(super) tick: u64,
    /// The index of the worker that took it; if none did, of the worker that the tables name.
    pub(super) worker: Option<usize>,
    pub(super) outcome: SentEventOutcome,
}

/// Determines the outcomes of all events of a team, sender by sender, in the order in which each sender sent them.
pub(super) fn determine(team: &EndedTeam) -> Vec<SentEvent> {
    let came = came(team.workers.iter().map(|worker| &worker.ended.events));
    let one = |sent: &EventLine| {
        let EventLine { data_id, event, tick, .. } = *sent;
        let belongs = belongs(team, tick);
        let came = came.get(&(data_id, event)).map(Vec::as_slice);
        let outcome = match came {
            None => missing(team, belongs, tick),
            Some([(n, _)]) if Some(*n) != belongs => SentEventOutcome::Misrouted,
            Some([(_, one)]) if one.has_bytes_of(sent) => SentEventOutcome::Whole,
            Some([_]) => SentEventOutcome::Wrong,
            Some(_) => SentEventOutcome::Repeated,
        };
        let worker = came.and_then(|came| came.first()).map(|(n, _)| *n).or(belongs);
        SentEvent { data_id, event, tick, worker, outcome }
    };
    let mut all = Vec::new();
    for sent in &team.sent {
        let mut events: Vec<_> = sent.events.iter().map(one).collect();
        while_away(team, &mut events);
        killed_took_all_before(team, &mut events);
        all.extend(events);
    }
    all
}

/// The index of the worker that the tables name for a tick.
fn belongs(team: &EndedTeam, tick: u64) -> Option<usize> {
    let tables = team.outage.as_ref().filter(|outage| tick < outage.killed).map(|outage| &outage.before);
    let at = tables.unwrap_or(&team.tables).worker(team.of.lb, team.from, tick)?;
    team.workers.iter().position(|worker| worker.at == at)
}

/// The outcome of an event that no worker printed. `belongs` is the worker that the tables name.
fn missing(team: &EndedTeam, belongs: Option<usize>, tick: u64) -> SentEventOutcome {
    match belongs.map(|n| team.workers[n].part) {
        Some(Part::Killed(at)) if tick < at => SentEventOutcome::HeldByKilled,
        Some(Part::Killed(_)) => SentEventOutcome::SentToKilled,
        _ => SentEventOutcome::Unexplained,
    }
}

/// Marks the events of a sender that were lost with its data plane: the first missing one since the kill, and those behind it up
/// to the next one that came.
fn while_away(team: &EndedTeam, events: &mut [SentEvent]) {
    let Some(outage) = &team.outage else { return };
    let since = outage.killed.saturating_sub(WAITED);
    let is_missing =
        |of: &SentEvent| matches!(of.outcome, SentEventOutcome::Unexplained | SentEventOutcome::SentToKilled);
    let begin = events.iter().position(|of| of.tick >= since && of.outcome == SentEventOutcome::Unexplained);
    let run = begin.map(|begin| &mut events[begin..]).into_iter().flatten();
    run.take_while(|of| is_missing(of)).for_each(|of| of.outcome = SentEventOutcome::PlaneAway);
}

/// Marks as unexplained the missing events that a sender sent to the killed worker before one that this worker took: a worker
/// takes the events of a sender in their order, so the missing ones were not there when it died.
fn killed_took_all_before(team: &EndedTeam, events: &mut [SentEvent]) {
    for (n, worker) in team.workers.iter().enumerate() {
        let Part::Killed(_) = worker.part else { continue };
        let is_whole = |of: &SentEvent| of.outcome == SentEventOutcome::Whole && of.worker == Some(n);
        let last = events.iter().rposition(is_whole).unwrap_or(0);
        let early = events[..last].iter_mut();
        early
            .filter(|of| of.worker == Some(n) && SentEventOutcome::LOSSES.contains(&of.outcome))
            .for_each(|of| of.outcome = SentEventOutcome::Unexplained);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc, time::Duration};

    use ejfat::{
        lb::{Epoch, Forward, LbId, Member, Rule, Rules, TickPrefix, calendar},
        segment::IpVersion,
    };
    use ejfat_lb::TableSet;

    use super::*;
    use crate::demo::lb::{
        nodes::Ended,
        run::{EndedWorker, Outage},
        site::Reservation,
        tables::TableHistory,
    };

    const DIED: u64 = 1000;

    /// Tables that send even ticks to the first of two workers, and odd ticks to the second.
    fn tables(lb: LbId) -> TableHistory {
        let mut rules = Rules::default();
        let member = |id: u16| {
            let address = Ipv4Addr::LOCALHOST.into();
            let forward =
                Forward { mac: None, address, port: 7000 + id, port_bits: 0, keep_lb_header: false };
            Rule::Member { lb, ip: IpVersion::V4, id, member: Member::Forward(forward) }
        };
        let source = Rule::Source { lb, address: Ipv4Addr::LOCALHOST.into() };
        let epoch = Rule::Epoch { lb, ticks: TickPrefix::ALL, epoch: Epoch::new(0) };
        let all = calendar(lb, 0, &[0, 1]).into_iter().chain([member(0), member(1), source, epoch]);
        all.for_each(|rule| rules.insert(rule, false).unwrap());
        let mut seen = TableHistory::default();
        seen.update(lb, vec![TableSet { from: 0, rules: Arc::new(rules) }]);
        seen
    }

    fn line(tick: u64) -> EventLine {
        EventLine { data_id: 1, event: tick, bytes: 10, sha256: tick.to_string(), tick }
    }

    /// A team whose second worker was killed at tick [`DIED`]. `sent`: the ticks of the events that were sent; `came`: the ticks
    /// of those that each worker told of.
    fn team(sent: &[u64], came: [&[u64]; 2]) -> EndedTeam {
        let lb = LbId::new(0).unwrap();
        let ended =
            |ticks: &[u64]| Ended { events: ticks.iter().map(|&tick| line(tick)).collect(), sums: None };
        let worker = |n: u16| {
            let part = [Part::Stays, Part::Killed(DIED)][usize::from(n)];
            let (at, each) = ((Ipv4Addr::LOCALHOST, 7000 + n).into(), Duration::from_millis(1));
            EndedWorker { name: "one", at, each, part, ended: ended(came[usize::from(n)]) }
        };
        EndedTeam {
            of: Reservation { uri: String::new(), lb, plane: 0 },
            from: Ipv4Addr::LOCALHOST.into(),
            rate: 1.0,
            workers: vec![worker(0), worker(1)],
            sent: vec![ended(sent)],
            tables: tables(lb),
            drops: BTreeMap::new(),
            outage: None,
        }
    }

    fn outcomes(team: &EndedTeam) -> Vec<SentEventOutcome> {
        determine(team).into_iter().map(|of| of.outcome).collect()
    }

    #[test]
    fn what_the_killed_worker_did_not_tell_is_lost_from_the_last_one_that_it_told_on() {
        use SentEventOutcome::{HeldByKilled, SentToKilled, Unexplained, Whole};
        let sent = [990, 991, 993, 995, 1001, 1002];
        assert_eq!(
            outcomes(&team(&sent, [&[990, 1002], &[991, 993]])),
            [Whole, Whole, Whole, HeldByKilled, SentToKilled, Whole]
        );
        assert_eq!(
            outcomes(&team(&sent, [&[990, 1002], &[993]])),
            [Whole, Unexplained, Whole, HeldByKilled, SentToKilled, Whole]
        );
        // A worker that lives must not lose an event.
        assert_eq!(outcomes(&team(&[2, 4], [&[4], &[]])), [Unexplained, Whole]);
    }

    #[test]
    fn an_event_that_came_elsewhere_or_twice_or_altered_is_a_fault() {
        assert_eq!(
            outcomes(&team(&[2, 4], [&[4], &[2]])),
            [SentEventOutcome::Misrouted, SentEventOutcome::Whole]
        );
        assert_eq!(outcomes(&team(&[2], [&[2, 2], &[]])), [SentEventOutcome::Repeated]);
        let mut wrong = team(&[2], [&[2], &[]]);
        wrong.workers[0].ended.events[0].sha256 = "other".into();
        assert_eq!(outcomes(&wrong), [SentEventOutcome::Wrong]);
    }

    #[test]
    fn what_was_sent_while_the_data_plane_was_away_is_lost_without_a_gap() {
        use SentEventOutcome::{PlaneAway, Unexplained, Whole};
        let killed = 5_000_000;
        let ticks: Vec<_> = (0..6).map(|n| killed + 2 * n).collect();
        let mut away = team(&ticks, [&[ticks[0], ticks[3], ticks[5]], &[]]);
        away.outage = Some(Outage { killed, ready: killed + 4, before: away.tables.clone() });
        assert_eq!(outcomes(&away), [Whole, PlaneAway, PlaneAway, Whole, Unexplained, Whole]);
    }
}
