//! Round-trip time and the retransmission interval. The handshake's ACK timeout says when a silent peer costs
//! a retry; well before that, a lost tail is resent on the measured round trip, without costing one.

use std::time::Duration;

use crate::{psn::Psn, time::Time};

#[derive(Debug)]
pub(super) struct Rtt {
    /// Smoothed round trip and its mean deviation (RFC 6298, 2).
    smoothed: Option<(Duration, Duration)>,
    /// The packet being timed; none after a retransmission (Karn's rule).
    sample: Option<(Psn, Time)>,
    backoff: u32,
    min_probe: Duration,
    min: Duration,
    /// `Duration::MAX` when the handshake said "for ever".
    full: Duration,
}

impl Rtt {
    /// Until a round trip was measured.
    const INITIAL: Duration = Duration::from_millis(50);
    /// Between probes of a peer that may stay silent for ever.
    const LONGEST_PROBE: Duration = Duration::from_secs(1);

    /// Expiries in a row that resend the last packet only.
    const PROBES: u32 = 2;

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

    /// Everything before `una` was acknowledged.
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
            // The last packet again costs little, and a lost tail costs a stall.
            None => base.max(self.min_probe) * (1 << self.backoff),
            // A window again costs much, and the peer may just be slow.
            Some(further) => (base * 4).max(self.min).saturating_mul(1 << further.min(14)),
        }
    }

    /// How long to wait for an acknowledgement before resending.
    pub(super) fn interval(&self) -> Duration {
        if self.full == Duration::MAX {
            self.probe().min(Self::LONGEST_PROBE)
        } else {
            self.probe().min(self.full)
        }
    }

    /// The next expiry resends the last packet only.
    pub(super) fn is_patient(&self) -> bool {
        self.backoff < Self::PROBES
    }

    /// The timer expired; true when that counts as one of the handshake's retries.
    pub(super) fn expired(&mut self) -> bool {
        let counts = self.interval() >= self.full;
        self.backoff = (self.backoff + 1).min(16);
        counts
    }
}
