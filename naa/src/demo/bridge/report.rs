//! Compares what was sent with what came, and asks the bridge about all other events.

use naa_measure::TextTable;
use proto::events::v1::BridgeStatus;
use serde::Serialize;

use super::nodes::{Bridge, Ready};
use crate::{
    demo::{
        nodes::{Came, Ended, EventLine, came},
        report::{DemoReport, Sum, print_overflows, streams, yes},
    },
    show,
};

/// A sender's events.
#[derive(Debug, Default, Serialize)]
struct Row {
    /// The sender's data id, or the first one if it has several.
    sender: u16,
    streams: usize,
    events: u64,
    bytes: u64,
    segments: u64,
    /// Events that one worker took with the digest with which they were sent.
    taken: u64,
    /// Events that several workers took, or one worker several times.
    repeated: u64,
    /// Events with other bytes than were sent.
    wrong: u64,
    missing: u64,
    verified: bool,
}

#[derive(Debug, Serialize)]
struct WorkerRow {
    worker: &'static str,
    placing: String,
    killed: bool,
    /// Events that the worker printed.
    taken: u64,
    bytes: u64,
    /// Events that the bridge counted as sent to the worker; unknown if the worker ended.
    sent: Option<u64>,
    given_back: Option<u64>,
    verified: bool,
}

/// Events that were not delivered, by cause.
#[derive(Debug, Default, Serialize)]
struct LossRow {
    cause: String,
    /// Events that the bridge counted.
    counted: u64,
    /// Events that no worker took, and whose trace in the bridge has this cause.
    missing: u64,
    /// Events that the killed worker printed before the bridge had its credit.
    taken: u64,
    verified: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    stage: &'static str,
    seconds: f64,
    rows: Vec<Row>,
    workers: Vec<WorkerRow>,
    losses: Vec<LossRow>,
    sums: Vec<Sum>,
    /// Datagrams that found the bridge's receive buffers full.
    kernel_drops: u64,
    verified: bool,
}

/// A worker that ended.
#[derive(Debug)]
pub(super) struct EndedWorker {
    pub(super) name: &'static str,
    pub(super) ready: Ready,
    pub(super) ended: Ended,
}

#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) sent: Vec<Ended>,
    pub(super) live: Vec<EndedWorker>,
    pub(super) killed: EndedWorker,
    pub(super) status: BridgeStatus,
}

const HELD: &str = "held_by_ended";
const INCOMPLETE: &str = "incomplete";
/// Neither the bridge nor a worker knows anything of the event.
const UNKNOWN: &str = "unknown";

impl Report {
    /// Makes the report. It asks the bridge for the outcome of each event that no worker took, and of the last events of
    /// the killed worker.
    pub(super) fn new(
        stage: &'static str,
        seconds: f64,
        gathered: Gathered,
        bridge: &Bridge,
    ) -> anyhow::Result<Self> {
        let Gathered { sent, live, killed, status } = &gathered;
        let came = came(live.iter().chain([killed]).map(|worker| &worker.ended.events));
        let rows: Vec<_> = sent.iter().map(|ended| row(ended, &came)).collect();
        let mut workers: Vec<_> = live.iter().map(|worker| worker_row(worker, status)).collect();
        workers.insert(1, killed_row(killed, &workers, status));
        let losses = losses(&gathered, &came, bridge)?;
        let sums = sums(&gathered, &rows, &losses);
        let verified = rows.iter().all(|row| row.verified)
            && workers.iter().all(|row| row.verified)
            && losses.iter().all(|row| row.verified)
            && sums.iter().all(|sum| sum.verified);
        let kernel_drops = status.kernel_drops;
        Ok(Self { stage, seconds, rows, workers, losses, sums, kernel_drops, verified })
    }
}

impl DemoReport for Report {
    fn verified(&self) -> bool {
        self.verified
    }

