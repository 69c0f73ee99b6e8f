//! The liveness of a peer: the times at which a probe is due, and at which the peer counts as dead.
//!
//! A sign of life is anything that arrives from the peer, for example a message or an acknowledgement.
//!
//! A probe is a WRITE of no bytes. The peer's end of the connection acknowledges a probe without any action of the
//! peer's program. While another work request is unacknowledged, no probe is sent, because the acknowledgement of that
//! work request also shows that the peer is alive.

use std::time::{Duration, Instant};

/// A point in time: an [`Instant`], or a [`Duration`] since an arbitrary starting point.
pub trait Time: Copy + Ord {
    /// Returns the point in time that is `time` later, or `None` if that point in time cannot be represented.
    fn after(self, time: Duration) -> Option<Self>;
}

impl Time for Instant {
    fn after(self, time: Duration) -> Option<Self> {
        self.checked_add(time)
    }
}

impl Time for Duration {
    fn after(self, time: Duration) -> Option<Self> {
        self.checked_add(time)
    }
}

/// The liveness of one peer.
///
/// | the owner | calls |
/// |---|---|
/// | received anything from the peer | [`received`](Self::received) |
/// | posted a work request that the peer must acknowledge | [`expect`](Self::expect) |
/// | received the acknowledgements of all these work requests | [`acknowledged`](Self::acknowledged) |
/// | posted a probe that was [due](Self::is_probe_due) | [`probed`](Self::probed) |
/// | received the acknowledgement of the probe | [`answered`](Self::answered) |
/// | checks the clock, at the time [`next`](Self::next) at the latest | [`is_dead`](Self::is_dead) |
#[derive(Clone, Copy, Debug)]
pub struct Liveness<T = Instant> {
    interval: Option<Duration>,
    timeout: Option<Duration>,
    /// The time of the last sign of life or of the last probe, whichever is later.
    since: T,
    /// The time at which the unacknowledged probe was posted; `None` if no probe is unacknowledged.
    probe: Option<T>,
    expected: Expected<T>,
}

/// Says whether a work request other than a probe is unacknowledged, and whether there is a deadline for the
/// acknowledgement.
#[derive(Clone, Copy, Debug)]
enum Expected<T> {
    Nothing,
    /// A work request is unacknowledged, but its acknowledgement has no deadline. If the peer never acknowledges the
    /// work request, the transport reports this.
    Sometime,
    By(T),
}

impl<T: Time> Liveness<T> {
    /// Creates the liveness of a peer whose last sign of life was at `now`.
    ///
    /// A probe is due when the time `interval` has passed since the last sign of life and since the last probe. If
    /// `interval` is `None`, no probe is ever due. While a probe is unacknowledged, the peer has a deadline: the time
    /// `timeout` after the probe or after the last sign of life, whichever is later. After this deadline, the peer
    /// counts as dead. If `timeout` is `None`, only the transport detects a peer that does not acknowledge a probe.
    pub fn new(interval: Option<Duration>, timeout: Option<Duration>, now: T) -> Self {
        Self { interval, timeout, since: now, probe: None, expected: Expected::Nothing }
    }

    /// Records that the peer gave a sign of life at `now`.
    pub fn received(&mut self, now: T) {
        self.since = self.since.max(now);
    }

    /// Records that the caller posted a work request which the peer must acknowledge. If `deadline` is a time and no
    /// acknowledgement arrives by this time, the peer counts as dead.
    pub fn expect(&mut self, deadline: Option<T>) {
        self.expected = deadline.map_or(Expected::Sometime, Expected::By);
    }

    /// Records that the peer has acknowledged all work requests except probes.
    pub fn acknowledged(&mut self) {
        self.expected = Expected::Nothing;
    }

    /// Records that a probe was posted at `now`.
    pub fn probed(&mut self, now: T) {
        self.probe = Some(now);
        self.since = self.since.max(now);
    }

    /// Records that the peer has acknowledged the probe.
    pub fn answered(&mut self) {
        self.probe = None;
    }

    /// Returns the time of the last sign of life or of the last probe, whichever is later.
    pub fn since(&self) -> T {
        self.since
    }

    /// Returns the time at which the unacknowledged probe was posted, or `None` if no probe is unacknowledged.
    pub fn probing_since(&self) -> Option<T> {
        self.probe
    }

    /// Returns true if probes are enabled, and neither a probe nor any other work request is unacknowledged.
    pub fn may_probe(&self) -> bool {
        self.interval.is_some() && self.probe.is_none() && matches!(self.expected, Expected::Nothing)
    }

    /// Returns the time at which the next probe is due. Returns `None` if probes are disabled, or while a probe or
    /// another work request is unacknowledged.
    pub fn next_probe(&self) -> Option<T> {
        self.interval.filter(|_| self.may_probe()).and_then(|interval| self.since.after(interval))
    }

    /// Returns true if a probe is due at `now`.
    pub fn is_probe_due(&self, now: T) -> bool {
        self.next_probe().is_some_and(|at| now >= at)
    }

