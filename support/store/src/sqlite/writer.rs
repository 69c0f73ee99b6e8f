//! The thread that owns the file: it takes what waits, makes one transaction of it and answers.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use super::{
    database::{Database, Outcome},
    lock::{self, Lock, Mark},
};
use crate::{
    Committed, Error,
    history::History,
    queue::{Operation, Queue, Request, Waiter, Write},
};

pub(crate) struct Writer {
    database: Database,
    lock: Lock,
    history: Arc<History>,
}

impl Writer {
    pub(crate) fn new(database: Database, lock: Lock, history: Arc<History>) -> Self {
        Self { database, lock, history }
    }

    /// Serves requests until the queue is closed and empty.
    pub(crate) fn run(mut self, queue: &Queue) {
        while let Some(requests) = queue.take() {
            self.serve(requests);
        }
    }

    /// Changes that follow each other are one group; what reads sees those before it.
    fn serve(&mut self, requests: VecDeque<Request>) {
        let mut group = Vec::new();
        for request in requests {
            match request {
                Request::Write(write) => group.push(write),
                Request::Load(waiter) => {
                    self.commit(mem::take(&mut group));
                    answer(waiter, self.database.load());
                }
                Request::Copy(waiter) => {
                    self.commit(mem::take(&mut group));
                    answer(waiter, self.database.copy());
                }
            }
        }
        self.commit(group);
    }

    fn commit(&mut self, group: Vec<Write>) {
        if group.is_empty() {
            return;
        }
        let operations: Vec<&Operation> = group.iter().map(|write| &write.operation).collect();
        match self.database.transact(&operations) {
            Ok(outcome) => self.acknowledge(group, outcome),
            Err(Error::Full { .. }) if group.len() > 1 => {
                // What one needs must not keep others from what is left.
                group.into_iter().for_each(|write| self.commit(vec![write]));
            }
            Err(why) => group.into_iter().for_each(|write| answer(write.waiter, Err(why.clone()))),
        }
    }

    /// Tells those who follow the store, then those who wait.
    fn acknowledge(&mut self, group: Vec<Write>, Outcome { state, results }: Outcome) {
        let claims = |write: &Write| matches!(write.operation, Operation::Claim { .. });
        let is_claimed = group.iter().zip(&results).any(|(write, result)| claims(write) && result.is_ok());
        // The mark finds losses that nothing else does. What was acknowledged depends on it only if it is a term: when the file is
        // damaged later, the mark alone says which terms were used.
        let marked = self.lock.write(Mark::of(&state));
        let marked = if is_claimed { marked.and_then(|()| self.lock.sync()) } else { Ok(()) };
        let mut committed = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for (write, mut result) in group.into_iter().zip(results) {
            if let (true, Ok(_), Err(why)) = (claims(&write), &result, &marked) {
                let why =
                    format!("the term is not in {}: {why}", lock::path_of(self.database.path()).display());
                result = Err(Error::Unknown { path: self.database.path().to_owned(), why });
            }
            if let (Operation::Append(batch), Ok(revision)) = (write.operation, &result) {
                committed.push(Committed { revision: *revision, batch });
            }
            answers.push((write.waiter, result));
        }
        self.history.add(committed);
        answers.into_iter().for_each(|(waiter, result)| answer(waiter, result));
    }
}

/// A panic of one who is answered concerns nobody else. The panic itself was printed.
fn answer<T>(waiter: Waiter<T>, result: Result<T, Error>) {
    let _ = catch_unwind(AssertUnwindSafe(|| waiter.answer(result)));
}
