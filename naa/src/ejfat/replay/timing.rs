//! Decides when the next datagram is sent.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use ejfat_udp::Pace;

use crate::signals;

/// Pauses shorter than this are waited for by spinning, because a sleep takes about this much longer than it should.
const SLEEP: Duration = Duration::from_micros(60);
/// The longest sleep, after which the thread checks whether to stop.
const LONGEST: Duration = Duration::from_millis(100);

pub(super) enum Timing {
    /// Sends with the capture's timing, `speed` times as fast. `first` has the first datagram's time in the capture,
    /// and the time at which it was sent.
    Capture {
        speed: f64,
        first: Option<(u64, Instant)>,
    },
    Rate(Pace),
}

impl Timing {
    /// Sends at `rate` in Gbit/s; 0 means as fast as possible.
    pub(super) fn rate(rate: f64) -> Self {
        Self::Rate(Pace::new((rate > 0.0).then_some(rate * 1e9)))
    }

    pub(super) fn begin(&mut self) {
        if let Self::Capture { first, .. } = self {
            *first = None;
        }
    }

    /// Waits until a datagram of `bytes` bytes on the wire may be sent. Returns false if the program is to stop.
    pub(super) fn wait(&mut self, time: u64, bytes: usize) -> bool {
        match self {
            Self::Rate(pace) => pace.wait(bytes),
            Self::Capture { speed: 0.0, .. } => {}
            Self::Capture { speed, first } => {
                let (there, here) = *first.get_or_insert_with(|| (time, Instant::now()));
                let after = Duration::from_nanos(time.saturating_sub(there)).as_secs_f64() / *speed;
                let due = Duration::try_from_secs_f64(after).ok().and_then(|after| here.checked_add(after));
                return sleep(due);
            }
        }
        !signals::is_ending()
    }
}

/// Sleeps until `due`, or for ever. Returns false if the program is to stop.
fn sleep(due: Option<Instant>) -> bool {
    while !signals::is_ending() {
        let left = due.map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return true;
        }
        match left.checked_sub(SLEEP) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(LONGEST)),
            _ => hint::spin_loop(),
        }
    }
    false
}