    /// Returns the deadline after which the peer counts as dead, or `None` if the peer has no deadline. Every call
    /// of a method that records something may change the deadline.
    pub fn deadline(&self) -> Option<T> {
        let silent = self.timeout.filter(|_| self.probe.is_some());
        let silent = silent.and_then(|timeout| self.since.after(timeout));
        let late = match self.expected {
            Expected::By(deadline) => Some(deadline),
            Expected::Nothing | Expected::Sometime => None,
        };
        [silent, late].into_iter().flatten().min()
    }

    /// Returns true if the peer counts as dead at `now`, because the peer's [`deadline`](Self::deadline) has passed.
    pub fn is_dead(&self, now: T) -> bool {
        self.deadline().is_some_and(|deadline| now > deadline)
    }

    /// Returns the time of the next clock check: the time at which the next probe is due or the peer's deadline ends,
    /// whichever is earlier. Returns `None` if no probe will be due and there is no deadline after which the peer
    /// counts as dead.
    pub fn next(&self) -> Option<T> {
        [self.next_probe(), self.deadline()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns two values: a liveness with one probe each second and a time limit of three seconds, and the time of the
    /// peer's first sign of life.
    fn peer() -> (Liveness<Duration>, Duration) {
        let start = Duration::from_secs(1000);
        (Liveness::new(Some(SECOND), Some(3 * SECOND), start), start)
    }

    #[test]
    fn a_silent_peer_is_probed_once_and_dies_when_its_time_is_over() {
        let (mut peer, start) = peer();
        assert_eq!((peer.next(), peer.deadline()), (Some(start + SECOND), None));
        assert!(!peer.is_probe_due(start + SECOND - Duration::from_nanos(1)));
        assert!(peer.is_probe_due(start + SECOND));
        // The test posts the probe only four seconds after the probe was due.
        let sent = start + 5 * SECOND;
        assert!(!peer.is_dead(sent), "it was not asked yet");
        peer.probed(sent);
        assert_eq!(peer.probing_since(), Some(sent));
        assert!(!peer.is_probe_due(sent + 100 * SECOND), "one is on its way");
        assert_eq!((peer.next_probe(), peer.next()), (None, Some(sent + 3 * SECOND)));
        assert!(!peer.is_dead(sent + 3 * SECOND));
        assert!(peer.is_dead(sent + 3 * SECOND + Duration::from_nanos(1)));
    }

    #[test]
    fn a_peer_that_answers_is_probed_again_an_interval_after_the_last_probe() {
        let (mut peer, start) = peer();
        for round in 1..=10 {
            let due = start + round * SECOND;
            assert_eq!(peer.next(), Some(due));
            peer.probed(due);
            peer.answered();
            assert!(peer.probing_since().is_none() && !peer.is_dead(due + 100 * SECOND));
        }
    }

    #[test]
    fn whatever_is_heard_puts_the_probe_and_the_death_off() {
        let (mut peer, start) = peer();
        peer.received(start + SECOND / 2);
        assert_eq!(peer.next_probe(), Some(start + SECOND * 3 / 2));
        peer.received(start);
        assert_eq!(peer.next_probe(), Some(start + SECOND * 3 / 2), "time does not run backwards");
        peer.probed(start + 2 * SECOND);
        peer.received(start + 4 * SECOND);
        assert_eq!(peer.deadline(), Some(start + 7 * SECOND));
    }

    #[test]
    fn work_that_is_to_be_acknowledged_takes_the_place_of_a_probe() {
        let (mut peer, start) = peer();
        peer.expect(None);
        assert_eq!(
            (peer.may_probe(), peer.next(), peer.is_dead(start + 1000 * SECOND)),
            (false, None, false)
        );
        peer.expect(Some(start + 10 * SECOND));
        assert_eq!((peer.next_probe(), peer.next()), (None, Some(start + 10 * SECOND)));
        assert!(!peer.is_dead(start + 10 * SECOND) && peer.is_dead(start + 11 * SECOND));
        peer.acknowledged();
        assert!(peer.may_probe() && peer.is_probe_due(start + 10 * SECOND));
        assert!(!peer.is_dead(start + 11 * SECOND));
    }

    #[test]
    fn the_earlier_of_two_deadlines_counts() {
        let (mut peer, start) = peer();
        peer.probed(start);
        peer.expect(Some(start + SECOND));
        assert_eq!(peer.deadline(), Some(start + SECOND));
        peer.acknowledged();
        assert_eq!(peer.deadline(), Some(start + 3 * SECOND));
    }

    #[test]
    fn times_beyond_all_times_never_come() {
        let mut peer = Liveness::new(Some(Duration::MAX), Some(Duration::MAX), SECOND);
        peer.probed(SECOND);
        assert_eq!((peer.next_probe(), peer.next(), peer.is_dead(Duration::MAX)), (None, None, false));
    }

    #[test]
    fn without_an_interval_nobody_is_probed_and_without_patience_nobody_dies() {
        let start = Duration::ZERO;
        let never = Liveness::new(None, Some(SECOND), start);
        assert_eq!(
            (never.may_probe(), never.next(), never.is_dead(start + 1000 * SECOND)),
            (false, None, false)
        );
        let mut patient = Liveness::new(Some(SECOND), None, start);
        patient.probed(start + SECOND);
        assert_eq!((patient.next(), patient.is_dead(start + 1000 * SECOND)), (None, false));
    }
}
