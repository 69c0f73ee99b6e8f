//! The loop's side of a resident.

use std::{
    collections::VecDeque,
    fmt,
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use verbs::{Context, WaitMode, WaitOn};

use super::waker::Bell;
use crate::resident::Resident;

/// So long after there was something the loop looks for more before it sleeps.
const LIVELY: Duration = Duration::from_micros(50);

pub(super) struct Residence {
    pub(super) resident: Box<dyn Resident>,
    /// The device's, once armed.
    device: OwnedFd,
    bell: Bell,
    lively_until: Instant,
    pub(super) closing: VecDeque<(u64, String)>,
}

impl fmt::Debug for Residence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Residence").field("resident", &self.resident).finish_non_exhaustive()
    }
}

impl Residence {
    pub(super) fn new(
        resident: Box<dyn Resident>,
        context: &Context,
        on: WaitOn,
        bell: Bell,
    ) -> Result<Self, verbs::Error> {
        let device = context.descriptor(on)?;
        Ok(Self { resident, device, bell, lively_until: Instant::now(), closing: VecDeque::new() })
    }

    pub(super) fn turn(&mut self, now: Instant) {
        if self.resident.turn(now) {
            self.lively_until = now + LIVELY;
        }
        while let Some((stream, why)) = self.resident.poll_closing() {
            self.closing.push_back((stream.0, why));
        }
    }

    /// Lets the device do what there is to do, and sleeps if nobody has anything.
    pub(super) fn wait(&mut self, context: &Context, on: WaitOn, until: Instant) -> Result<(), verbs::Error> {
        let now = Instant::now();
        if now < self.lively_until || !context.arm(on)? {
            return context.wait(on, WaitMode::Spin, Some(now)).map(drop);
        }
        let until = self.resident.deadline().map_or(until, |at| until.min(at));
        self.resident.sleep(
            &[self.device.as_fd(), self.bell.as_fd()],
            until.saturating_duration_since(Instant::now()),
        );
        self.bell.hear();
        context.wait(on, WaitMode::Spin, Some(Instant::now())).map(drop)
    }
}
