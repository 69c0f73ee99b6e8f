//! Compares what was sent with what came.

use naa_measure::TextTable;
use proto::lb::v1::GetCountersReply as Counters;
use serde::Serialize;

use super::table_changes::{Dealt, TableChanges};
use crate::{
    demo::{
        nodes::{Ended, Environment, Sums, came},
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
    /// Events that came to one worker with the digest with which they were sent.
    delivered: u64,
    /// Events that came to several workers, or several times to one.
    repeated: u64,
    /// Events with other bytes than were sent.
    wrong: u64,
    /// Events that came to another worker than the tables of their tick say.
    misrouted: u64,
    missing: u64,
    verified: bool,
}

#[derive(Debug, Serialize)]
struct WorkerRow {
    worker: usize,
    events: u64,
    segments: u64,
    dropped: u64,
    incomplete: u64,
    evicted: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    stage: &'static str,
    seconds: f64,
    table_changes: u64,
    rows: Vec<Row>,
    workers: Vec<WorkerRow>,
    sums: Vec<Sum>,
    /// Packets that found the load balancer's receive buffer full.
    overflows: u64,
    verified: bool,
}

impl Report {
    pub(super) fn new(
        environment: &Environment,
        seconds: f64,
        table_changes: &TableChanges,
        sent: Vec<Ended>,
        worked: Vec<Ended>,
        counters: &Counters,
    ) -> Self {
        let overflows = counters.overflows;
        let sums = sums(&sent, &worked, counters);
        let rows = rows(&sent, &worked, table_changes.dealt());
        let table_changes = table_changes.changes();
        let workers = worked.iter().enumerate().map(|(worker, ended)| {
            let Sums { events, segments, dropped, incomplete, evicted, .. } = totals(ended);
            WorkerRow { worker, events, segments, dropped, incomplete, evicted }
        });
        let workers = workers.collect();
        let verified = rows.iter().all(|row| row.verified) && sums.iter().all(|sum| sum.verified);
        Self { stage: environment.name(), seconds, table_changes, rows, workers, sums, overflows, verified }
    }
}

impl DemoReport for Report {
    fn verified(&self) -> bool {
        self.verified
    }

    fn print(&self, table: &TextTable) -> anyhow::Result<()> {
        let head = [
            "sender",
            "streams",
            "events",
            "bytes",
            "segments",
            "delivered",
            "misrouted",
            "missing",
            "verified",
        ];
        let rows = self.rows.iter().map(|row| {
            let numbers = [
                row.sender.into(),
                row.streams as u64,
                row.events,
                row.bytes,
                row.segments,
                row.delivered,
                row.misrouted,
                row.missing,
            ];
            let mut cells: Vec<_> = numbers.iter().map(ToString::to_string).collect();
            cells[3] = show::bytes(row.bytes);
            cells.push(yes(row.verified));
            cells
        });
        table.line(&TextTable::of(head, rows))?;
        let rows = self.workers.iter().map(|row| {
            let WorkerRow { worker, events, segments, dropped, incomplete, evicted } = *row;
            [worker as u64, events, segments, dropped, incomplete, evicted]
        });
        let head = ["worker", "events", "segments", "dropped", "incomplete", "evicted"];
        table.line(&TextTable::of(head, rows))?;
        Sum::print(&self.sums, table)?;
        let bytes = self.rows.iter().map(|row| row.bytes).sum();
        let rate = show::rate(bytes, std::time::Duration::from_secs_f64(self.seconds));
        table.line(&format!("{} changes of tables in {:.1} s, {rate}", self.table_changes, self.seconds))?;
        print_overflows(table, (self.overflows, "packets"), "load balancer")
    }
}

fn totals(ended: &Ended) -> Sums {
    ended.sums.clone().unwrap_or_default()
}

fn rows(sent: &[Ended], worked: &[Ended], dealt: &Dealt) -> Vec<Row> {
    let came = came(worked.iter().map(|worker| &worker.events));
    let row = |ended: &Ended| {
        let ((sender, streams), sums) = (streams(ended), totals(ended));
        let mut row = Row { sender, streams, segments: sums.segments, ..Row::default() };
        for event in &ended.events {
            row.events += 1;
            row.bytes += event.bytes;
            match came.get(&event.key()).map(Vec::as_slice) {
                None => row.missing += 1,
                Some([(worker, _)]) if dealt.worker(event.tick) != Some(*worker) => row.misrouted += 1,
                Some([(_, one)]) if one.has_bytes_of(event) => row.delivered += 1,
                Some([_]) => row.wrong += 1,
                Some(_) => row.repeated += 1,
            }
        }
        row.verified = row.delivered == row.events && row.events == sums.events;
        row
    };
    sent.iter().map(row).collect()
}

fn sums(sent: &[Ended], worked: &[Ended], counters: &Counters) -> Vec<Sum> {
    let total = |ended: &[Ended], of: fn(&Sums) -> u64| ended.iter().map(|ended| of(&totals(ended))).sum();
    let received: u64 = counters.lbs.iter().map(|lb| lb.lb_rx_pkt).sum();
    let dropped: u64 = counters.lbs.iter().flat_map(|lb| lb.drops.values()).sum();
    let forwarded: u64 = counters.members.iter().map(|member| member.mbr_tx_pkt).sum();
    let unaddressed = counters.unaddressed.values().sum::<u64>();
    let mut sums = Vec::new();
    let mut sum = |what: &str, left, right| sums.push(Sum::new(what, left, right));
    sum(
        "segments sent = received by the load balancer",
        total(sent, |sums| sums.segments),
        received + counters.overflows + unaddressed,
    );
    sum("received = forwarded + dropped", received, forwarded + dropped);
    for (n, worker) in worked.iter().enumerate() {
        let to_worker = counters.members.iter().filter(|of| of.member as usize == n);
        let to_worker = to_worker.map(|of| of.mbr_tx_pkt).sum();
        sum(&format!("forwarded to worker {n} = received by it"), to_worker, totals(worker).segments);
    }
    let printed = worked.iter().map(|worker| worker.events.len() as u64).sum();
    sum(
        "events sent = complete at workers",
        total(sent, |sums| sums.events),
        total(worked, |sums| sums.events),
    );
    sum("events evicted at workers = none", total(worked, |sums| sums.evicted), 0);
    sum("complete at workers = delivered", total(worked, |sums| sums.events), printed);
    sum(
        "bytes of events = bytes placed",
        sent.iter().flat_map(|sender| &sender.events).map(|event| event.bytes).sum(),
        total(worked, |sums| sums.placed_bytes),
    );
    sums
}
