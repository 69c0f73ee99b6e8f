//! What an operator and a worker may choose.

use std::time::Duration;

use super::traffic::PERIODS;
use crate::calendar::{MOST_SLOTS, MemberId};

/// How a load balancer's shares are controlled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerConfig {
    /// The number of slots of a calendar, a power of two. The default is 512.
    pub slots: u32,
    /// How old a worker's state may be when its report comes. The default is 0.5 s.
    pub delay: Duration,
    /// The time from a decision until its calendar is in force. The default is 0.5 s.
    pub lead: Duration,
    /// The amount by which a fill level of 1 instead of 0 lowers a share. The default is 0.05; it has to be well below
    /// the time in which a queue fills divided by the time until a change shows, or shares oscillate.
    pub gain: f64,
    /// The change of a member's slots above which a new calendar is due, as a fraction of the member's present slots.
    /// The change must also be above [`hysteresis_slots`](Self::hysteresis_slots). A new calendar is always due if a
    /// member is to get its first slots or to lose all of its slots. The value is from 0 to 1; the default is 0.03.
    pub hysteresis: f64,
    /// The change of a member's slots above which a new calendar is due, in slots. The change is computed before
    /// rounding, so it may be below 1. The change must also be above the limit of [`hysteresis`](Self::hysteresis).
    /// The value is from 0 to 16; the default is 0.6.
    pub hysteresis_slots: f64,
    /// The fraction of its weight ([`Joining::weight`]) with which a newcomer begins, when it is ready for the first
    /// time. The value is above 0 and at most 1; the default is 1/16.
    pub ramp_from: f64,
    /// A newcomer begins with the fraction [`ramp_from`](Self::ramp_from) of its weight, and this fraction doubles
    /// in each period of this length. The growth ends when the fraction is 1 or the newcomer's capacity is known. The
    /// value is above 0; the default is 2 s.
    pub ramp: Duration,
    /// A worker that counts events, has a backlog and takes no event for this time gets only one slot, unless this is
    /// so for all workers. The default is 2 s.
    pub stopped: Duration,
    /// The number of events in a full queue, for workers that do not count the events that their program takes. The
    /// default is 1000, as in E2SAR.
    pub queue: f64,
}

impl Default for ControllerConfig {
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

/// A configuration that no controller can follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{option} is out of range; it has to be {range}")]
pub struct ControllerConfigError {
    /// The name of the field of [`ControllerConfig`] that is out of range.
    pub option: &'static str,
    /// The values that the field may have, as text for people.
    pub range: &'static str,
}

impl ControllerConfig {
    pub(super) fn check(&self) -> Result<(), ControllerConfigError> {
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
            Some((_, option, range)) => Err(ControllerConfigError { option, range }),
            None => Ok(()),
        }
    }
}

/// What a worker asks for when it joins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Joining {
    /// The weight of the worker as long as its capacity is not known, above 0 and at most 1000. The weight 1 stands for
    /// an equal part of the events that workers with a known capacity leave, or for an even share if that is more.
    pub weight: f64,
    /// The least share of the worker, as a factor of an even share. It has to be finite and not negative. Even with a
    /// factor of 0 a worker that is ready has at least one slot.
    pub least_factor: f64,
    /// The greatest share of the worker, as a factor of an even share; 0 means no limit. It has to be finite, and
    /// either 0 or not below [`least_factor`](Joining::least_factor).
    pub greatest_factor: f64,
}

/// The reason why a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// The member has joined already. The value is the number of the member.
    #[error("member {0} has joined already")]
    Joined(MemberId),
    /// As many members have joined as the calendar has slots. The value is the number of slots.
    #[error("{0} members have joined, as many as the calendar has slots")]
    Full(u32),
    /// The weight is not above 0, is above 1000, or is not a number. The value is the weight.
    #[error("the weight is {0}; it has to be a number above 0, up to 1000")]
    Weight(f64),
    /// A factor is not finite, the least factor is negative, or the greatest factor is not 0 and below the least
    /// factor.
    #[error(
        "the factors are {least} and {greatest}; give numbers from 0 on, the second 0 or not below the first"
    )]
    Factors {
        /// The least factor that the worker asked for.
        least: f64,
        /// The greatest factor that the worker asked for.
        greatest: f64,
    },
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
