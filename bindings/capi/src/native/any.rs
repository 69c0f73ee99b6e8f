//! Waiting for one, or all, of several calls.

use std::{
    borrow::{Borrow, BorrowMut},
    time::Instant,
};

use naa_host::Any;

use super::{
    call::{deadline, report, write},
    naa_session,
    outcome::naa_outcome,
    result::{Problem, naa_result::*},
    session::{SessionHandle, get},
};
use crate::handles::InUse;

/// A call of the program's array of sessions.
struct PendingCall {
    session: InUse<'static, SessionHandle>,
    /// Where in the array.
    place: usize,
}

impl Borrow<naa_host::Session> for PendingCall {
    fn borrow(&self) -> &naa_host::Session {
        &self.session.host
    }
}

impl BorrowMut<naa_host::Session> for PendingCall {
    fn borrow_mut(&mut self) -> &mut naa_host::Session {
        &mut self.session.host
    }
}

/// The calls that are under way.
fn calls(handles: &[*mut naa_session]) -> Result<Vec<PendingCall>, Problem> {
    let mut calls = Vec::with_capacity(handles.len());
    for (place, &handle) in handles.iter().enumerate().filter(|(_, handle)| !handle.is_null()) {
        let session = get(handle).map_err(|misuse| {
            // A handle that occurs twice would otherwise be reported as in use by another thread.
            match handles[..place].contains(&handle) {
                true => Problem::argument(format!("sessions[{place}] is there twice")),
                false => Problem::Which(place, misuse),
            }
        })?;
        if session.host.is_in_call() {
            calls.push(PendingCall { session, place });
        }
    }
    Ok(calls)
}

/// # Safety
/// `outcome` points to a place unless NULL.
pub(super) unsafe fn wait_any(
    handles: &[*mut naa_session],
    timeout_ms: i32,
    found: impl FnOnce(usize) -> Result<(), Problem>,
    outcome: *mut naa_outcome,
) -> Result<(), Problem> {
    let mut calls = calls(handles)?;
    match naa_host::wait_any(&mut calls, deadline(timeout_ms))? {
        Any::NoCall => Ok(()),
        Any::Running => Err(Problem::Late(timeout_ms)),
        Any::Ended(number, ended) => {
            let call = &calls[number];
            found(call.place)?;
            // SAFETY: the caller's contract.
            unsafe { report(&call.session, ended.map(Some), outcome) }.map(drop)
        }
    }
}

/// # Safety
/// `outcomes` points to as many places as there are handles unless NULL.
pub(super) unsafe fn wait_all(
    handles: &[*mut naa_session],
    timeout_ms: i32,
    outcomes: *mut naa_outcome,
) -> Result<(), Problem> {
    let mut calls = calls(handles)?;
    let place = |at: usize| if outcomes.is_null() { outcomes } else { outcomes.wrapping_add(at) };
    for at in 0..handles.len() {
        // SAFETY: the caller's contract.
        unsafe { write(place(at), naa_outcome::NONE) };
    }
    let until = deadline(timeout_ms);
    let mut first: Option<(usize, Problem)> = None;
    for PendingCall { session, place: at } in &mut calls {
        // SAFETY: the caller's contract.
        let ended = unsafe { one_of_all(session, until, place(*at)) };
        let problem = match ended {
            Ok(true) => continue,
            Ok(false) => Problem::Late(timeout_ms),
            Err(problem) => problem,
        };
        let is_late = |problem: &Problem| matches!(problem, Problem::Late(_));
        // That some still run counts most.
        if first.as_ref().is_none_or(|(_, before)| is_late(&problem) && !is_late(before)) {
            first = Some((*at, problem));
        }
    }
    first.map_or(Ok(()), |(_, problem)| Err(problem))
}

/// # Safety
/// `outcome` points to a place unless NULL.
unsafe fn one_of_all(
    session: &mut SessionHandle,
    until: Option<Instant>,
    outcome: *mut naa_outcome,
) -> Result<bool, Problem> {
    let waited = session.host.wait_until(until);
    // SAFETY: the caller's contract.
    let ended = unsafe { report(session, waited, outcome) }?;
    if !ended {
        let running = naa_outcome::without_answer(NAA_ERROR_TIMEOUT, session.function);
        // SAFETY: the same.
        unsafe { write(outcome, running) };
    }
    Ok(ended)
}
