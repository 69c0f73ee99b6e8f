//! The completion queue that all sessions share.
//!
//! It must never overrun, which would fail the device's queue for good. A session has a bounded number of work requests,
//! so the queue has places for so many sessions; but what an ended session left in it takes places too until it
//! is polled.

use std::collections::VecDeque;

use verbs::{Context, Cq, CqId, Error, Wc};

/// Completions taken at once.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Queue {
    cq: Cq,
    /// Sessions whose work requests all fit.
    places: usize,
    /// Sessions that ended since the queue was empty.
    ended: usize,
    /// Taken to make room, and not looked at yet.
    taken: VecDeque<Wc>,
    /// There were no more when these were taken.
    drained: bool,
}

impl Queue {
    /// For `sessions` with so many work requests each, or as many of them as the device's queue holds.
    pub(super) fn new(context: &Context, sessions: usize, per_session: u32) -> Result<Self, Error> {
        let most = context.attr().max_cqe;
        if most < per_session {
            let remedy = "serve fewer regions per session";
            return Err(Error::Exhausted { what: "completions of a queue", limit: most.into(), remedy });
        }
        let wanted = u32::try_from(sessions).unwrap_or(u32::MAX).saturating_mul(per_session);
        let depth = wanted.clamp(per_session, most);
        let places = sessions.min((depth / per_session) as usize);
        if places < sessions {
            tracing::info!(
                sessions = places,
                asked = sessions,
                "the device's completion queues hold {most}, which is for fewer sessions than asked for"
            );
        }
        Ok(Self { cq: context.create_cq(depth)?, places, ended: 0, taken: VecDeque::new(), drained: false })
    }

    pub(super) fn cq(&self) -> &Cq {
        &self.cq
    }

    pub(super) fn id(&self) -> CqId {
        self.cq.id()
    }

    /// Sessions there may be.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// A session has ended, with completions still queued.
    pub(super) fn session_ended(&mut self) {
        self.ended += 1;
    }

    /// Before another session begins beside `sessions`: takes what waits, if it needs the places.
    pub(super) fn make_room(&mut self, sessions: usize) -> Result<(), Error> {
        while self.ended > 0 && sessions + self.ended >= self.places {
            let mut batch = [Wc::EMPTY; BATCH];
            let count = self.cq.poll(&mut batch)?;
            self.taken.extend(&batch[..count]);
            if count < BATCH {
                self.ended = 0;
            }
        }
        Ok(())
    }

    /// The oldest completion; `None` when there is none for now.
    pub(super) fn next(&mut self) -> Option<Wc> {
        if self.taken.is_empty() && !std::mem::take(&mut self.drained) {
            let mut batch = [Wc::EMPTY; BATCH];
            let count = self.cq.poll(&mut batch).unwrap_or(0);
            self.taken.extend(&batch[..count]);
            if count < BATCH {
                self.ended = 0;
                self.drained = count > 0;
            }
        }
        self.taken.pop_front()
    }
}
