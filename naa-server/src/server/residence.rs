//! The part of the server loop that drives a loop service.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use verbs::{Context, WaitMode, WaitOn};

use crate::resident::Resident;

/// The time after the last activity for which the loop polls before it waits.
const LIVELY: Duration = Duration::from_micros(50);

#[derive(Debug)]
pub(super) struct Residence {
    pub(super) resident: Box<dyn Resident>,
    lively_until: Instant,
    pub(super) closing: VecDeque<(u64, String)>,
}

impl Residence {
    pub(super) fn new(resident: Box<dyn Resident>) -> Self {
        Self { resident, lively_until: Instant::now(), closing: VecDeque::new() }
    }

    pub(super) fn turn(&mut self, now: Instant) {
        if self.resident.turn(now) {
            self.lively_until = now + LIVELY;
        }
        while let Some((stream, why)) = self.resident.poll_closing() {
            self.closing.push_back((stream.0, why));
        }
    }

    /// Lets the device make progress, and waits if neither the device nor the loop service has work.
    pub(super) fn wait(&mut self, context: &Context, on: WaitOn, until: Instant) -> Result<(), verbs::Error> {
        let now = Instant::now();
        if now < self.lively_until {
            return context.wait(on, WaitMode::Spin, Some(now)).map(drop);
        }
        let until = self.resident.deadline().map_or(until, |at| until.min(at));
        context.wait_beside(on, self.resident.descriptor(), Some(until))?;
        self.resident.woken();
        Ok(())
    }
}
