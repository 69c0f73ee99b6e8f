//! Events that are lost because they are longer than the bridge accepts, or longer than the rings of workers.

use std::{collections::VecDeque, net::IpAddr, ops::Range, time::Duration};

use ejfat::{
    Time,
    bridge::{EventLossCause, WorkerId},
    reassembly::{Config, EventKey},
    wire::{LbHeader, ReHeader},
};

use super::Bridge;

/// The maximum number of events in [`TooLong::recent`], which is the list by which each event is counted only once.
const MOST: usize = 64;

/// Counts the events that are longer than the bridge accepts. All segments of an event that is longer than the bridge
/// accepts are dropped.
#[derive(Debug, Default)]
pub(super) struct TooLong {
    /// A list of at most [`MOST`] events that were recently counted as too long. New events are added at the
    /// front. Each event is stored as the address of its sender, its event key, and the time of its last
    /// segment.
    recent: VecDeque<(IpAddr, EventKey, Time)>,
    events: u64,
}

impl TooLong {
    /// Returns the number of events that were too long. If the segments of more than [`MOST`] such events arrive
    /// interleaved, some of these events are counted several times.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// Adds the event of a segment to the number of events that are too long, unless this event was counted already. A
    /// segment belongs to a new event if at least `timeout` has passed since the last segment with the same sender and
    /// event key.
    fn segment(&mut self, now: Time, source: IpAddr, name: EventKey, timeout: Duration) {
        let known = self.recent.iter_mut().find(|(from, its, _)| *from == source && *its == name);
        match known {
            Some((.., last)) if now < *last + timeout => *last = now,
            Some((.., last)) => {
                *last = now;
                self.events += 1;
            }
            None => {
                self.events += 1;
                self.recent.truncate(MOST - 1);
                self.recent.push_front((source, name, now));
            }
        }
    }
}

/// The state that prevents repeated log records about events that are too long.
#[derive(Debug, Default)]
pub(super) struct LoggedLengths {
    /// True if the warning that advises raising `--max-event` was logged already.
    of_max_event: bool,
    /// The number of events that were lost as [`EventLossCause::TooLarge`] before the last call of `log_small_rings`.
    too_large: u64,
    /// The subscribed workers that were logged because their rings are too small.
    rings: Vec<WorkerId>,
}

impl Bridge {
    /// Counts the event of a segment that was dropped because the event is longer than the bridge accepts.
    pub(super) fn too_long(&mut self, now: Time, source: IpAddr, buffer: u32, at: Range<usize>) {
        let datagram = &self.intake.buffers.bytes(buffer)[at];
        let Config { versions, timeout, max_event, .. } = *self.intake.reassembler.config();
        let segment = if LbHeader::leads(datagram) { datagram.get(LbHeader::LEN..) } else { Some(datagram) };
        let Some(Ok((header, _))) = segment.map(|segment| ReHeader::decode(segment, versions)) else {
            return;
        };
        let ReHeader { event, data_id, length, .. } = header;
        self.too_long.segment(now, source, EventKey { event, data_id }, timeout);
        if !std::mem::replace(&mut self.logged_lengths.of_max_event, true) {
            tracing::warn!(
                "event {event} of data id {data_id} from {source} is lost, as are all that are too long: it has {length} bytes, \
                 and the bridge takes {max_event} bytes at most; raise --max-event"
            );
        }
    }

    /// Logs each worker whose ring is shorter than the longest event that was lost as [`EventLossCause::TooLarge`]. An
    /// event is lost as `TooLarge` if it is longer than the ring of every worker that may get the event. Each worker is
    /// logged only once. The function checks the rings only if another event was lost as `TooLarge` since the last call
    /// of this function.
    pub(super) fn log_small_rings(&mut self) {
        let (counters, logged) = (self.dispatcher.counters(), &mut self.logged_lengths);
        let lost = counters.lost(EventLossCause::TooLarge);
        if lost == std::mem::replace(&mut logged.too_large, lost) {
            return;
        }
        let longest = counters.longest_too_large;
        let before = std::mem::take(&mut logged.rings);
        for its in self.dispatcher.workers() {
            let ring = u64::from(its.slots) * u64::from(its.slot_bytes);
            if ring >= longest.into() {
                continue;
            }
            logged.rings.push(its.id);
            if !before.contains(&its.id) {
                tracing::warn!(
                    worker = its.id.number(),
                    name = its.name.as_str(),
                    "events are lost that are too long for rings, and this worker's ring may be one of these: it has {ring} bytes ({} \
                     slots of {}), and the longest such event has {longest}; if this worker is to get such events, subscribe with more \
                     or larger slots (`naa events --slots --slot-bytes`)",
                    its.slots,
                    its.slot_bytes
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(500);

    fn count(too_long: &mut TooLong, at_ms: u64, event: u64) -> u64 {
        let source = IpAddr::from([127, 0, 0, 1]);
        too_long.segment(Time(at_ms * 1_000_000), source, EventKey { event, data_id: 1 }, TIMEOUT);
        too_long.events()
    }

    #[test]
    fn an_event_counts_once_and_its_name_again_after_a_rest() {
        let mut too_long = TooLong::default();
        assert_eq!((0..1000).map(|at| count(&mut too_long, at, 7)).max(), Some(1));
        assert_eq!(count(&mut too_long, 1000, 8), 2);
        assert_eq!(count(&mut too_long, 1001, 7), 2);
        assert_eq!(count(&mut too_long, 1600, 7), 3);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut too_long = TooLong::default();
        for event in 0..10_000 {
            assert_eq!(count(&mut too_long, 0, event), event + 1);
        }
        assert_eq!(too_long.recent.len(), MOST);
    }
}
