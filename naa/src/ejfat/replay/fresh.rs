//! Replaces the ticks of a capture by present ones, because the load balancer chooses its tables by the tick, and the
//! capture's ticks are in the past.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ejfat::{
    segment::Ticks,
    wire::{LbHeader, Select, SyncHeader},
};

use crate::ejfat::capture::Kind;

/// The number of ticks that are remembered; older ones are forgotten. Far fewer events are under way at once.
const REMEMBERED: usize = 1 << 16;

#[derive(Default)]
pub(super) struct FreshTicks {
    ticks: Ticks,
    /// New ticks by the capture's ticks.
    known: HashMap<u64, u64>,
    order: VecDeque<u64>,
}

impl FreshTicks {
    /// Forgets all ticks when the capture begins again, because the same ticks then belong to new events.
    pub(super) fn begin(&mut self) {
        self.known.clear();
        self.order.clear();
    }

    pub(super) fn rewrite(&mut self, kind: &Kind, datagram: &mut [u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match kind {
            Kind::Segment(segment) => {
                let Some(lb) = segment.lb else { return };
                let lb = self.header(lb, now);
                datagram[..LbHeader::LEN].copy_from_slice(&lb.encode());
            }
            Kind::Sync(sync) => {
                let (tick, unix_nanos) = (now.as_micros() as u64, now.as_nanos() as u64);
                datagram.copy_from_slice(&SyncHeader { tick, unix_nanos, ..*sync }.encode());
            }
            Kind::Malformed | Kind::Other => {}
        }
    }

    fn header(&mut self, lb: LbHeader, now: Duration) -> LbHeader {
        let tick = self.tick(lb.tick, now.as_micros() as u64);
        let select = match lb.select {
            // E2SAR takes the slot from the tick, so the new slot is that of the new tick.
            Select::V3 { slot, port } if slot == lb.tick as u16 => Select::V3 { slot: tick as u16, port },
            select => select,
        };
        LbHeader { select, tick, ..lb }
    }

    fn tick(&mut self, old: u64, now: u64) -> u64 {
        if let Some(&tick) = self.known.get(&old) {
            return tick;
        }
        if self.order.len() == REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let tick = self.ticks.next(now);
        self.known.insert(old, tick);
        self.order.push_back(old);
        tick
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ticks_stay_equal_and_others_differ() {
        let mut fresh = FreshTicks::default();
        let now = Duration::from_micros(1_000_000);
        let header = |select, tick| LbHeader { select, protocol: LbHeader::REASSEMBLY, tick };
        let own = header(Select::V3 { slot: 7, port: 9 }, 0x1_0007);
        let first = fresh.header(own, now);
        assert_eq!(first, header(Select::V3 { slot: 1_000_000_u64 as u16, port: 9 }, 1_000_000));
        assert_eq!(fresh.header(header(Select::V2 { entropy: 3 }, 8), now).tick, 1_000_001);
        assert_eq!(fresh.header(own, Duration::from_secs(5)), first);
        let chosen = header(Select::V3 { slot: 8, port: 9 }, 0x1_0007);
        assert_eq!(fresh.header(chosen, now).select, chosen.select, "a slot of its own stays");
        fresh.begin();
        assert_ne!(fresh.header(own, now).tick, first.tick);
    }
}
