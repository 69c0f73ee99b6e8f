//! A function that waits until the first of several calls ends.

use std::{
    borrow::BorrowMut,
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, poll};
use verbs::WaitMode;

use crate::{CallOutcome, Error, Session, clock::timespec};

/// The result of waiting for several calls.
#[derive(Debug)]
#[must_use = "the call may have failed"]
pub enum Any {
    /// The call of a session has ended, or the session itself has ended. The number is the session's index in the slice
    /// that was passed to [`wait_any`].
    Ended(usize, Result<CallOutcome, Error>),
    /// All calls still run at the deadline.
    Running,
    /// No session had a call.
    NoCall,
}

/// The time for which adaptive waits spin before they sleep.
pub(crate) const SPIN: Duration = Duration::from_micros(50);

/// Waits until a call of one of `sessions` has ended, or until `deadline`. Sessions without a call are ignored. The
/// [`WaitMode`] of the first session with a call is used for all sessions.
///
/// # Errors
/// Fails with [`Error::Device`] if the file descriptors on which the thread sleeps cannot be created or polled. After
/// [`Error::Device`], all calls continue to run.
pub fn wait_any<S: BorrowMut<Session>>(sessions: &mut [S], deadline: Option<Instant>) -> Result<Any, Error> {
    let mut running = sessions.iter().enumerate().filter(|(_, session)| (*session).borrow().is_in_call());
    let Some((first, session)) = running.next() else { return Ok(Any::NoCall) };
    let mode = session.borrow().wait_mode();
    if running.next().is_none() {
        let ended = sessions[first].borrow_mut().wait_until(deadline);
        return Ok(ended.transpose().map_or(Any::Running, |ended| Any::Ended(first, ended)));
    }
    if let Some(ended) = look(sessions, deadline, mode) {
        return Ok(ended);
    }
    sleep(sessions, deadline)
}

/// Returns [`Any::Ended`] if a call has ended, and [`Any::Running`] if `deadline` has passed. Returns `None` if the
/// function stops checking before a call has ended or `deadline` has passed; the caller then sleeps. With
/// [`WaitMode::Block`], the function checks the sessions only once. With [`WaitMode::Adaptive`], the function checks
/// the sessions repeatedly for the time `SPIN`. With [`WaitMode::Spin`], the function checks the sessions repeatedly
/// until `deadline`.
fn look<S: BorrowMut<Session>>(sessions: &mut [S], deadline: Option<Instant>, mode: WaitMode) -> Option<Any> {
    let mut until = None;
    loop {
        for (number, session) in sessions.iter_mut().enumerate() {
            let session = session.borrow_mut();
            if session.is_in_call()
                && let Some(ended) = session.look().transpose()
            {
                return Some(Any::Ended(number, ended));
            }
        }
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Any::Running);
        }
        let until = *until.get_or_insert(now + SPIN);
        match mode {
            WaitMode::Block => return None,
            WaitMode::Adaptive if now >= until => return None,
            WaitMode::Adaptive | WaitMode::Spin => drive(sessions, now),
        }
    }
}

/// Lets the device of each session with a call make progress, since perhaps no other thread drives the devices while
/// this thread waits. If several successive sessions with a call share a device, this device makes progress only once
/// for all of them.
fn drive<S: BorrowMut<Session>>(sessions: &mut [S], now: Instant) {
    let mut last: Option<usize> = None;
    for at in 0..sessions.len() {
        let (before, rest) = sessions.split_at_mut(at);
        let session = rest[0].borrow_mut();
        if !session.is_in_call() {
            continue;
        }
        if last.is_none_or(|last| !before[last].borrow().shares_device_with(session)) {
            session.turn(now);
        }
        last = Some(at);
    }
    std::thread::yield_now();
}

/// Sleeps on the file descriptors of all sessions until a call has ended, or until `deadline`.
fn sleep<S: BorrowMut<Session>>(sessions: &mut [S], deadline: Option<Instant>) -> Result<Any, Error> {
    // The loop tests only the sessions for which `readable` is true: first all sessions, and after each sleep the
    // sessions whose file descriptor became readable.
    let mut readable = vec![true; sessions.len()];
    loop {
        for (number, session) in sessions.iter_mut().enumerate().filter(|(number, _)| readable[*number]) {
            let session = session.borrow_mut();
            if !session.is_in_call() {
                continue;
            }
            session.descriptor()?;
            if let Some(ended) = session.test().transpose() {
                return Ok(Any::Ended(number, ended));
            }
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Any::Running);
        }
        readable.fill(false);
        let (mut fds, mut numbers) = (Vec::with_capacity(sessions.len()), Vec::with_capacity(sessions.len()));
        for (number, session) in sessions.iter_mut().enumerate() {
            let session = session.borrow_mut();
            if session.is_in_call() {
                fds.push(PollFd::from_borrowed_fd(session.descriptor()?, PollFlags::IN));
                numbers.push(number);
            }
        }
        match poll(&mut fds, left.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return Err(verbs::Error::io("cannot sleep until a call ends", error.into()).into());
            }
        }
        for (fd, number) in fds.iter().zip(numbers) {
            readable[number] = !fd.revents().is_empty();
        }
    }
}
