//! What a bridge tells others.

use std::time::Duration;

use ejfat::{Time, bridge::WorkerId};

use super::Bridge;
use crate::{Level, Snapshot, WorkerReport, ring::Way};

impl Bridge {
    pub(super) fn tell(&mut self, now: Time) {
        let peer = |worker: WorkerId| match &self.rings.get(worker.at())?.as_ref()?.1.way {
            Way::Remote(remote) => Some(remote.stream().peer),
            Way::Shared(_) => None,
        };
        let workers = self.dispatcher.workers().map(|its| WorkerReport {
            level: level(&its),
            placing: its.placing.name(),
            peer: peer(its.id),
            slots: its.slots,
            slot_bytes: its.slot_bytes,
            in_use: its.in_use,
            outstanding: its.outstanding,
            sent: its.sent,
            bytes: its.bytes,
            released: its.released,
            wrong_credits: its.wrong_credits,
            seconds: Duration::from_nanos(now.0.saturating_sub(its.since.0)).as_secs_f64(),
        });
        let ports = self.intake.ports.counters().unwrap_or_default();
        let snapshot = Snapshot {
            workers: workers.collect(),
            reassembly: self.intake.reassembler.counters().clone(),
            events: self.dispatcher.counters().clone(),
            waiting: self.dispatcher.waiting(),
            memory: self.intake.reassembler.touched_memory(),
            kernel_drops: ports.iter().map(|port| port.kernel_drops).sum(),
            ports,
            fill: self.dispatcher.fill(),
            refused: self.refused + self.listener.as_ref().map_or(0, |listener| listener.refused),
            failed: self.failed.clone(),
            now,
        };
        self.desk.put(snapshot);
    }
}

pub(super) fn level(its: &ejfat::bridge::WorkerStats<'_>) -> Level {
    Level {
        worker: its.id.number(),
        name: its.name.to_owned(),
        member: its.filter.member,
        fill: its.fill,
        stalled: its.stalled,
    }
}
