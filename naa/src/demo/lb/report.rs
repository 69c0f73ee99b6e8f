//! Compares what was sent with what came, and checks that all conditions hold.

use std::collections::HashSet;

use naa_measure::TextTable;
use serde::Serialize;

use super::{
    nodes::{QUEUE, Sums},
    outcomes::{SentEvent, SentEventOutcome, determine},
    run::{EndedTeam, Part},
};
use crate::{
    demo::{
        nodes::EventLine,
        report::{DemoReport, yes},
    },
    show,
};

/// The table lists at most this many events of one outcome, and the last one; JSON lists all.
const SHOWN: usize = 4;
/// A fill level above this shows that the worker could not keep up for a while.
const ROSE: f64 = 0.02;
/// The longest time from a worker's death to the last event that is sent to it: 2 s until the worker counts as silent, a period of
/// the control plane (1 s), the time by which tables are made ahead, and some time for a busy machine.
const LONGEST_GAP_MS: f64 = 6000.0;

#[derive(Debug, Serialize)]
struct WorkerRow {
    reservation: usize,
    worker: &'static str,
    part: &'static str,
    /// Events that it could take in a second.
    capacity: f64,
    /// Events that it told of, and their bytes.
    events: u64,
    bytes: u64,
    /// The highest fill level that it reported; unknown of one that was killed.
    most_fill: Option<f64>,
    lost: u64,
    /// Milliseconds from its death to the last event that was sent to it; `None` if it was not killed.
    gap_ms: Option<f64>,
    verified: bool,
}

#[derive(Debug, Serialize)]
struct Event {
    sender: u16,
    event: u64,
    tick: u64,
}

/// The events with one outcome.
#[derive(Debug, Serialize)]
struct OutcomeRow {
    reservation: usize,
    #[serde(rename = "fate")]
    outcome: SentEventOutcome,
    events: u64,
    /// All of them; empty for events that came whole.
    list: Vec<Event>,
    verified: bool,
}

/// A condition that has to hold, and the value that shows it.
#[derive(Debug, Serialize)]
struct Check {
    what: String,
    value: String,
    verified: bool,
}

#[derive(Debug, Serialize)]
struct Reservation {
    reservation: usize,
    ip: &'static str,
    workers: Vec<&'static str>,
    seconds: Vec<Second>,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    workers: Vec<WorkerRow>,
    #[serde(rename = "fates")]
    outcomes: Vec<OutcomeRow>,
    shares: Vec<Reservation>,
    checks: Vec<Check>,
    verified: bool,
}

impl Report {
    /// `first`: the tick at which the senders began. `daemon_outage`: the ticks at which the control plane was dead and ready
    /// again, if it was killed.
    pub(super) fn new(first: u64, teams: &[EndedTeam], daemon_outage: Option<(u64, u64)>) -> Self {
        let (mut workers, mut outcomes, mut shares, mut checks) = (vec![], vec![], vec![], vec![]);
        for (n, team) in teams.iter().enumerate() {
            let sent = determine(team);
            let seconds = seconds(first, team, &sent);
            workers.extend((0..team.workers.len()).map(|worker| worker_row(n, team, worker, &sent)));
            outcomes.extend(outcome_rows(n, team, &sent));
            checks.extend(check(first, team, &sent, &seconds, daemon_outage));
            let ip = if team.from.is_ipv6() { "IPv6" } else { "IPv4" };
            let names = team.workers.iter().map(|worker| worker.name).collect();
            shares.push(Reservation { reservation: n, ip, workers: names, seconds });
        }
        let verified = workers.iter().all(|row| row.verified)
            && outcomes.iter().all(|row| row.verified)
            && checks.iter().all(|row| row.verified);
        Self { workers, outcomes, shares, checks, verified }
    }
}

impl DemoReport for Report {
    fn verified(&self) -> bool {
        self.verified
    }

