//! Whether a sender's sync is true.
//!
//! A sync says which tick its sender has reached. UDP's source address can be forged, clocks are set and counters begin again,
//! so a sync has to fit what the sender said before: a tick not below the newest one, and not above what the sender can have
//! reached at [`Margins::rate_factor`] times the highest known rate. Syncs that do not fit are followed if they fit each other for
//! a while, and nothing fits the line before any more.

use std::{collections::VecDeque, time::Duration};

use ejfat::Time;

use crate::{
    boundary::{Margins, Sender},
    rate::{APART, HighestRate, remember, seconds},
};

/// Syncs of a line that are remembered.
const REMEMBERED: usize = 8;
/// Syncs of another line before it is followed, and the time that they have to span.
const FOLLOWED: u32 = 3;
const FOLLOWED_AFTER: Duration = Duration::from_secs(2);
/// The first syncs of a sender, which only have to ascend if no rate is known by others: it may have paused after its first one.
const BEGINS: u32 = 3;
/// A line is given up when nothing fitted it for so long.
const SILENT: Duration = Duration::from_secs(6);
/// For this long after a sync the sender is taken to have gone on at its rate, whatever newer syncs tell.
const GOES_ON: Duration = Duration::from_secs(2);
/// Two syncs within this time that do not fit stop the line from learning, for as long again.
const SUSPICIOUS: Duration = Duration::from_secs(5);

/// What became of a sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits what the sender said before.
    Fits,
    /// It fits, and shows that the sync before, which was refused, was true: the sender is faster than was known.
    Confirmed,
    /// With it another line is followed: the sender's clock was set, or its counter began again. Boundaries may fall.
    Followed,
    /// It does not fit, but the syncs refused in the last seconds fit it: the sender may count from another tick. That is followed when
    /// nothing fits the line before any more.
    Doubtful,
    /// It does not fit, and nothing is concluded from it yet.
    Refused,
}

/// Ticks of a sender that fit each other.
#[derive(Clone, Debug, Default)]
struct Line {
    syncs: VecDeque<(Time, u64)>,
    /// The newest tick.
    tick: u64,
    begun: Time,
    last: Time,
    count: u32,
    rate: HighestRate,
}

impl Line {
    fn fits(&self, now: Time, tick: u64, known_rate: f64, margins: &Margins) -> bool {
        let rate = self.rate.rate().max(known_rate);
        let reached = |&(then, tick): &(Time, u64)| {
            let time = seconds(then, now) + margins.sync_delay.as_secs_f64();
            tick.saturating_add((margins.rate_factor * rate * time).ceil() as u64)
        };
        let most = self.syncs.iter().map(reached).min();
        // Nothing is known of a sender that has no rate yet.
        tick >= self.tick && (self.rate.rate() <= 0.0 || most.is_none_or(|most| tick <= most))
    }

    fn add(&mut self, now: Time, tick: u64) {
        if self.count == 0 {
            (self.begun, self.rate) = (now, HighestRate::begin(now));
        }
        (self.tick, self.last, self.count) = (tick, now, self.count.saturating_add(1));
    }

    fn learn(&mut self, now: Time, tick: u64) {
        if self.syncs.back().is_some_and(|(then, _)| now < *then + APART) {
            return;
        }
        // A rate is measured from the sync before the last one, so that a sync which came late changes it less. The third sync is compared
        // with the second one, because the sender may have paused after the first one.
        let back = if self.syncs.len() == 2 { 1 } else { 2 };
        let two_back = self.syncs.get(self.syncs.len().saturating_sub(back));
        if let Some(&(then, from)) = two_back {
            let since = self.syncs.back().map_or(0.0, |(then, _)| seconds(*then, now));
            self.rate.measure(now, tick.saturating_sub(from) as f64 / seconds(then, now), since);
        }
        remember(&mut self.syncs, REMEMBERED, (now, tick));
    }
}

/// Judges the syncs of one sender.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    line: Line,
    /// Syncs that do not fit the line, and fit each other.
    other: Line,
    /// The last sync that did not fit: when it came, and its tick.
    misfit: Option<(Time, u64)>,
    suspicious_until: Time,
}

impl Gate {
    /// Judges a sync that came at `now`, which does not go back. `known_rate` is the highest rate of the load balancer's ticks that
    /// is known from data planes and from other senders, in ticks per second; 0 if none is. A sender that paused between its
    /// first syncs would seem too slow by these alone.
    pub fn check(&mut self, now: Time, tick: u64, known_rate: f64, margins: &Margins) -> Verdict {
        let begins = known_rate <= 0.0 && self.line.count < BEGINS && tick >= self.line.tick;
        let misfit = self.misfit.filter(|(then, _)| now <= *then + SUSPICIOUS);
        if begins || self.line.fits(now, tick, known_rate, margins) {
            let is_faster = !begins && !self.line.fits(now, tick, 0.0, margins);
            let is_confirmed = is_faster && misfit.is_some_and(|(_, doubted)| doubted <= tick);
            self.line.add(now, tick);
            if now >= self.suspicious_until {
                self.line.learn(now, tick);
            }
            return if is_confirmed { Verdict::Confirmed } else { Verdict::Fits };
        }
        if misfit.is_some() {
            self.suspicious_until = now + SUSPICIOUS;
        }
        self.misfit = Some((now, tick));
        if !self.other.fits(now, tick, known_rate, margins) {
            self.other = Line::default();
        }
        self.other.add(now, tick);
        self.other.learn(now, tick);
        let is_proven = self.other.count >= FOLLOWED && now >= self.other.begun + FOLLOWED_AFTER;
        if is_proven && now >= self.line.last + SILENT {
            *self = Self { line: std::mem::take(&mut self.other), ..Self::default() };
            return Verdict::Followed;
        }
        if is_proven { Verdict::Doubtful } else { Verdict::Refused }
    }

    /// What is known of the sender, for a boundary. `None` before its first sync.
    pub fn sender(&self, now: Time) -> Option<Sender> {
        let Line { tick, last, count, rate, .. } = self.line;
        let age = Duration::from_nanos(now.0.saturating_sub(last.0));
        (count > 0).then_some(Sender { tick, age, rate: rate.rate() })
    }

    /// Where the sender is by the syncs of the last seconds, if it went on at its rate since each of them. The newest sync may be late or
    /// forged, so that it has a lower tick than the sender.
    pub fn expected(&self, now: Time) -> impl Iterator<Item = Sender> {
        let rate = self.line.rate.rate();
        let lately = self.line.syncs.iter().filter(move |(then, _)| now < *then + GOES_ON);
        lately.map(move |&(then, tick)| {
            let since = (rate * seconds(then, now)) as u64;
            Sender { tick: tick.saturating_add(since), age: Duration::ZERO, rate }
        })
    }

    /// Whether the rate is known and did not rise lately, so that a boundary can be computed from it.
    pub fn is_settled(&self, now: Time) -> bool {
        self.line.rate.is_settled(now)
    }
}