    fn print(&self, table: &TextTable) -> anyhow::Result<()> {
        let number = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let head = [
            "sender", "streams", "events", "bytes", "segments", "taken", "repeated", "wrong", "missing",
            "verified",
        ];
        let rows = self.rows.iter().map(|row| {
            let Row { sender, streams, events, segments, taken, repeated, wrong, missing, .. } = row;
            let mut cells =
                vec![sender.to_string(), streams.to_string(), events.to_string(), show::bytes(row.bytes)];
            cells.extend([segments, taken, repeated, wrong, missing].map(ToString::to_string));
            cells.push(yes(row.verified));
            cells
        });
        table.line(&TextTable::of(head, rows))?;
        let head = ["worker that", "placing", "taken", "bytes", "sent to it", "given back", "verified"];
        let rows = self.workers.iter().map(|row| {
            let (taken, bytes) = (row.taken.to_string(), show::bytes(row.bytes));
            let (sent, back) = (number(row.sent), number(row.given_back));
            vec![row.worker.to_owned(), row.placing.clone(), taken, bytes, sent, back, yes(row.verified)]
        });
        table.line(&TextTable::of(head, rows))?;
        let head = ["ended at the bridge as", "counted", "of them missing", "taken before", "verified"];
        let shown = |row: &&LossRow| row.counted + row.missing + row.taken > 0 || !row.verified;
        let rows = self.losses.iter().filter(shown).map(|row| {
            let numbers = [row.counted, row.missing, row.taken].map(|n| n.to_string());
            let mut cells = vec![row.cause.clone()];
            cells.extend(numbers);
            cells.push(yes(row.verified));
            cells
        });
        table.line(&TextTable::of(head, rows))?;
        Sum::print(&self.sums, table)?;
        let (events, bytes) = self.workers.iter().fold((0, 0), |(e, b), row| (e + row.taken, b + row.bytes));
        let rate = show::rate(bytes, std::time::Duration::from_secs_f64(self.seconds));
        table.line(&format!("{events} events taken in {:.1} s, {rate}", self.seconds))?;
        print_overflows(table, (self.kernel_drops, "datagrams"), "bridge")
    }
}

fn row(ended: &Ended, came: &Came<'_>) -> Row {
    let sums = ended.sums.clone().unwrap_or_default();
    let (sender, streams) = streams(ended);
    let mut row = Row { sender, streams, segments: sums.segments, ..Row::default() };
    for event in &ended.events {
        row.events += 1;
        row.bytes += event.bytes;
        match came.get(&event.key()).map(Vec::as_slice) {
            None => row.missing += 1,
            Some([(_, one)]) if *one == event => row.taken += 1,
            Some([_]) => row.wrong += 1,
            Some(_) => row.repeated += 1,
        }
    }
    row.verified = row.taken + row.missing == row.events && row.events == sums.events;
    row
}

fn taken(worker: &EndedWorker) -> (u64, u64) {
    let events = &worker.ended.events;
    (events.len() as u64, events.iter().map(|event| event.bytes).sum())
}

fn worker_row(worker: &EndedWorker, status: &BridgeStatus) -> WorkerRow {
    let of_bridge = status.workers.iter().find(|its| its.worker == worker.ready.worker);
    let (sent, given_back) = (of_bridge.map(|its| its.sent), of_bridge.map(|its| its.released));
    let (taken, bytes) = taken(worker);
    let printed = worker.ended.sums.as_ref().map(|sums| sums.events);
    let same = [sent, given_back, printed].into_iter().all(|count| count == Some(taken));
    let (placing, name) = (worker.ready.placing.clone(), worker.name);
    // The worker must have taken at least one event.
    let verified = same && taken > 0;
    WorkerRow { worker: name, placing, killed: false, taken, bytes, sent, given_back, verified }
}

/// The row of the killed worker. The bridge sent to it all events that the other workers did not get. The worker must not
/// have printed more events than these, and not fewer than it released.
fn killed_row(worker: &EndedWorker, others: &[WorkerRow], status: &BridgeStatus) -> WorkerRow {
    let total = |of: fn(&WorkerRow) -> Option<u64>| others.iter().filter_map(of).sum::<u64>();
    let sent = status.sent.checked_sub(total(|row| row.sent));
    let given_back = status.released.checked_sub(total(|row| row.given_back));
    let (taken, bytes) = taken(worker);
    let verified =
        given_back.is_some_and(|back| back <= taken) && sent.is_some_and(|sent| taken <= sent) && taken > 0;
    let (placing, name) = (worker.ready.placing.clone(), worker.name);
    WorkerRow { worker: name, placing, killed: true, taken, bytes, sent, given_back, verified }
}

