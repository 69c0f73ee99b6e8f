//! The completion queue that all sessions share.
//!
//! The completion queue must never overrun, because an overrun makes a completion queue of the device unusable. A
//! session has a bounded number of work requests, and each work request makes at most one completion. The length of the
//! completion queue therefore limits the number of sessions. The completions of an ended session take room in the
//! completion queue until they are polled.

use std::collections::VecDeque;

use verbs::{Channel, CmEvent, Context, Cq, CqId, Error, Wc};

/// The maximum number of completions that one poll takes from the completion queue.
const BATCH: usize = 64;

#[derive(Debug)]
pub(super) struct SharedCq {
    cq: Cq,
    /// The maximum number of sessions. The completion queue has room for all completions of this number of sessions.
    places: usize,
    /// The number of sessions that ended since the completion queue was last empty.
    ended: usize,
    /// Completions that were polled and not handled yet.
    taken: VecDeque<Wc>,
    /// True if the last poll emptied the completion queue. If this flag is true and all polled completions are handled,
    /// the next call of [`Self::next`] returns `None` without a poll.
    drained: bool,
    /// The memory for the completions of one poll.
    batch: Box<[Wc; BATCH]>,
}

impl SharedCq {
    /// Makes a completion queue for `sessions` sessions with `per_session` work requests each. If the device does not
    /// support a completion queue of this length, the completion queue has room for fewer sessions.
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
        Ok(Self {
            cq: context.create_cq(depth)?,
            places,
            ended: 0,
            taken: VecDeque::new(),
            drained: false,
            batch: Box::new([Wc::EMPTY; BATCH]),
        })
    }

    pub(super) fn cq(&self) -> &Cq {
        &self.cq
    }

    pub(super) fn id(&self) -> CqId {
        self.cq.id()
    }

    /// The maximum number of sessions that may exist at once.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// Counts one more ended session in `self.ended`. The completions of this session may still take room in the
    /// completion queue.
    pub(super) fn session_ended(&mut self) {
        self.ended += 1;
    }

    /// Makes room in the completion queue for one more session. `sessions` is the number of open sessions. If
    /// completions of ended sessions may take the room that the new session needs, the completion queue is polled until
    /// it is empty.
    ///
    /// # Errors
    /// Fails with the device's error if the completion queue cannot be polled.
    pub(super) fn make_room(&mut self, sessions: usize) -> Result<(), Error> {
        while self.ended > 0 && sessions + self.ended >= self.places {
            self.poll()?;
        }
        Ok(())
    }

    /// Takes the oldest completion. Returns `None` if no completion is queued, or if the completion queue cannot be
    /// polled. One poll can take several completions, of which each call returns one. If the poll emptied the
    /// completion queue, the call that follows the last of these completions returns `None` and does not poll.
    pub(super) fn next(&mut self) -> Option<Wc> {
        if self.taken.is_empty()
            && !std::mem::take(&mut self.drained)
            && let Ok(count) = self.poll()
        {
            self.drained = (1..BATCH).contains(&count);
        }
        self.taken.pop_front()
    }

    /// Polls completions as [`Self::next`] does, and takes the oldest CM event of `channel` with the same call of the
    /// device. The CM event must be handled before the completions. Returns `None` if there is no CM event, or if the
    /// device cannot be polled.
    pub(super) fn poll_with(&mut self, context: &Context, channel: &Channel) -> Option<CmEvent> {
        let (count, event) = context.poll(&self.cq, channel, &mut self.batch[..]).ok()?;
        self.took(count);
        self.drained = count < BATCH;
        event
    }

    /// Polls at most [`BATCH`] completions, adds them to `self.taken`, and returns their number. If the number is below
    /// [`BATCH`], the completion queue is empty now. `self.ended` then becomes 0, because no completions of ended
    /// sessions are left in the completion queue.
    ///
    /// # Errors
    /// Fails with the device's error if the completion queue cannot be polled. After an error, `self.taken` and
    /// `self.ended` are unchanged.
    fn poll(&mut self) -> Result<usize, Error> {
        let count = self.cq.poll(&mut self.batch[..])?;
        self.took(count);
        Ok(count)
    }

    fn took(&mut self, count: usize) {
        self.taken.extend(&self.batch[..count]);
        if count < BATCH {
            self.ended = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::DeviceModel;

    #[test]
    fn a_failed_poll_does_not_count_as_an_empty_queue() {
        let mut queue = SharedCq::new(&Context::new(Arc::new(DeviceModel::default())), 1, 1).unwrap();
        queue.session_ended();
        assert!(queue.next().is_none());
        assert!(queue.make_room(0).is_err(), "the completions of the ended session may still be queued");
    }
}
