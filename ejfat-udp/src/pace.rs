//! When the next packet may go.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

/// Shorter pauses are spun: a sleep takes 60 us.
const SLEEP: Duration = Duration::from_micros(100);
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

    /// Packets of so many bytes that may go at once: those of 100 us, so that a burst is short.
    pub fn at_once(&self, packet: usize) -> usize {
        let bits = self.bits_per_second.unwrap_or(f64::INFINITY);
        ((bits * 100e-6 / (packet as f64 * 8.0)) as usize).max(1)
    }

    /// Waits until these bytes, with their headers, may go.
    pub fn wait(&mut self, bytes: usize) {
        let Some(bits) = self.bits_per_second else { return };
        let mut now = Instant::now();
        while let Some(left) = self.next.checked_duration_since(now).filter(|left| !left.is_zero()) {
            if left > SLEEP {
                thread::sleep(left - SLEEP);
            } else {
                hint::spin_loop();
            }
            now = Instant::now();
        }
        let lag = now.duration_since(self.next).min(BURST);
        self.next = now - lag + Duration::from_secs_f64(bytes as f64 * 8.0 / bits);
    }
}