/// A row for each outcome of an event other than delivery, even if no event has that outcome, so that the rows are always
/// the same.
fn losses(gathered: &Gathered, came: &Came<'_>, bridge: &Bridge) -> anyhow::Result<Vec<LossRow>> {
    let status = &gathered.status;
    let mut counted: Vec<_> = status.lost.iter().map(|(cause, count)| (cause.clone(), *count)).collect();
    counted.sort();
    let others = [(HELD, status.held_by_ended), (INCOMPLETE, status.incomplete), (UNKNOWN, 0)];
    counted.splice(0..0, others.map(|(cause, count)| (cause.to_owned(), count)));
    let mut rows: Vec<_> = counted
        .into_iter()
        .map(|(cause, counted)| LossRow { cause, counted, ..LossRow::default() })
        .collect();
    let mut ended = |event: &EventLine, is_missing: bool| -> anyhow::Result<()> {
        let fate = bridge.trace(event)?.map_or(UNKNOWN.to_owned(), |event| event.fate);
        let row = match rows.iter_mut().find(|row| row.cause == fate) {
            Some(row) => row,
            // It is one of the last events of the killed worker, which released it.
            None if !is_missing => return Ok(()),
            None => {
                rows.push(LossRow { cause: fate, ..LossRow::default() });
                rows.last_mut().expect("it was pushed")
            }
        };
        if is_missing {
            row.missing += 1
        } else {
            row.taken += 1
        }
        Ok(())
    };
    let all = gathered.sent.iter().flat_map(|sender| &sender.events);
    for event in all.filter(|event| !came.contains_key(&event.key())) {
        ended(event, true)?;
    }
    // The killed worker held at most as many events as its ring has slots.
    let of_killed = &gathered.killed.ended.events;
    for event in of_killed.iter().rev().take(super::nodes::SLOTS as usize) {
        ended(event, false)?;
    }
    rows.iter_mut().for_each(|row| row.verified = row.counted == row.missing + row.taken);
    Ok(rows)
}

fn sums(gathered: &Gathered, rows: &[Row], losses: &[LossRow]) -> Vec<Sum> {
    let Gathered { sent, status, .. } = gathered;
    let sender_sums = || sent.iter().filter_map(|ended| ended.sums.as_ref());
    let segments = status.reassembly.as_ref().map_or(0, |counters| counters.segments);
    let evicted = status.reassembly.as_ref().map_or(0, |counters| counters.evicted);
    let lost: u64 = status.lost.values().sum();
    let events = sender_sums().map(|sums| sums.events).sum();
    let mut all = Vec::new();
    let mut sum = |what, left, right| all.push(Sum::new(what, left, right));
    let sent_segments = sender_sums().map(|sums| sums.segments).sum();
    sum("segments sent = received, or dropped by the kernel", sent_segments, segments + status.kernel_drops);
    sum("events sent = opened by the bridge", events, status.opened);
    sum("opened = to workers + incomplete + lost", status.opened, status.sent + status.incomplete + lost);
    sum("events evicted = none", evicted, 0);
    sum(
        "to workers = given back + held by the killed one",
        status.sent,
        status.released + status.held_by_ended,
    );
    let of_rows = |of: fn(&Row) -> u64| rows.iter().map(of).sum::<u64>();
    let counted = losses.iter().map(|row| row.counted - row.taken.min(row.counted)).sum::<u64>();
    sum("events sent = taken by workers + counted as lost", events, of_rows(|row| row.taken) + counted);
    sum("missing = counted as lost", of_rows(|row| row.missing), counted);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::nodes::Sums;

    fn line(event: u64, sha256: &str) -> EventLine {
        EventLine { data_id: 1, event, bytes: 10, sha256: sha256.into(), tick: event }
    }

    fn ended(events: Vec<EventLine>) -> Ended {
        let sums = Sums { events: events.len() as u64, ..Sums::default() };
        Ended { events, sums: Some(sums) }
    }

    #[test]
    fn only_whole_events_that_came_once_are_taken() {
        let sent = ended(vec![line(0, "a"), line(1, "b"), line(2, "c"), line(3, "d")]);
        let right = vec![line(0, "a"), line(1, "b"), line(2, "c")];
        let got = row(&sent, &came([&right]));
        assert_eq!((got.taken, got.missing, got.verified), (3, 1, true));
        let wrong = vec![line(0, "a"), line(1, "x")];
        let got = row(&sent, &came([&wrong]));
        assert_eq!((got.taken, got.wrong, got.missing, got.verified), (1, 1, 2, false));
        let twice = vec![line(0, "a"), line(0, "a")];
        let got = row(&sent, &came([&twice]));
        assert_eq!((got.taken, got.repeated, got.verified), (0, 1, false));
    }

    #[test]
    fn a_killed_worker_told_no_more_than_it_got_and_no_less_than_it_gave_back() {
        let ready = Ready { worker: 2, placing: "store".into() };
        let events = (0..5).map(|event| line(event, "a")).collect();
        let killed = EndedWorker { name: "is killed", ready, ended: Ended { events, sums: None } };
        for (sent, released, verified) in [(7, 5, true), (5, 4, true), (4, 4, false), (7, 6, false)] {
            let status = BridgeStatus { sent, released, ..BridgeStatus::default() };
            assert_eq!(killed_row(&killed, &[], &status).verified, verified, "{sent} {released}");
        }
    }
}
