//! What waits for the thread that writes.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{Batch, Done, Error, Revision, Snapshot, Term};

/// Requests that wait at most.
pub const MAX_WAITING: usize = 1024;

/// Bytes of keys, values and [`Change`](crate::Change)s that wait at most.
pub const MAX_WAITING_BYTES: usize = 16 << 20;

/// What changes the store.
#[derive(Debug)]
pub(crate) enum Operation {
    Append(Batch),
    Claim { seen: Term, next: Term },
}

/// The receiver of a result. If a waiter is dropped without a result, because the thread that writes panicked, it receives the
/// error that nothing is known.
pub(crate) struct Waiter<T> {
    store: Arc<Path>,
    done: Option<Done<T>>,
}

impl<T> Waiter<T> {
    pub(crate) fn new(store: &Arc<Path>, done: Done<T>) -> Self {
        Self { store: store.clone(), done: Some(done) }
    }

    pub(crate) fn answer(mut self, result: Result<T, Error>) {
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl<T> Drop for Waiter<T> {
    fn drop(&mut self) {
        let Some(done) = self.done.take() else { return };
        let why = "the thread that writes ended".to_owned();
        let unknown = Error::Unknown { path: self.store.to_path_buf(), why };
        // The thread unwinds already: another panic may not leave this.
        let _ = catch_unwind(AssertUnwindSafe(|| done(Err(unknown))));
    }
}

/// A change and who waits for it.
pub(crate) struct Write {
    pub(crate) operation: Operation,
    pub(crate) waiter: Waiter<Revision>,
}

pub(crate) enum Request {
    Write(Write),
    Load(Waiter<Snapshot>),
    /// All of the database as the bytes of a file.
    Copy(Waiter<Vec<u8>>),
}

impl Request {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(Write { operation: Operation::Append(batch), .. }) => batch.memory(),
            Self::Write(_) | Self::Load(_) | Self::Copy(_) => 0,
        }
    }

    pub(crate) fn refuse(self, why: Error) {
        match self {
            Self::Write(write) => write.waiter.answer(Err(why)),
            Self::Load(waiter) => waiter.answer(Err(why)),
            Self::Copy(waiter) => waiter.answer(Err(why)),
        }
    }
}

/// What to do when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    Wait,
    Refuse,
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
    room: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Request>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request that cannot be taken is refused at once.
    pub(crate) fn push(&self, request: Request, no_room: NoRoom) {
        let bytes = request.bytes();
        let mut waiting = self.lock();
        let full = |w: &Waiting| {
            w.requests.len() >= MAX_WAITING || (w.bytes > 0 && w.bytes + bytes > MAX_WAITING_BYTES)
        };
        while no_room == NoRoom::Wait && !waiting.closed && full(&waiting) {
            waiting = self.room.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.closed || full(&waiting) {
            let refusal = if waiting.closed { Error::Closed } else { Error::Busy };
            drop(waiting);
            return request.refuse(refusal);
        }
        waiting.bytes += bytes;
        waiting.requests.push_back(request);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Everything that waits, at least one request; nothing when the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<VecDeque<Request>> {
        let mut waiting = self.lock();
        while waiting.requests.is_empty() {
            if waiting.closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.bytes = 0;
        let requests = mem::take(&mut waiting.requests);
        drop(waiting);
        self.room.notify_all();
        Some(requests)
    }

    /// Takes no more requests. Requests that already wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
        self.room.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;
    use crate::Term;

    #[test]
    fn whoever_waits_is_answered_if_the_thread_that_took_the_requests_panics() {
        let queue = Queue::default();
        let store = Arc::from(Path::new("store"));
        let (sender, results) = mpsc::channel();
        let claim = |done| {
            let operation = Operation::Claim { seen: Term(0), next: Term(1) };
            queue
                .push(Request::Write(Write { operation, waiter: Waiter::new(&store, done) }), NoRoom::Refuse);
        };
        let other = sender.clone();
        claim(Box::new(move |result| sender.send(result).expect("the test waits")));
        claim(Box::new(|_| panic!("on purpose, too")));
        claim(Box::new(move |result| other.send(result).expect("the test waits")));
        let ended = thread::scope(|scope| {
            let taken = scope.spawn(|| {
                let _taken = queue.take();
                panic!("on purpose");
            });
            taken.join()
        });
        assert!(ended.is_err());
        let answers: Vec<_> = results.iter().collect();
        let why = "the thread that writes ended".to_owned();
        let unknown = Error::Unknown { path: store.to_path_buf(), why };
        assert_eq!(answers, [Err(unknown.clone()), Err(unknown)]);
    }
}
