//! Taking what happened: at once, after a short wait, or when it is there.

use std::time::{Duration, Instant};

use naa_host::{SetupStage, WaitMode};

use super::{
    super::{context::State, error::Error},
    HostContext, Phase,
};

/// Programs wait in loops around `naaice_poll_cq_nonblocking`. Each poll of such a loop sleeps this long, or until the
/// response.
const NAP: Duration = Duration::from_millis(100);
/// A program that polls again sooner than this has done nothing meanwhile but look at the state.
const AT_ONCE: Duration = Duration::from_micros(10);
/// A wait without time limit looks this often whether the regions are to be given up.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the program does nothing but poll.
#[derive(Debug, Default)]
pub(super) struct PollPacing {
    left: Option<Instant>,
}

impl PollPacing {
    /// The time until which a poll may wait. A program that computes between polls is not made to wait.
    fn until(&self) -> Instant {
        let now = Instant::now();
        let waits = self.left.is_some_and(|left| now.duration_since(left) < AT_ONCE);
        if waits { now + NAP } else { now }
    }
}

/// What a poll came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poll {
    /// State MRSP_DONE, or FINISHED.
    Done,
    Pending,
}

impl HostContext {
    /// `naaice_poll_cq_nonblocking`.
    pub(crate) fn poll(&mut self) -> Result<(), Error> {
        let until = self.polling.until();
        let polled = self.wait_until(Some(until));
        self.polling.left = Some(Instant::now());
        polled.map(drop)
    }

    /// `naaice_poll_cq_blocking`: until there is an answer, or the context's timeout has passed.
    pub(crate) fn wait(&mut self) -> Result<(), Error> {
        let timeout = self.timeout();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let waited = match self.has_own_timeout() {
            true => self.without_call_timeout(|host| host.wait_until(deadline)),
            false => self.wait_until(deadline),
        };
        match (waited?, timeout) {
            (Poll::Pending, Some(timeout)) => Err(Error::TimedOut(timeout)),
            _ => Ok(()),
        }
    }

    /// `naaice_poll_cq_busy`: the same, without sleeping.
    pub(crate) fn spin(&mut self) -> Result<(), Error> {
        self.set_wait_mode(WaitMode::Spin);
        let spun = self.wait();
        self.set_wait_mode(WaitMode::default());
        spun
    }

    /// While `f` runs, `NAA_TIMEOUT` does not end a call.
    fn without_call_timeout<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let Phase::Session(session) = &mut self.phase else { return f(self) };
        let limit = session.call_timeout();
        session.set_call_timeout(None);
        let value = f(self);
        if let Phase::Session(session) = &mut self.phase {
            session.set_call_timeout(limit);
        }
        value
    }

    /// Sets the wait mode of calls; session setup always sleeps.
    fn set_wait_mode(&mut self, mode: WaitMode) {
        if let Phase::Session(session) = &mut self.phase {
            session.set_wait_mode(mode);
        }
    }

    /// `naaice_do_mrsp`.
    pub(crate) fn agree(&mut self) -> Result<(), Error> {
        self.start_agreeing()?;
        self.wait()
    }

    /// `naaice_do_data_transfer`.
    pub(crate) fn call(&mut self) -> Result<(), Error> {
        self.invoke()?;
        self.wait()
    }

    /// Takes what has happened.
    fn step(&mut self) -> Result<Poll, Error> {
        match &mut self.phase {
            Phase::Opening(_) => self.step_agreeing(),
            Phase::Session(session) if session.is_in_call() => match session.test() {
                Ok(Some(outcome)) => {
                    self.finish(outcome);
                    Ok(Poll::Done)
                }
                Ok(None) => {
                    if session.is_sent() {
                        self.public.set_state(State::DataReceiving);
                    }
                    Ok(Poll::Pending)
                }
                Err(error) => Err(self.session_error(error)),
            },
            // The answer was taken before.
            Phase::Session(_) if self.public.calls() > 0 => Ok(Poll::Done),
            _ => Err(self.not_now("a poll", "after naaice_init_mrsp or naaice_init_data_transfer")),
        }
    }

    fn step_agreeing(&mut self) -> Result<Poll, Error> {
        let Phase::Opening(opening) = &mut self.phase else { return Ok(Poll::Pending) };
        if opening.stage() < SetupStage::Agreeing {
            return Err(self.not_now("a poll", "after naaice_init_mrsp or naaice_init_data_transfer"));
        }
        match opening.step() {
            Ok(SetupStage::Agreed) => {
                self.agreed();
                Ok(Poll::Done)
            }
            Ok(_) if self.give_up.is_some_and(|limit| Instant::now() >= limit) => {
                let late = opening.late();
                Err(self.fail(late.into()))
            }
            Ok(_) => {
                self.public.set_state(State::MrspReceiving);
                Ok(Poll::Pending)
            }
            Err(error) => Err(self.fail(error.into())),
        }
    }

    fn agreed(&mut self) {
        let phase = std::mem::replace(&mut self.phase, Phase::Fresh);
        let Phase::Opening(opening) = phase else { return };
        if let Some(session) = opening.into_session() {
            self.phase = Phase::Session(Box::new(session));
            self.give_up = None;
            self.public.set_state(State::MrspDone);
        }
    }

    /// Takes what has happened, and waits for it until `deadline`.
    fn wait_until(&mut self, deadline: Option<Instant>) -> Result<Poll, Error> {
        loop {
            if self.step()? == Poll::Done {
                return Ok(Poll::Done);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Poll::Pending);
            }
            match &mut self.phase {
                Phase::Opening(opening) => {
                    let look = now + LOOK;
                    let until = [deadline, self.give_up].into_iter().flatten().fold(look, Instant::min);
                    if let Err(error) = opening.wait(until) {
                        return Err(self.fail(error.into()));
                    }
                }
                Phase::Session(session) => match session.wait_until(deadline) {
                    Ok(Some(outcome)) => {
                        self.finish(outcome);
                        return Ok(Poll::Done);
                    }
                    Ok(None) => {}
                    Err(error) => return Err(self.session_error(error)),
                },
                Phase::Fresh | Phase::Over(_) => {}
            }
        }
    }
}