    fn print(&self, table: &TextTable) -> anyhow::Result<()> {
        for of in &self.shares {
            table.line(&format!("shares by {}, events of each second", of.ip))?;
            table.line(&plot(of))?;
        }
        let head = ["worker", "by", "it", "could take", "took", "bytes", "most fill", "lost", "verified"];
        let rows = self.workers.iter().map(|row| {
            let fill = row.most_fill.map_or("-".into(), |fill| format!("{:.0} %", fill * 100.0));
            vec![
                row.worker.into(),
                self.shares[row.reservation].ip.into(),
                row.part.into(),
                format!("{:.0}/s", row.capacity),
                row.events.to_string(),
                show::bytes(row.bytes),
                fill,
                row.lost.to_string(),
                yes(row.verified),
            ]
        });
        table.line(&TextTable::of(head, rows))?;
        let rows = self.outcomes.iter().map(|row| {
            let by = self.shares[row.reservation].ip.to_owned();
            vec![row.outcome.text().into(), by, row.events.to_string(), listed(&row.list), yes(row.verified)]
        });
        table.line(&TextTable::of(["events", "by", "", "sender:number@tick", "verified"], rows))?;
        let rows = self.checks.iter().map(|row| vec![row.what.clone(), row.value.clone(), yes(row.verified)]);
        table.line(&TextTable::of(["also", "", "verified"], rows))
    }
}

/// The first events of a list and its last one, as text.
fn listed(list: &[Event]) -> String {
    let text = |of: &Event| format!("{}:{}@{}", of.sender, of.event, of.tick);
    let first: Vec<_> = list.iter().take(SHOWN).map(text).collect();
    let last = list.last().filter(|_| list.len() > SHOWN).map(|of| format!(" .. {}", text(of)));
    first.join(" ") + &last.unwrap_or_default()
}

/// A line for each second: a bar of 50 letters, in which each worker has as many of its first letter as it has of the events, and
/// the shares in percent.
fn plot(of: &Reservation) -> String {
    const WIDTH: u64 = 50;
    let mut all = Vec::new();
    for second in of.seconds.iter().filter(|second| second.total() > 0) {
        let (total, mut bar, mut until) = (second.total(), String::new(), 0);
        for (name, &events) in of.workers.iter().zip(&second.events) {
            until += events;
            let letter = name.chars().next().unwrap_or('?');
            let to = (until * WIDTH / total) as usize;
            bar.extend(std::iter::repeat_n(letter, to.saturating_sub(bar.len())));
        }
        let part = |(name, events): (&&str, &u64)| format!("{name} {:2} %", events * 100 / total);
        let parts: Vec<_> = of.workers.iter().zip(&second.events).map(part).collect();
        all.push(format!("{:3} s {bar:50} {}", second.second, parts.join("  ")));
    }
    all.join("\n")
}

/// Events that were sent to a worker and that it did not tell of.
fn losses(sent: &[SentEvent], worker: usize) -> impl Iterator<Item = &SentEvent> {
    use SentEventOutcome::{HeldByKilled, SentToKilled, Unexplained};
    let is_lost = |outcome: SentEventOutcome| matches!(outcome, HeldByKilled | SentToKilled | Unexplained);
    sent.iter().filter(move |of| of.worker == Some(worker) && is_lost(of.outcome))
}

/// Milliseconds from a worker's death to the last event that was sent to it; 0 if none was.
fn gap_ms(sent: &[SentEvent], worker: usize, killed: u64) -> f64 {
    let last = losses(sent, worker).map(|of| of.tick).max();
    last.map_or(0.0, |last| last.saturating_sub(killed) as f64 * 1e-3)
}

fn worker_row(reservation: usize, team: &EndedTeam, worker: usize, sent: &[SentEvent]) -> WorkerRow {
    let of = &team.workers[worker];
    let (events, sums) = (of.ended.events.len() as u64, of.ended.sums.as_ref());
    let lost = losses(sent, worker).count() as u64;
    let gap = |killed: u64| gap_ms(sent, worker, killed);
    let is_complete = sums.is_some_and(|sums| sums.events == events) && lost == 0;
    let (part, gap_ms, verified) = match of.part {
        Part::Stays => ("stays", None, is_complete),
        Part::Killed(at) => ("is killed", Some(gap(at)), sums.is_none() && gap(at) < LONGEST_GAP_MS),
        Part::Drained => ("drains", None, is_complete && sums.and_then(|sums| sums.drained) == Some(true)),
        Part::Added => ("is added", None, is_complete),
    };
    WorkerRow {
        reservation,
        worker: of.name,
        part,
        capacity: 1.0 / of.each.as_secs_f64(),
        events,
        bytes: of.ended.events.iter().map(|event| event.bytes).sum(),
        most_fill: sums.map(|sums| sums.most_fill),
        lost,
        gap_ms,
        // A worker that got no event shows nothing.
        verified: verified && events > 0,
    }
}

