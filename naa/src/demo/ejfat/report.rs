//! Compares what was sent with what came.

use std::collections::{HashMap, HashSet};

use naa_measure::TextTable;
use proto::lb::v1::GetCountersReply as Counters;
use serde::Serialize;

use super::{
    nodes::{Sums, Ticked, Told},
    stage::Stage,
    steer::{Dealt, Steer},
};
use crate::show;

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

/// Two counters that should be the same.
#[derive(Debug, Serialize)]
struct Sum {
    what: String,
    left: u64,
    right: u64,
    verified: bool,
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

type Ended = (Vec<Ticked>, Sums);

impl Report {
    pub(super) fn new(
        stage: &Stage,
        seconds: f64,
        steer: &Steer,
        sent: Vec<Ended>,
        worked: Vec<Ended>,
        counters: &Counters,
    ) -> Self {
        let overflows = counters.overflows;
        let sums = sums(&sent, &worked, counters);
        let rows = rows(&sent, &worked, steer.dealt());
        let table_changes = steer.changes();
        let workers = worked.iter().enumerate().map(|(worker, (_, sums))| {
            let Sums { events, segments, dropped, incomplete, evicted, .. } = *sums;
            WorkerRow { worker, events, segments, dropped, incomplete, evicted }
        });
        let workers = workers.collect();
        let verified = rows.iter().all(|row| row.verified) && sums.iter().all(|sum| sum.verified);
        Self { stage: stage.name(), seconds, table_changes, rows, workers, sums, overflows, verified }
    }

    pub(super) fn verified(&self) -> bool {
        self.verified
    }

    pub(super) fn print(&self, table: &TextTable) -> anyhow::Result<()> {
        let yes = |verified| if verified { "yes" } else { "NO" }.to_owned();
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
        let rows = self
            .sums
            .iter()
            .map(|sum| [sum.what.clone(), sum.left.to_string(), sum.right.to_string(), yes(sum.verified)]);
        table.line(&TextTable::of(["sums", "", "", "verified"], rows))?;
        let bytes = self.rows.iter().map(|row| row.bytes).sum();
        let rate = show::rate(bytes, std::time::Duration::from_secs_f64(self.seconds));
        table.line(&format!("{} changes of tables in {:.1} s, {rate}", self.table_changes, self.seconds))?;
        if self.overflows > 0 {
            table.line(&format!(
                "{} packets found the load balancer's receive buffer full: lower --rate, or raise it with `sysctl \
                 net.core.rmem_max=8388608`",
                self.overflows
            ))?;
        }
        Ok(())
    }
}

fn rows(sent: &[Ended], worked: &[Ended], dealt: &Dealt) -> Vec<Row> {
    let mut came: HashMap<(u16, u64), Vec<(usize, &Told)>> = HashMap::new();
    for (worker, (events, _)) in worked.iter().enumerate() {
        for Ticked { told, .. } in events {
            came.entry((told.data_id, told.event)).or_default().push((worker, told));
        }
    }
    let row = |(events, sums): &Ended| {
        let sender = events.first().map_or(0, |event| event.told.data_id);
        let streams = events.iter().map(|event| event.told.data_id).collect::<HashSet<_>>().len();
        let mut row = Row { sender, streams, segments: sums.segments, ..Row::default() };
        for Ticked { told, tick } in events {
            row.events += 1;
            row.bytes += told.bytes;
            match came.get(&(told.data_id, told.event)).map(Vec::as_slice) {
                None => row.missing += 1,
                Some([(worker, _)]) if dealt.worker(*tick) != Some(*worker) => row.misrouted += 1,
                Some([(_, one)]) if *one == told => row.delivered += 1,
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
    let total = |ended: &[Ended], of: fn(&Sums) -> u64| ended.iter().map(|(_, sums)| of(sums)).sum();
    let received: u64 = counters.lbs.iter().map(|lb| lb.lb_rx_pkt).sum();
    let dropped: u64 = counters.lbs.iter().flat_map(|lb| lb.drops.values()).sum();
    let forwarded: u64 = counters.members.iter().map(|member| member.mbr_tx_pkt).sum();
    let unaddressed = counters.unaddressed.values().sum::<u64>();
    let mut sums = Vec::new();
    let mut sum = |what: &str, left, right| {
        sums.push(Sum { what: what.into(), left, right, verified: left == right });
    };
    sum(
        "segments sent = received by the load balancer",
        total(sent, |sums| sums.segments),
        received + counters.overflows + unaddressed,
    );
    sum("received = forwarded + dropped", received, forwarded + dropped);
    for (n, (_, worker)) in worked.iter().enumerate() {
        let to_worker = counters.members.iter().filter(|of| of.member as usize == n);
        let to_worker = to_worker.map(|of| of.mbr_tx_pkt).sum();
        sum(&format!("forwarded to worker {n} = received by it"), to_worker, worker.segments);
    }
    let told = worked.iter().map(|(events, _)| events.len() as u64).sum();
    sum(
        "events sent = complete at workers",
        total(sent, |sums| sums.events),
        total(worked, |sums| sums.events),
    );
    sum("events evicted at workers = none", total(worked, |sums| sums.evicted), 0);
    sum("complete at workers = delivered", total(worked, |sums| sums.events), told);
    sum(
        "bytes of events = bytes placed",
        sent.iter().flat_map(|(events, _)| events).map(|event| event.told.bytes).sum(),
        total(worked, |sums| sums.placed_bytes),
    );
    sums
}
