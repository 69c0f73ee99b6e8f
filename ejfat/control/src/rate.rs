//! The highest rate at which ticks are known to have advanced.

use std::{collections::VecDeque, time::Duration};

use ejfat::Time;

/// How fast a rate is forgotten that is higher than the present one, and not twice as high: a pause is no reason to forget it.
const FADE: Duration = Duration::from_secs(60);
/// A rate is settled when it did not rise by more than a tenth for so long.
const SETTLED: Duration = Duration::from_secs(3);
/// Ticks that were seen closer together say nothing about the rate.
pub(crate) const APART: Duration = Duration::from_millis(400);
/// A rate counts if it lasts so many measurements: one forged tick makes one high measurement.
const LASTING: usize = 2;
/// Answers of several planes that come within this time are taken as answers to the same look.
const TOGETHER: Duration = Duration::from_millis(20);
/// Rises of ticks that are remembered.
const RISES: usize = 64;
/// A leap is not taken to be longer than this at the highest rate: it may be a forged tick.
const LONGEST_LEAP: Duration = Duration::from_secs(1);

pub(crate) fn seconds(then: Time, now: Time) -> f64 {
    Duration::from_nanos(now.0.saturating_sub(then.0)).as_secs_f64()
}

/// Adds an item behind the others. If there are `most` already, the first one is forgotten.
pub(crate) fn remember<T>(items: &mut VecDeque<T>, most: usize, item: T) {
    if items.len() == most {
        items.pop_front();
    }
    items.push_back(item);
}

/// The highest of the rates that were measured, in ticks per second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HighestRate {
    rate: f64,
    /// The rate some seconds ago, and when that was.
    before: (Time, f64),
    /// When the rate rose last.
    rose: Time,
}

impl HighestRate {
    /// Creates the state before a rate was measured.
    pub(crate) fn begin(now: Time) -> Self {
        Self { before: (now, 0.0), ..Self::default() }
    }

    /// Takes a rate that was measured now; `since` is the time from the measurement before.
    pub(crate) fn measure(&mut self, now: Time, rate: f64, since: f64) {
        if rate > self.rate {
            self.rate = rate;
        } else if rate > self.rate / 2.0 {
            self.rate = rate + (self.rate - rate) * (-since / FADE.as_secs_f64()).exp();
        }
        if self.rate > 1.1 * self.before.1 {
            (self.rose, self.before) = (now, (now, self.rate));
        } else if now >= self.before.0 + SETTLED {
            self.before = (now, self.rate);
        }
    }

    /// 0 before the first measurement.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Whether the rate is known and did not rise lately, so that a boundary can be computed from it.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.rate > 0.0 && now >= self.rose + SETTLED
    }
}

/// The rate of a load balancer by the highest ticks that data planes tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoutedRate {
    highest: HighestRate,
    /// The newest tick that was taken for a measurement, and when.
    newest: Option<(Time, u64)>,
    lately: VecDeque<f64>,
    /// The newest look: when its first answer came, and the highest tick of its answers.
    last: Option<(Time, u64)>,
    /// The look before that one.
    before: Option<(Time, u64)>,
    /// By how many ticks the highest tick rose from one look to the next, and the seconds between the two looks.
    rises: VecDeque<(u64, f64)>,
}

impl RoutedRate {
    /// Takes the highest tick that was routed.
    pub(crate) fn see(&mut self, now: Time, tick: u64) {
        self.rise_to(now, tick);
        let Some((then, before)) = self.newest else {
            if self.highest.rate() <= 0.0 {
                self.highest = HighestRate::begin(now);
            }
            self.newest = Some((now, tick));
            return;
        };
        if now < then + APART {
            return;
        }
        let since = seconds(then, now);
        remember(&mut self.lately, LASTING, tick.saturating_sub(before) as f64 / since);
        self.newest = Some((now, tick));
        if self.lately.len() == LASTING {
            let lasting = self.lately.iter().copied().fold(f64::INFINITY, f64::min);
            self.highest.measure(now, lasting, since);
        }
    }

    /// Notes the rise from one look to the next. Planes that were asked together count as one look: only one of them may have had the
    /// newest event.
    fn rise_to(&mut self, now: Time, tick: u64) {
        match &mut self.last {
            Some((then, highest)) if now < *then + TOGETHER => {
                *highest = tick.max(*highest);
                return;
            }
            _ => {}
        }
        if let (Some((before, from)), Some((then, to))) = (self.before, self.last)
            && to > from
        {
            remember(&mut self.rises, RISES, (to - from, seconds(before, then)));
        }
        (self.before, self.last) = (self.last, Some((now, tick)));
    }

    /// The senders count from another tick now.
    pub(crate) fn forget_tick(&mut self) {
        (self.newest, self.last, self.before) = (None, None, None);
        self.rises.clear();
        self.lately.clear();
    }

    pub(crate) fn rate(&self) -> f64 {
        self.highest.rate()
    }

    /// Goes on with the ticks, and with the rate if it is higher, of another series.
    pub(crate) fn adopt(&mut self, now: Time, other: Self) {
        self.highest.measure(now, other.rate(), 0.0);
        (self.newest, self.lately) = (other.newest, other.lately);
        (self.last, self.before) = (other.last, other.before);
    }

    /// Whether the rate is known and did not rise lately.
    pub(crate) fn is_settled(&self, now: Time) -> bool {
        self.highest.is_settled(now)
    }

    /// By how many ticks the newest tick may rise at once, whatever the rate: events are few and ticks many, and packets of one event come
    /// later than those of another.
    pub(crate) fn leap(&self) -> f64 {
        let most = self.rate() * LONGEST_LEAP.as_secs_f64();
        let leaps = self.rises.iter().map(|(rise, seconds)| *rise as f64 - self.rate() * seconds);
        // Where ticks are a counter, each event raises it by the same step, and the next event is one step ahead.
        let step = self.rises.iter().fold(0, |step, (rise, _)| gcd(step, *rise)) as f64;
        leaps.fold(step, f64::max).min(most)
    }
}

/// The greatest common divisor; with 0, the other number.
fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_forged_tick_makes_no_rate() {
        let mut rate = RoutedRate::default();
        for step in 0..40_u64 {
            let forged = if step >= 20 { 100_000 } else { 0 };
            rate.see(Time(step * 500_000_000), (step * 500).max(forged));
        }
        assert_eq!(rate.rate(), 1000.0);
    }

    #[test]
    fn a_leap_is_an_event_and_what_packets_are_late() {
        // An event every 10 ms raises the tick by 1000; every third look misses one, because its packets are late.
        let mut rate = RoutedRate::default();
        for look in 0..100_u64 {
            let late = if look % 3 == 0 { 1000 } else { 0 };
            rate.see(Time(look * 100_000_000), 10_000 + look * 10_000 - late);
        }
        assert!((1000.0..=2000.0).contains(&rate.leap()), "{}", rate.leap());
        let mut even = RoutedRate::default();
        (0..100_u64).for_each(|look| even.see(Time(look * 100_000_000), look * 1000));
        assert_eq!(even.leap(), 1000.0);
    }

    #[test]
    fn a_rate_that_lasts_is_known_after_two_measurements() {
        let mut rate = RoutedRate::default();
        let mut tick = 0;
        for step in 0..10_u64 {
            rate.see(Time(step * 500_000_000), tick);
            tick += if step < 5 { 500 } else { 5000 };
        }
        assert_eq!(rate.rate(), 10_000.0);
    }
}