/// A row for each outcome, even if no event has that outcome, so that the rows are always the same. Only the row for an absent
/// data plane is left out if no data plane was killed.
fn outcome_rows(reservation: usize, team: &EndedTeam, sent: &[SentEvent]) -> Vec<OutcomeRow> {
    let row = |outcome: SentEventOutcome| {
        let those = || sent.iter().filter(move |of| of.outcome == outcome);
        let event = |of: &SentEvent| Event { sender: of.data_id, event: of.event, tick: of.tick };
        let list: Vec<_> =
            if outcome == SentEventOutcome::Whole { Vec::new() } else { those().map(event).collect() };
        let events = those().count() as u64;
        let verified = match outcome {
            SentEventOutcome::Whole => events > 0,
            SentEventOutcome::PlaneAway => (events > 0) == team.outage.is_some(),
            _ => !SentEventOutcome::FAULTS.contains(&outcome) || events == 0,
        };
        OutcomeRow { reservation, outcome, events, list, verified }
    };
    let is_shown =
        |outcome: &SentEventOutcome| *outcome != SentEventOutcome::PlaneAway || team.outage.is_some();
    let all =
        [SentEventOutcome::Whole].into_iter().chain(SentEventOutcome::LOSSES).chain(SentEventOutcome::FAULTS);
    all.filter(is_shown).map(row).collect()
}

