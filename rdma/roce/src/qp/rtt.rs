//! The round-trip time of a connection and the retransmission interval, which is the time for which the
//! requester waits for an acknowledgement before it resends packets.
//!
//! The ACK timeout is chosen when the connection is set up. If the peer is silent for a whole ACK timeout, the
//! requester uses up one of its retries. The requester usually resends the last packet as a tail probe long before the
//! end of the ACK timeout. The loss of the end of a message is therefore soon detected. The delay after which the
//! requester sends a tail probe follows from the measured round-trip time. A tail probe uses up no retry.

use std::time::Duration;

use crate::{psn::Psn, time::Time};

#[derive(Debug)]
pub(super) struct Rtt {
    /// The smoothed round-trip time and its mean deviation (RFC 6298, section 2); `None` before the first measurement.
    smoothed: Option<(Duration, Duration)>,
    /// The packet whose round trip is measured, with the time of its first transmission; `None` if no round trip is
    /// measured. A retransmission ends the measurement (Karn's rule), but a tail probe does not.
    sample: Option<(Psn, Time)>,
    backoff: u32,
    min_probe: Duration,
    min: Duration,
    /// The ACK timeout of the connection; `Duration::MAX` for no timeout.
    full: Duration,
}

impl Rtt {
    /// The round-trip time that is assumed until the first round trip was measured.
    const INITIAL: Duration = Duration::from_millis(50);
    /// The longest retransmission interval of a connection without an ACK timeout. A connection without an ACK timeout
    /// does not fail when its peer is silent.
    const LONGEST_PROBE: Duration = Duration::from_secs(1);

    /// The number of consecutive expiries of the retransmission timer at which only the last packet is
    /// resent, as a tail probe. If the ACK timeout ends before a tail probe is due, all unacknowledged
    /// packets are resent instead.
    const PROBES: u32 = 2;
    /// The maximum number of times that the retransmission interval is doubled after the tail probes. With this number
    /// of doublings, an interval of a few milliseconds becomes longer than the longest ACK timeout, 4.096 us * 2^31.
    const MOST_DOUBLINGS: u32 = 22;

    pub(super) fn new(min_probe: Duration, min: Duration, ack_timeout: Duration) -> Self {
        let full = if ack_timeout.is_zero() { Duration::MAX } else { ack_timeout };
        Self { smoothed: None, sample: None, backoff: 0, min_probe, min, full }
    }

    pub(super) fn sent(&mut self, psn: Psn, now: Time) {
        self.sample.get_or_insert((psn, now));
    }

    pub(super) fn forget(&mut self) {
        self.sample = None;
    }

    /// Notes that all packets before `una` were acknowledged.
    pub(super) fn acked(&mut self, una: Psn, now: Time) {
        self.backoff = 0;
        if let Some((psn, at)) = self.sample
            && una.since(psn) > 0
        {
            let rtt = now - at;
            self.smoothed = Some(match self.smoothed {
                None => (rtt, rtt / 2),
                Some((mean, deviation)) => ((mean * 7 + rtt) / 8, (deviation * 3 + mean.abs_diff(rtt)) / 4),
            });
            self.sample = None;
        }
    }

    fn probe(&self) -> Duration {
        let base = self.smoothed.map_or(Self::INITIAL, |(mean, deviation)| mean + deviation * 4);
        match self.backoff.checked_sub(Self::PROBES) {
            // A tail probe resends only one packet, so a needless tail probe costs little, and the time before a tail
            // probe can be short. The loss of the end of a message is then soon detected.
            None => base.max(self.min_probe) * (1 << self.backoff),
            // After the tail probes, all unacknowledged packets are resent, which can be many. The retransmission
            // interval is therefore long, so that a slow peer has time to respond before a retransmission.
            Some(further) => (base * 4).max(self.min).saturating_mul(1 << further.min(Self::MOST_DOUBLINGS)),
        }
    }

    /// Returns the time to wait for an acknowledgement before resending.
    pub(super) fn interval(&self) -> Duration {
        if self.full == Duration::MAX {
            self.probe().min(Self::LONGEST_PROBE)
        } else {
            self.probe().min(self.full)
        }
    }

    /// Returns true if the next expiry of the retransmission timer resends only the last packet, as a tail
    /// probe. If [`Self::expired`] returns true for this expiry, all unacknowledged packets are resent
    /// instead.
    pub(super) fn probes_tail(&self) -> bool {
        self.backoff < Self::PROBES
    }

    /// Notes that the retransmission timer expired. Returns true if the peer was silent for a whole ACK timeout. In
    /// this case, the requester must use up one retry.
    pub(super) fn expired(&mut self) -> bool {
        let counts = self.interval() >= self.full;
        self.backoff = (self.backoff + 1).min(Self::PROBES + Self::MOST_DOUBLINGS);
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an `Rtt` with the ACK timeout `ack_timeout` and one measured round trip of 20 us.
    fn measured(ack_timeout: Duration) -> Rtt {
        let mut rtt = Rtt::new(Duration::from_micros(250), Duration::from_millis(4), ack_timeout);
        rtt.sent(Psn::new(7), Time(0));
        rtt.acked(Psn::new(8), Time(20_000));
        rtt
    }

    #[test]
    fn silence_costs_retries_with_every_ack_timeout() {
        for code in 1..32 {
            let mut rtt = measured(Duration::from_nanos(4096 << code));
            assert!((0..40).any(|_| rtt.expired()), "ACK timeout {code}");
            assert!(rtt.expired());
        }
    }

    #[test]
    fn a_tail_is_probed_for_soon_and_a_window_repeated_late() {
        let mut rtt = measured(Duration::from_secs(1));
        let mut intervals = Vec::new();
        while intervals.len() < 4 {
            intervals.push((rtt.interval().as_micros(), rtt.probes_tail()));
            rtt.expired();
        }
        assert_eq!(intervals, [(250, true), (500, true), (4000, false), (8000, false)]);
    }

    /// Each further round trip has the weight 1/8 in the new mean. The difference between this round trip and the old
    /// mean has the weight 1/4 in the new deviation, as in RFC 6298. After round trips of 20 us and 1000 us, the mean
    /// is 142.5 us and the deviation 252.5 us.
    #[test]
    fn the_mean_and_the_deviation_follow_slowly() {
        let mut rtt = measured(Duration::from_secs(1));
        rtt.sent(Psn::new(8), Time(0));
        rtt.acked(Psn::new(9), Time(1_000_000));
        assert_eq!(rtt.interval(), Duration::from_nanos(142_500 + 4 * 252_500));
    }
}
