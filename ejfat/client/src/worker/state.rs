//! What a worker reports of itself.

use std::time::SystemTime;

use proto::loadbalancer::SendStateRequest;

/// The state of a worker at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerState {
    /// The fill level, from 0 to 1. A value above 1 and NaN are reported as 1, a value below 0 as 0.
    pub fill: f64,
    /// The control signal, if the worker has a controller of its own; 0 leaves the decision to the control plane.
    pub control_signal: f64,
    /// Whether the worker takes new events.
    pub is_ready: bool,
    /// The counters of the worker. A counter above 2^63 - 1 is reported as 2^63 - 1.
    pub totals: Totals,
}

impl Default for WorkerState {
    fn default() -> Self {
        Self { fill: 0.0, control_signal: 0.0, is_ready: true, totals: Totals::default() }
    }
}

/// What a worker has counted since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Events of which at least one segment arrived.
    pub events: u64,
    /// Events that were complete.
    pub reassembled: u64,
    /// Events that were given up while they were incomplete.
    pub incomplete: u64,
    /// Events that the program took.
    pub dequeued: u64,
    /// Events that were complete, and lost because there was no room for them.
    pub overflowed: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// All segments.
    pub packets: u64,
}

/// Returns the number as the API has it, or the API's greatest one.
fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl WorkerState {
    /// Makes the call's request. `now` is the time of this machine's clock. With `may_be_ready` false, the worker is reported as not
    /// ready whatever its state says.
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
