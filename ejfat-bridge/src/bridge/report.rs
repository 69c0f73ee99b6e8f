//! Makes the snapshots of a bridge that [`BridgeHandle::snapshot`](crate::BridgeHandle::snapshot) returns.

use std::time::Duration;

use ejfat::{Time, bridge::WorkerId};

use super::Bridge;
use crate::{Load, Snapshot, WorkerReport, ring::RingTransport};

/// The time between two reports of the counters of each port. Each report reads the counters of all ports. There may be
/// thousands of ports, so the time between two reports is long.
const PORTS_PERIOD: Duration = Duration::from_secs(1);

impl Bridge {
    pub(super) fn report(&mut self, now: Time) {
        let peer = |worker: WorkerId| match &self.rings.get(worker.at())?.as_ref()?.1.transport {
            RingTransport::Rdma(remote) => Some(remote.stream().peer),
            RingTransport::Shared(_) => None,
        };
        let workers = self.dispatcher.workers().map(|stats| WorkerReport {
            stats,
            peer: peer(stats.id),
            seconds: Duration::from_nanos(now.0.saturating_sub(stats.since.0)).as_secs_f64(),
        });
        let ports = &self.intake.ports;
        let drops = if self.finishing { ports.all_kernel_drops() } else { ports.kernel_drops() };
        if self.finishing || now >= self.next_ports {
            self.next_ports = now + PORTS_PERIOD;
            self.ports = ports.counters().into();
        }
        let snapshot = Snapshot {
            lost_with_workers: self.lost_with_workers(),
            too_long: self.too_long.events(),
            workers: workers.collect(),
            reassembly: self.intake.reassembler.counters().clone(),
            events: self.dispatcher.counters().clone(),
            waiting: self.dispatcher.waiting(),
            waiting_again: self.dispatcher.waiting_for_redelivery(),
            load: Load::of(&self.dispatcher, &self.intake.reassembler, self.too_long.events()),
            memory: self.intake.reassembler.touched_memory(),
            kernel_drops: drops.unwrap_or(0),
            ports: self.ports.clone(),
            fill: self.dispatcher.fill(),
            refused: self.refused + self.listener.as_ref().map_or(0, |listener| listener.refused),
            failed: self.failed.clone(),
            now,
        };
        self.queries.put(snapshot);
    }

    fn lost_with_workers(&self) -> u64 {
        let counters = self.dispatcher.counters();
        let not_lost = counters.delivered_again + self.dispatcher.waiting_for_redelivery() as u64 + self.left;
        counters.held_by_ended.saturating_sub(not_lost)
    }
}
