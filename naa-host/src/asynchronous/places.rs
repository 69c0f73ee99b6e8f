//! Places of a pool: how a task gets a place, and how the place is released.

use std::{
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::{runtime::Handle, sync::oneshot, time::sleep_until};

use super::{
    Session, SessionState,
    assignment::{Member, Ticket, Time},
    pool::{Pool, Shapes, is_full},
};
use crate::Error;

/// The request of a task for a place. The task may have to repeat it.
pub(super) struct PlaceRequest<'a> {
    pool: &'a Arc<Pool>,
    /// The ticket of the task, and the time at which the task began to wait; `None` before the first request.
    first: Option<(Ticket, Time)>,
}

impl<'a> PlaceRequest<'a> {
    pub(super) fn new(pool: &'a Arc<Pool>) -> Self {
        Self { pool, first: None }
    }

    /// Waits for a place. Returns `None` if no accelerator can be reached.
    pub(super) async fn wait(&mut self, shapes: &Shapes) -> Option<Member> {
        let (sender, receiver) = oneshot::channel();
        let runtime = Handle::current();
        let ticket = {
            let mut guard = self.pool.lock();
            let state = &mut *guard;
            let ticket = match self.first {
                Some((ticket, since)) => {
                    state.assignment.requeue(ticket, since);
                    ticket
                }
                None => {
                    let now = self.pool.now();
                    self.first.insert((state.assignment.enqueue(now), now)).0
                }
            };
            state.waiting.insert(ticket, sender);
            state.last_shapes = shapes.clone();
            state.runtime = Some(runtime);
            ticket
        };
        let mut queued = Queued { pool: self.pool, ticket, receiver: Some(receiver) };
        let mut deadlines = self.pool.deadline.subscribe();
        self.pool.act();
        loop {
            let deadline = *deadlines.borrow_and_update();
            let due = async {
                match deadline {
                    Some(at) => sleep_until((self.pool.start + at).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = queued.receiver.as_mut()? => {
                    queued.receiver = None;
                    return answer.ok().flatten();
                }
                _ = deadlines.changed() => {}
                () = due => self.pool.act(),
            }
        }
    }
}

/// A task in the queue for places. If it is dropped before the task got an answer, the task is removed from the queue.
struct Queued<'a> {
    pool: &'a Arc<Pool>,
    ticket: Ticket,
    /// The channel on which the answer arrives; `None` after the answer was received.
    receiver: Option<oneshot::Receiver<Option<Member>>>,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        let mut state = self.pool.lock();
        state.assignment.remove(self.ticket);
        state.waiting.remove(&self.ticket);
        // The pool may have given the task a place just before this task took the lock.
        if let Ok(Some(member)) = receiver.try_recv() {
            state.assignment.released(member);
        }
        drop(state);
        self.pool.act();
    }
}

/// A place that a task has on an accelerator. A place that is dropped is released.
#[derive(Debug)]
pub(super) struct Place {
    pool: Arc<Pool>,
    member: Member,
    is_released: bool,
}

impl Place {
    pub(super) fn new(pool: &Arc<Pool>, member: Member) -> Self {
        Self { pool: pool.clone(), member, is_released: false }
    }

    /// Releases the place because session setup failed with `error`. Returns the error if the task must not try another
    /// place.
    pub(super) fn fail(mut self, error: Error) -> Result<(), Error> {
        self.is_released = true;
        let (pool, member, now) = (self.pool.clone(), self.member, self.pool.now());
        let mut closed = Vec::new();
        let mut guard = pool.lock();
        let state = &mut *guard;
        state.counters.accelerators[member].failed += 1;
        let is_alone = state.assignment.load(member).0 == 1;
        let result = match error {
            // The pool has no other session with the accelerator, so the regions themselves must be the problem.
            Error::Peer { .. } if is_alone => {
                state.assignment.released(member);
                Err(error)
            }
            error => {
                if is_full(&error) {
                    state.assignment.full(member, now, pool.random_number(now));
                } else {
                    state.assignment.unreachable(member, now, pool.random_number(now));
                    closed.append(&mut state.idle[member]);
                }
                state.errors[member] = Some(Arc::new(error));
                Ok(())
            }
        };
        drop(guard);
        drop(closed);
        pool.act();
        result
    }

    /// Releases the place together with its session.
    fn release(mut self, shapes: Shapes, session: crate::Session) {
        self.is_released = true;
        let (pool, member, now) = (self.pool.clone(), self.member, self.pool.now());
        let mut closed = Vec::new();
        let mut guard = pool.lock();
        let state = &mut *guard;
        let counters = &mut state.counters.accelerators[member];
        match SessionState::of(&session) {
            SessionState::Idle => {
                closed.extend(pool.keep(state, member, shapes, session));
                state.assignment.released(member);
            }
            SessionState::Over if session.is_peer_gone() => {
                counters.lost += 1;
                closed.push(session);
                // If the accelerator has ended, its other sessions have ended, too.
                closed.extend(state.idle[member].drain(..).map(|(_, session)| session));
                state.assignment.unreachable(member, now, pool.random_number(now));
            }
            // The task left the call before its end, the call took too long, or this machine's device failed.
            SessionState::InCall | SessionState::Over => {
                counters.given_up += 1;
                closed.push(session);
                state.assignment.released(member);
            }
        }
        drop(guard);
        // Sessions are closed after the lock was released, because closing a session takes some time.
        drop(closed);
        pool.act();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_released {
            self.pool.lock().assignment.released(self.member);
            self.pool.act();
        }
    }
}

/// A place with an open session.
#[derive(Debug)]
pub(crate) struct UsedPlace {
    place: Place,
    shapes: Shapes,
    /// The number of calls that earlier tasks posted on the session.
    calls_before: u64,
    /// The flag that says whether the task has posted a call. It is set when the session is released.
    posted: Option<Arc<AtomicBool>>,
}

impl UsedPlace {
    pub(super) fn new(place: Place, shapes: Shapes, session: &crate::Session) -> Self {
        Self { place, shapes, calls_before: session.calls_posted(), posted: None }
    }

    /// Returns true if the task has posted a call on its session.
    pub(crate) fn has_posted(&self, session: &crate::Session) -> bool {
        session.calls_posted() != self.calls_before
    }

    /// Releases the place together with its session.
    pub(crate) fn release(self, session: crate::Session) {
        if let Some(posted) = &self.posted {
            posted.store(self.has_posted(&session), Ordering::Relaxed);
        }
        self.place.release(self.shapes, session);
    }
}

/// A session of a pool. When it is dropped, the pool keeps the session for other tasks, unless the session is over or has
/// a call.
#[derive(Debug)]
pub struct PooledSession(Option<(Session, UsedPlace)>);

impl PooledSession {
    pub(super) fn new(session: crate::Session, place: UsedPlace) -> Result<Self, Error> {
        // If the runtime cannot watch the session, the session is dropped, and so is the place.
        Ok(Self(Some((Session::from_blocking(session)?, place))))
    }

    /// Returns a flag. After the session was dropped, the flag says whether a call was posted. Before, it is true.
    pub(super) fn posted_flag(&mut self) -> Arc<AtomicBool> {
        let posted = Arc::new(AtomicBool::new(true));
        if let Some((_, place)) = &mut self.0 {
            place.posted = Some(posted.clone());
        }
        posted
    }
}

impl Deref for PooledSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0.as_ref().expect("only `drop` takes the session").0
    }
}

impl DerefMut for PooledSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0.as_mut().expect("only `drop` takes the session").0
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some((session, place)) = self.0.take() {
            place.release(session.into_blocking());
        }
    }
}
