//! When the next packet may go.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Shorter pauses are not slept: a sleep takes that much longer than it should. The core is offered to other threads
/// meanwhile, because whoever receives the packets may wait for it.
const SLEEP: Duration = Duration::from_micros(60);
/// Packets of so long go at once, so that most of the time between can be slept.
const TRAIN: f64 = 500e-6;
/// What was not sent in time is not made up for beyond this.
const BURST: Duration = Duration::from_millis(1);

/// Spaces packets by a rate, from the first on.
#[derive(Debug)]
pub struct Pace {
    bits_per_second: Option<f64>,
    next: Instant,
}

impl Pace {
    /// `None`: as fast as it goes.
    pub fn new(bits_per_second: Option<f64>) -> Self {
        Self { bits_per_second, next: Instant::now() }
    }

    /// Packets of so many bytes that may go at once.
    pub fn at_once(&self, packet: usize) -> usize {
        let bits = self.bits_per_second.unwrap_or(f64::INFINITY);
        ((bits * TRAIN / (packet as f64 * 8.0)) as usize).max(1)
    }

    /// Waits until these bytes, with their headers, may go.
    pub fn wait(&mut self, bytes: usize) {
        let Some(bits) = self.bits_per_second else { return };
        let mut now = Instant::now();
        while let Some(left) = self.next.checked_duration_since(now).filter(|left| !left.is_zero()) {
            if left > SLEEP {
                thread::sleep(left - SLEEP);
            } else {
                thread::yield_now();
            }
            now = Instant::now();
        }
        let lag = now.duration_since(self.next).min(BURST);
        let time = Duration::try_from_secs_f64(bytes as f64 * 8.0 / bits).unwrap_or(Duration::MAX);
        self.next = (now - lag).checked_add(time).unwrap_or(now);
    }
}
