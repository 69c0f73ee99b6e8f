//! The thread that owns the file: it takes what waits, makes one transaction of it and answers.

use std::{
    collections::VecDeque,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

use super::{
    Settings,
    database::{Check, Database, Failure, Outcome},
    lock::{Lock, Mark},
};
use crate::{
    Committed, Done, Error,
    history::History,
    queue::{Operation, Queue, Request, Write},
};

pub(crate) struct Writer {
    condition: Condition,
    path: PathBuf,
    settings: Settings,
    lock: Lock,
    /// What was acknowledged last, whatever the lock's file says.
    mark: Mark,
    history: Arc<History>,
}

#[expect(clippy::large_enum_variant, reason = "there is one")]
enum Condition {
    Open(Database),
    /// An error left the file in doubt and it could not be opened again. Each request tries.
    Shut,
}

impl Writer {
    pub(crate) fn new(database: Database, settings: Settings, lock: Lock, history: Arc<History>) -> Self {
        let mark = Mark::of(database.state());
        let path = database.path().to_owned();
        Self { condition: Condition::Open(database), path, settings, lock, mark, history }
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
                Request::Load(done) => {
                    self.commit(mem::take(&mut group));
                    let loaded = self.database().and_then(|database| database.load());
                    answer(done, loaded);
                }
                Request::Copy(done) => {
                    self.commit(mem::take(&mut group));
                    let copied = self.database().and_then(Database::copy);
                    answer(done, copied);
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
        let failure = match self.database().map(|database| database.transact(&operations)) {
            Ok(Ok(outcome)) => return self.acknowledge(group, outcome),
            Ok(Err(failure)) => failure,
            Err(why) => Failure::Refused(why),
        };
        let refused = match failure {
            Failure::Refused(why) => why,
            Failure::Doubtful(why, outcome) => match self.look_again(&outcome) {
                Ok(true) => return self.acknowledge(group, outcome),
                Ok(false) => why,
                Err(again) => {
                    let why = format!("{why}; then: {again}");
                    return refuse(group, &Error::Unknown { path: self.path.clone(), why });
                }
            },
        };
        if matches!(refused, Error::Corrupt { .. }) {
            self.condition = Condition::Shut;
        }
        if matches!(refused, Error::Full { .. }) && group.len() > 1 {
            // What one needs must not keep others from what is left.
            group.into_iter().for_each(|write| self.commit(vec![write]));
        } else {
            refuse(group, &refused);
        }
    }

    /// The open file, opened again if an error shut it.
    fn database(&mut self) -> Result<&mut Database, Error> {
        if matches!(self.condition, Condition::Shut) {
            self.reopen(Check::Everything)?;
            self.history.reopened(self.mark.revision);
        }
        match &mut self.condition {
            Condition::Open(database) => Ok(database),
            Condition::Shut => Err(Error::Closed),
        }
    }

    /// Whether the file has a transaction whose end failed. If it has, it is durable.
    fn look_again(&mut self, outcome: &Outcome) -> Result<bool, Error> {
        let before = self.mark;
        // Before it is opened again it must be closed.
        self.condition = Condition::Shut;
        self.reopen(Check::State)?;
        let stored = self.mark == Mark::of(&outcome.state);
        if !stored && self.mark != before {
            self.condition = Condition::Shut;
            let why = format!("it has revision {}, which was never written", self.mark.revision);
            return Err(Error::Io { path: self.path.clone(), why });
        }
        Ok(stored)
    }

    fn reopen(&mut self, check: Check) -> Result<(), Error> {
        let database = Database::open(&self.path, &self.settings, self.mark, check)?;
        self.mark = Mark::of(database.state());
        self.condition = Condition::Open(database);
        Ok(())
    }

    /// Tells those who follow the store, then those who wait.
    fn acknowledge(&mut self, group: Vec<Write>, Outcome { state, results }: Outcome) {
        self.mark = Mark::of(&state);
        // The mark finds losses that nothing else does. What was acknowledged does not depend on it.
        let _ = self.lock.write(self.mark);
        let mut committed = Vec::new();
        let mut answers = Vec::with_capacity(group.len());
        for (write, result) in group.into_iter().zip(results) {
            if let (Operation::Append(batch), Ok(revision)) = (write.operation, &result) {
                committed.push(Committed { revision: *revision, batch });
            }
            answers.push((write.done, result));
        }
        self.history.add(committed);
        answers.into_iter().for_each(|(done, result)| answer(done, result));
    }
}

fn refuse(group: Vec<Write>, why: &Error) {
    group.into_iter().for_each(|write| answer(write.done, Err(why.clone())));
}

/// A panic of one who is answered concerns nobody else. The panic itself was printed.
fn answer<T>(done: Done<T>, result: Result<T, Error>) {
    let _ = catch_unwind(AssertUnwindSafe(|| done(result)));
}
