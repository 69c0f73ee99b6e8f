//! What an operator and a worker may choose.

use std::time::Duration;

use super::traffic::PERIODS;
use crate::calendar::{MOST_SLOTS, MemberId};

/// How a load balancer's shares are controlled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The slots of a calendar.
    pub slots: u32,
    /// How old a worker's state may be when its report comes. The default is 0.5 s.
    pub delay: Duration,
    /// The time from a decision until its calendar is in force. The default is 0.5 s.
    pub lead: Duration,
    /// The amount by which a fill level of 1 instead of 0 lowers a share. The default is 0.05; it has to be well below
    /// the time in which a queue fills divided by the time until a change shows, or shares oscillate.
    pub gain: f64,
    /// A new calendar is worth while if a member's part changes by more than this part of it, and by more than this
    /// many slots.
    pub hysteresis: f64,
    pub hysteresis_slots: f64,
    /// The share of a newcomer begins at this part, and doubles after each such time, until it is whole.
    pub ramp_from: f64,
    pub ramp: Duration,
    /// A worker with a backlog that takes nothing for so long gets one slot only. The default is 2 s.
    pub stopped: Duration,
    /// The events of a full queue, for workers that do not count what their program takes. E2SAR's is 1000.
    pub queue: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            slots: 512,
            delay: Duration::from_millis(500),
            lead: Duration::from_millis(500),
            gain: 0.05,
            hysteresis: 0.03,
            hysteresis_slots: 0.6,
            ramp_from: 1.0 / 16.0,
            ramp: Duration::from_secs(2),
            stopped: Duration::from_secs(2),
            queue: 1000.0,
        }
    }
}

/// Options that no controller can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is out of range; it has to be {range}")]
pub struct OptionsError {
    pub option: &'static str,
    pub range: &'static str,
}

impl Options {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let most_delay = Duration::from_secs(PERIODS as u64 - 1);
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        let rules = [
            (self.slots.is_power_of_two() && self.slots <= MOST_SLOTS, "slots", "a power of two up to 4096"),
            (self.delay <= most_delay, "delay", "at most 7 s"),
            (self.lead <= most_delay, "lead", "at most 7 s"),
            ((0.0..=1.0).contains(&self.gain), "gain", "from 0 to 1"),
            ((0.0..=1.0).contains(&self.hysteresis), "hysteresis", "from 0 to 1"),
            ((0.0..=16.0).contains(&self.hysteresis_slots), "hysteresis_slots", "from 0 to 16"),
            (is_positive(self.ramp_from) && self.ramp_from <= 1.0, "ramp_from", "above 0 and at most 1"),
            (!self.ramp.is_zero(), "ramp", "above 0"),
            (!self.stopped.is_zero(), "stopped", "above 0"),
            (is_positive(self.queue), "queue", "a number of events above 0"),
        ];
        match rules.into_iter().find(|(holds, ..)| !holds) {
            Some((_, option, range)) => Err(OptionsError { option, range }),
            None => Ok(()),
        }
    }
}

/// What a worker asks for when it joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joining {
    /// Its part of what unknown workers get, in any unit. It counts until the worker's capacity is measured.
    pub weight: f64,
    /// Its least and its greatest share, as factors of an even one. A greatest factor of 0 is no bound.
    pub least_factor: f64,
    pub greatest_factor: f64,
}

/// A worker that cannot join.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    #[error("member {0} has joined already")]
    Joined(MemberId),
    #[error("{0} members have joined, as many as the calendar has slots")]
    Full(u32),
    #[error("the weight is {0}; it has to be a number above 0, up to 1000")]
    Weight(f64),
    #[error(
        "the factors are {least} and {greatest}; give numbers from 0 on, the second 0 or not below the first"
    )]
    Factors { least: f64, greatest: f64 },
}

impl Joining {
    pub(super) fn check(&self) -> Result<(), JoinError> {
        if !(self.weight > 0.0 && self.weight <= 1000.0) {
            return Err(JoinError::Weight(self.weight));
        }
        let (least, greatest) = (self.least_factor, self.greatest_factor);
        let are_numbers = least.is_finite() && greatest.is_finite() && least >= 0.0;
        if !are_numbers || (greatest != 0.0 && greatest < least) {
            return Err(JoinError::Factors { least, greatest });
        }
        Ok(())
    }
}
