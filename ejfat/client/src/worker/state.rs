//! What a worker tells of itself.

use std::time::SystemTime;

use proto::loadbalancer::SendStateRequest;

/// A worker's state, at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerState {
    /// The part of its queue that is full, from 0 to 1. What is above is told as 1, and so is what is no number.
    pub fill: f64,
    /// What a controller of the worker's own wants; 0 leaves it to the control plane.
    pub control_signal: f64,
    /// Whether it takes events.
    pub is_ready: bool,
    pub totals: Totals,
}

impl Default for WorkerState {
    fn default() -> Self {
        Self { fill: 0.0, control_signal: 0.0, is_ready: true, totals: Totals::default() }
    }
}

/// What a worker counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of which a segment came.
    pub events: u64,
    pub reassembled: u64,
    /// Given up while they were incomplete.
    pub incomplete: u64,
    /// Taken by the program.
    pub dequeued: u64,
    /// Complete, and lost for want of room.
    pub overflowed: u64,
    pub bytes: u64,
    pub packets: u64,
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl WorkerState {
    /// `now` is of this machine's clock.
    pub(super) fn request(
        &self,
        session: &str,
        lb: &str,
        now: SystemTime,
        may_be_ready: bool,
    ) -> SendStateRequest {
        let Totals { events, reassembled, incomplete, dequeued, overflowed, bytes, packets } = self.totals;
        let fill = if self.fill.is_nan() { 1.0 } else { self.fill.clamp(0.0, 1.0) };
        let control_signal = self.control_signal as f32;
        SendStateRequest {
            session_id: session.to_owned(),
            lb_id: lb.to_owned(),
            timestamp: Some(now.into()),
            fill_percent: fill as f32,
            control_signal: if control_signal.is_finite() { control_signal } else { 0.0 },
            is_ready: self.is_ready && may_be_ready,
            total_events_recv: count(events),
            total_events_reassembled: count(reassembled),
            total_events_reassembly_err: count(incomplete),
            total_events_dequeued: count(dequeued),
            total_event_enqueue_err: count(overflowed),
            total_bytes_recv: count(bytes),
            total_packets_recv: count(packets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_fill_is_it_is_told_within_0_and_1() {
        let told = |fill| {
            let state = WorkerState { fill, ..WorkerState::default() };
            state.request("1", "2", SystemTime::UNIX_EPOCH, true).fill_percent
        };
        for (fill, expected) in [
            (0.25, 0.25),
            (7.5, 1.0),
            (-1.0, 0.0),
            (f64::INFINITY, 1.0),
            (f64::NEG_INFINITY, 0.0),
            (f64::NAN, 1.0),
        ] {
            assert_eq!(told(fill), expected, "{fill}");
        }
    }

    #[test]
    fn a_worker_that_drains_is_not_ready_and_counters_never_wrap() {
        let totals = Totals { bytes: u64::MAX, packets: 3, ..Totals::default() };
        let state = WorkerState { control_signal: f64::INFINITY, totals, ..WorkerState::default() };
        let request = state.request("1", "2", SystemTime::UNIX_EPOCH, false);
        assert!(!request.is_ready);
        assert_eq!((request.total_bytes_recv, request.total_packets_recv), (i64::MAX, 3));
        assert_eq!(request.control_signal, 0.0);
    }
}
