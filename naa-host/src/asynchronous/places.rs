//! Places of a pool: how a task gets one, and how it is given back.

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
    pool::{Pool, Shapes, is_full},
    roster::{Member, Ticket, Time},
};
use crate::Error;

/// A task that asks for a place.
pub(super) struct Asking<'a> {
    pool: &'a Arc<Pool>,
    /// The ticket of the task, and the time at which it asked first.
    first: Option<(Ticket, Time)>,
}

impl<'a> Asking<'a> {
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
                    state.roster.ask_again(ticket, since);
                    ticket
                }
                None => {
                    let now = self.pool.now();
                    self.first.insert((state.roster.ask(now), now)).0
                }
            };
            state.waiting.insert(ticket, sender);
            state.last_shapes = shapes.clone();
            state.runtime = Some(runtime);
            ticket
        };
        let mut waiting = Waiting { pool: self.pool, ticket, receiver: Some(receiver) };
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
                answer = waiting.receiver.as_mut()? => {
                    waiting.receiver = None;
                    return answer.ok().flatten();
                }
                _ = deadlines.changed() => {}
                () = due => self.pool.act(),
            }
        }
    }
}

/// A task that waits for the answer of the pool. If it is dropped before, the task leaves the queue.
struct Waiting<'a> {
    pool: &'a Arc<Pool>,
    ticket: Ticket,
    /// `None` when the answer was received.
    receiver: Option<oneshot::Receiver<Option<Member>>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        let mut state = self.pool.lock();
        state.roster.leave(self.ticket);
        state.waiting.remove(&self.ticket);
        // The pool may have given the task a place at the same moment.
        if let Ok(Some(member)) = receiver.try_recv() {
            state.roster.returned(member);
        }
        drop(state);
        self.pool.act();
    }
}

/// A place that a task has. It is given back when it is dropped.
#[derive(Debug)]
pub(super) struct Lent {
    pool: Arc<Pool>,
    member: Member,
    /// True if the place was given back.
    is_over: bool,
}

impl Lent {
    pub(super) fn new(pool: &Arc<Pool>, member: Member) -> Self {
        Self { pool: pool.clone(), member, is_over: false }
    }

    /// Gives the place back because no session could be set up. Returns the error if no other accelerator need be tried.
    pub(super) fn fail(mut self, error: Error) -> Result<(), Error> {
        self.is_over = true;
        let (pool, member, now) = (self.pool.clone(), self.member, self.pool.now());
        let mut closed = Vec::new();
        let mut guard = pool.lock();
        let state = &mut *guard;
        state.counters.accelerators[member].failed += 1;
        let is_alone = state.roster.load(member).0 == 1;
        let result = match error {
            // The accelerator refuses the regions although this pool has no other session with it.
            Error::Peer { .. } if is_alone => {
                state.roster.returned(member);
                Err(error)
            }
            error => {
                if is_full(&error) {
                    state.roster.full(member, now, pool.dice(now));
                } else {
                    state.roster.lost(member, now, pool.dice(now));
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

    /// Gives the place back with its session.
    fn give_back(mut self, shapes: Shapes, session: Session) {
        self.is_over = true;
        let (pool, member, now) = (self.pool.clone(), self.member, self.pool.now());
        let mut closed = Vec::new();
        let mut guard = pool.lock();
        let state = &mut *guard;
        let counters = &mut state.counters.accelerators[member];
        match session.state() {
            SessionState::Idle => {
                closed.extend(pool.keep(state, member, shapes, session));
                state.roster.returned(member);
            }
            SessionState::InCall => {
                counters.given_up += 1;
                closed.push(session.into_blocking());
                state.roster.returned(member);
            }
            SessionState::Over if session.is_peer_gone() => {
                counters.lost += 1;
                closed.push(session.into_blocking());
                // If the accelerator has ended, its other sessions have ended, too.
                closed.extend(state.idle[member].drain(..).map(|(_, session)| session));
                state.roster.lost(member, now, pool.dice(now));
            }
            // A call took too long, or this machine's device failed.
            SessionState::Over => {
                counters.given_up += 1;
                closed.push(session.into_blocking());
                state.roster.returned(member);
            }
        }
        drop(guard);
        // Sessions are closed without the lock, because closing talks to the device.
        drop(closed);
        pool.act();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.is_over {
            self.pool.lock().roster.returned(self.member);
            self.pool.act();
        }
    }
}

/// A session of a pool. When it is dropped, the pool keeps the session for other tasks, unless the session is over or has
/// a call.
#[derive(Debug)]
pub struct PooledSession(Option<Parts>);

/// What a pooled session consists of.
#[derive(Debug)]
pub(super) struct Parts {
    session: Session,
    shapes: Shapes,
    lent: Lent,
    /// The number of calls that were posted before the task got the session.
    calls: u64,
    /// Where the drop of the session notes whether the task has posted a call.
    posted: Option<Arc<AtomicBool>>,
}

impl PooledSession {
    pub(super) fn new(session: Session, shapes: Shapes, lent: Lent) -> Self {
        let calls = session.calls_posted();
        Self(Some(Parts { session, shapes, lent, calls, posted: None }))
    }

    /// Returns a flag that says whether a call was posted, once the session was dropped; until then it is true.
    pub(super) fn note_posted(&mut self) -> Arc<AtomicBool> {
        let posted = Arc::new(AtomicBool::new(true));
        if let Some(parts) = &mut self.0 {
            parts.posted = Some(posted.clone());
        }
        posted
    }

    /// Takes the pooled session apart, so that a blocking program can use the session.
    pub(crate) fn into_blocking(mut self) -> (crate::Session, BlockingPlace) {
        let Parts { session, shapes, lent, .. } =
            self.0.take().expect("only `drop` and this method take the parts");
        (session.into_blocking(), BlockingPlace { shapes, lent })
    }
}

/// The place of a session that a blocking program uses.
#[derive(Debug)]
pub(crate) struct BlockingPlace {
    shapes: Shapes,
    lent: Lent,
}

impl BlockingPlace {
    /// Gives the place back with its session. The calling thread must have entered the pool's runtime.
    pub(crate) fn give_back(self, session: crate::Session) {
        // If the session cannot be watched any more, it is closed, and its place is free.
        if let Ok(session) = Session::from_blocking(session) {
            self.lent.give_back(self.shapes, session);
        }
    }
}

impl Deref for PooledSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0.as_ref().expect("only `drop` takes the parts").session
    }
}

impl DerefMut for PooledSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.0.as_mut().expect("only `drop` takes the parts").session
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        if let Some(Parts { session, shapes, lent, calls, posted }) = self.0.take() {
            if let Some(posted) = posted {
                posted.store(session.calls_posted() != calls, Ordering::Relaxed);
            }
            lent.give_back(shapes, session);
        }
    }
}
