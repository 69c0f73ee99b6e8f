//! The completion queue that all sessions share.
//!
//! It must never overrun, since that would end the device's queue for good. A session has a bounded number of work
//! requests, so the queue has places for a number of sessions. The completions that an ended session left in it take
//! places too until they are polled.

use std::collections::VecDeque;

use verbs::{Context, Cq, CqId, Error, Wc};

/// The most completions that are taken at once.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct Queue {
    cq: Cq,
    /// The number of sessions whose work requests all fit.
    places: usize,
    /// The number of sessions that ended since the queue was last empty.
    ended: usize,
    /// Completions that were taken to make room, and not looked at yet.
    taken: VecDeque<Wc>,
    /// Whether the queue was empty after these were taken.
    drained: bool,
}

impl Queue {
    /// Makes a queue for `sessions` with so many work requests each, or for as many of them as the device's queue can
    /// hold.
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

    /// The most sessions that there may be.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// Counts a session that has ended; its completions are still queued.
    pub(super) fn session_ended(&mut self) {
        self.ended += 1;
    }

    /// Takes queued completions if their places are needed. Call this before another session begins beside `sessions`.
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
