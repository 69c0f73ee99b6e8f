//! Congestion control, which limits the number of unacknowledged packets of a requester.

use std::{fmt::Debug, time::Duration};

use crate::time::Time;

/// A congestion window in packets.
pub trait Window: Debug + Send {
    /// Returns the number of packets that may be unacknowledged, at least 1.
    fn packets(&self) -> u32;
    /// Notes that `n` packets were acknowledged. `full` is true if the window had room for at most one more packet
    /// before this acknowledgement.
    fn on_ack(&mut self, n: u32, full: bool);
    /// Notes that packets were lost. The requester detects the loss by a sequence NAK, by missing READ responses, or by
    /// an expired retransmission timer. An expiry that only causes a tail probe does not count as a loss.
    fn on_loss(&mut self, now: Time);
    /// Notes that a congestion notification packet arrived.
    fn on_cnp(&mut self, now: Time);
}

/// A window that doubles in each round trip up to a threshold, and above the threshold grows by two packets in each
/// round trip. After a loss or a congestion notification, the window is reduced only by a quarter. A loss need not come
/// from congestion, because bad cables lose packets, too.
#[derive(Clone, Debug)]
pub struct Aimd {
    window: u32,
    threshold: u32,
    max: u32,
    acked: u32,
    last_cut: Option<Time>,
}

impl Aimd {
    /// The shortest time between two reductions of the window, so that many lost packets of one burst cause only one
    /// reduction.
    const CUT_INTERVAL: Duration = Duration::from_micros(200);
    const MIN: u32 = 4;
    const GROWTH: u32 = 2;

    /// Makes a window of `start` packets that grows to at most `max` packets. Both numbers are raised to at least 4.
    pub fn new(start: u32, max: u32) -> Self {
        let max = max.max(Self::MIN);
        Self { window: start.clamp(Self::MIN, max), threshold: max, max, acked: 0, last_cut: None }
    }

    fn cut(&mut self, now: Time) {
        if self.last_cut.is_some_and(|last| now - last < Self::CUT_INTERVAL) {
            return;
        }
        self.last_cut = Some(now);
        self.window = (self.window - self.window / 4).max(Self::MIN);
        self.threshold = self.window;
        self.acked = 0;
    }
}

impl Window for Aimd {
    fn packets(&self) -> u32 {
        self.window
    }

    fn on_ack(&mut self, n: u32, full: bool) {
        if !full {
            return;
        }
        if self.window < self.threshold {
            self.window = (self.window + n).min(self.threshold);
            return;
        }
        self.acked += n;
        while self.acked >= self.window && self.window < self.max {
            self.acked -= self.window;
            self.window = (self.window + Self::GROWTH).min(self.max);
        }
        self.acked = self.acked.min(self.window);
    }

    fn on_loss(&mut self, now: Time) {
        self.cut(now);
    }

    fn on_cnp(&mut self, now: Time) {
        self.cut(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_on_acks_and_shrinks_once_per_event() {
        let mut w = Aimd::new(8, 128);
        for _ in 0..20 {
            w.on_ack(w.packets(), true);
        }
        assert_eq!(w.packets(), 128);
        w.on_loss(Time(1_000_000));
        w.on_loss(Time(1_000_001));
        assert_eq!(w.packets(), 96);
        w.on_ack(96, true);
        assert_eq!(w.packets(), 98);
        w.on_cnp(Time(2_000_000));
        assert_eq!(w.packets(), 74);
    }

    #[test]
    fn does_not_grow_while_idle_and_never_stops() {
        let mut w = Aimd::new(8, 128);
        w.on_ack(8, false);
        assert_eq!(w.packets(), 8);
        for t in 0..50 {
            w.on_loss(Time(t * 1_000_000));
        }
        assert_eq!(w.packets(), Aimd::MIN);
    }
}