fn check(
    first: u64,
    team: &EndedTeam,
    sent: &[SentEvent],
    seconds: &[Second],
    daemon_outage: Option<(u64, u64)>,
) -> Vec<Check> {
    let ip = if team.from.is_ipv6() { "IPv6" } else { "IPv4" };
    let mut all = Vec::new();
    let mut check = |what: &str, value: String, verified| {
        all.push(Check { what: format!("{ip}: {what}"), value, verified });
    };
    let at = |name: &str| team.workers.iter().position(|worker| worker.name == name);
    let second = |tick: u64| tick.saturating_sub(first) / 1_000_000;
    let last = seconds.len() as u64;
    let fast = at("fast").unwrap_or_default();
    if let Some(slow) = at("slow") {
        // The share is that of the last whole second before it drained, because by then its speed is known also on a busy
        // machine.
        let until = sent.iter().filter(|of| of.worker == Some(slow)).map(|of| second(of.tick)).max();
        let until = until.unwrap_or(0);
        let range = until.saturating_sub(1)..until;
        let (its, of_fast) = (part(seconds, range.clone(), slow), part(seconds, range, fast));
        let capacity = 1.0 / (team.workers[slow].each.as_secs_f64() * team.rate);
        let value = format!(
            "{:.0} % beside {:.0} %, it can take {:.0} %",
            its * 100.0,
            of_fast * 100.0,
            capacity * 100.0
        );
        check(
            "the slow worker's share is about what it can take, below the fast one's",
            value,
            its > 0.0 && its < of_fast && its < 1.4 * capacity,
        );
        let fill = |n: usize| team.workers[n].ended.sums.as_ref().map_or(0.0, |sums| sums.most_fill);
        let value = format!(
            "{:.0} of {QUEUE} events beside {:.0}",
            fill(slow) * QUEUE as f64,
            fill(fast) * QUEUE as f64
        );
        // The fill level of the fast worker is shown but not checked, because it sometimes rises on a busy machine, too.
        check("the slow worker's fill rose, beside the fast one's", value, fill(slow) > ROSE);
    }
    if let Some(new) = at("new") {
        let begin = sent.iter().filter(|of| of.worker == Some(new)).map(|of| second(of.tick)).min();
        let range = last.saturating_sub(2)..last;
        let (its, of_fast) = (part(seconds, range.clone(), new), part(seconds, range, fast));
        let value = format!(
            "from second {}, {:.0} % at the end beside {:.0} %",
            begin.unwrap_or(0),
            its * 100.0,
            of_fast * 100.0
        );
        check("the new worker has a share, below the fast one's", value, its > 0.0 && its < of_fast);
    }
    for (n, worker) in team.workers.iter().enumerate() {
        let Part::Killed(killed) = worker.part else { continue };
        let gap = gap_ms(sent, n, killed);
        check("from the death to the last event sent there", format!("{gap:.0} ms"), gap < LONGEST_GAP_MS);
    }
    let keys: HashSet<_> = team.sent.iter().flat_map(|of| &of.events).map(EventLine::key).collect();
    let came = team.workers.iter().flat_map(|worker| &worker.ended.events);
    let strange = came.filter(|of| !keys.contains(&of.key())).count();
    check("events that came and that no sender sent", strange.to_string(), strange == 0);
    let drops: Vec<_> = team.drops.iter().map(|(cause, n)| format!("{n} {cause}")).collect();
    let value = if drops.is_empty() { "none".into() } else { drops.join(", ") };
    check("packets that the data plane dropped", value, drops.is_empty() || team.outage.is_some());
    let sums = || team.workers.iter().filter_map(|worker| worker.ended.sums.as_ref());
    let of_sums = |of: fn(&Sums) -> u64| sums().map(of).sum::<u64>();
    let sets = team.tables.sets(team.of.lb) + team.outage.as_ref().map_or(0, |of| of.before.sets(team.of.lb));
    check("tables that were seen", sets.to_string(), sets > 2);
    if let Some((killed, ready)) = daemon_outage {
        let within = sent.iter().filter(|of| (killed..ready).contains(&of.tick));
        let (whole, all) = within.fold((0, 0), |(whole, all), of| {
            (whole + u64::from(of.outcome == SentEventOutcome::Whole), all + 1)
        });
        let value = format!("{whole} of {all} in {:.0} ms", (ready - killed) as f64 * 1e-3);
        check("events came while the control plane was away", value, all > 0 && whole == all);
        let again = of_sums(|sums| sums.registered_again);
        check("workers that had to register again", again.to_string(), again == 0);
    }
    if let Some(outage) = &team.outage {
        let away = || sent.iter().filter(|of| of.outcome == SentEventOutcome::PlaneAway).map(|of| of.tick);
        let back = away().max().unwrap_or(outage.killed).saturating_sub(outage.ready) as f64 * 1e-3;
        check(
            "from the data plane's start to the last event lost there",
            format!("{back:.0} ms"),
            back < 3000.0,
        );
        let came_after = |of: &&SentEvent| of.tick > outage.ready && of.outcome == SentEventOutcome::Whole;
        let after = sent.iter().filter(came_after).count();
        check("events that came through it afterwards", after.to_string(), after > 0);
    } else {
        let incomplete = of_sums(|sums| sums.incomplete);
        check("events incomplete at workers that live", incomplete.to_string(), incomplete == 0);
    }
    all
}

/// The events of a reservation in one second: how many each worker got or should have got, in the order of the workers.
#[derive(Clone, Debug, Serialize)]
struct Second {
    second: u64,
    events: Vec<u64>,
}

impl Second {
    fn total(&self) -> u64 {
        self.events.iter().sum()
    }
}

/// Counts the events of each second since the tick `first`.
fn seconds(first: u64, team: &EndedTeam, sent: &[SentEvent]) -> Vec<Second> {
    let mut all = Vec::<Second>::new();
    for of in sent {
        let second = of.tick.saturating_sub(first) / 1_000_000;
        while all.len() as u64 <= second {
            all.push(Second { second: all.len() as u64, events: vec![0; team.workers.len()] });
        }
        if let Some(n) = of.worker {
            all[second as usize].events[n] += 1;
        }
    }
    all
}

/// The share, 0 to 1, of a worker in a range of seconds; 0 if there were no events.
fn part(seconds: &[Second], range: std::ops::Range<u64>, worker: usize) -> f64 {
    let within = || seconds.iter().filter(|of| range.contains(&of.second));
    let (its, all) =
        (within().map(|of| of.events[worker]).sum::<u64>(), within().map(Second::total).sum::<u64>());
    its as f64 / all.max(1) as f64
}
