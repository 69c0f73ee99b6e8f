//! Calls.

use std::time::{Duration, Instant};

use mrsp::builtin::{BLOCK_BYTES, StatusBlock};
use naa_host::{FunctionCode, U24};

use super::{
    any, naa_result,
    outcome::naa_outcome,
    result::{Problem, guarded, naa_result::*},
    session::{SessionHandle, get, give, naa_session},
};
use crate::boundary;

/// *index of naa_call_wait_any(): no call was under way.
pub const NAA_UNDEFINED: i64 = -1;

/// Codes of built-in functions, which have a status block.
const BUILT_IN: std::ops::RangeInclusive<u8> = 16..=63;

/// Starts a call and returns: sends the inputs and has `function`, 1 to 127, run. `user` are 24 bits that the function
/// may look at. The regions belong to the call until naa_call_test() or a wait reported its end.
///
/// NAA_ERROR_STATE if a call is under way; NAA_ERROR_ARGUMENT; NAA_ERROR_OVER; after NAA_ERROR_GONE, NAA_ERROR_PEER and
/// NAA_ERROR_DEVICE the session is over and there is no call to wait for.
///
/// # Safety
/// The memory of the regions is as naa_session_connect() wants it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call_start(session: *mut naa_session, function: i32, user: u32) -> naa_result {
    guarded(|| start(&mut *get(session)?, function, user))
}

/// Sets `done` to whether the call has ended, without waiting. If so, `outcome`, unless NULL, is how.
///
/// NAA_ERROR_FUNCTION if the function failed; NAA_ERROR_GONE, NAA_ERROR_PEER and NAA_ERROR_DEVICE if the session is over: the
/// call has ended then too. NAA_ERROR_STATE if no call is under way. Progress is made whether or not a program tests.
///
/// # Safety
/// `done` points to a bool, `outcome` to a naa_outcome unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call_test(
    session: *mut naa_session,
    done: *mut bool,
    outcome: *mut naa_outcome,
) -> naa_result {
    guarded(|| {
        let session = &mut *get(session)?;
        // SAFETY: the caller's contract.
        unsafe { give(done, false, "done") }?;
        let tested = session.host.test();
        let ended = !session.host.is_in_call();
        // SAFETY: the caller's contract.
        unsafe {
            give(done, ended, "done")?;
            report(session, tested, outcome).map(drop)
        }
    })
}

/// Waits at most `timeout_ms` milliseconds for the call to end; 0 only looks, a negative number is no limit. `outcome`,
/// unless NULL, is how it ended.
///
/// NAA_ERROR_TIMEOUT if it is still running, and goes on: this limits the wait, naa_options.call_timeout_ms or NAA_TIMEOUT
/// the call. Otherwise it returns what naa_call_test() returns.
///
/// # Safety
/// `outcome` points to a naa_outcome unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call_wait(
    session: *mut naa_session,
    timeout_ms: i32,
    outcome: *mut naa_outcome,
) -> naa_result {
    // SAFETY: the caller's contract.
    guarded(|| unsafe { wait(&mut *get(session)?, timeout_ms, outcome) })
}

/// Calls `function` and waits: naa_call_start() and naa_call_wait() in one.
///
/// NAA_OK if the function succeeded. After NAA_ERROR_TIMEOUT the call goes on; wait for it again, or close the session.
///
/// # Safety
/// The same as of naa_call_start() and naa_call_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call(
    session: *mut naa_session,
    function: i32,
    user: u32,
    timeout_ms: i32,
    outcome: *mut naa_outcome,
) -> naa_result {
    guarded(|| {
        let session = &mut *get(session)?;
        start(session, function, user)?;
        // SAFETY: the caller's contract.
        unsafe { wait(session, timeout_ms, outcome) }
    })
}

/// Waits for the first of several calls to end, as MPI_Waitany() does: `index` becomes the number of its session in
/// `sessions`, which has `count`, and `outcome`, unless NULL, is how it ended. Sessions without a call and NULL are passed
/// over; if there are no others, `index` becomes NAA_UNDEFINED and NAA_OK is returned at once. `timeout_ms` is as for
/// naa_call_wait(); 0 tests all.
///
/// NAA_ERROR_TIMEOUT if all still run, with NAA_UNDEFINED; else as naa_call_wait() for the session at `index`.
/// NAA_ERROR_ARGUMENT and NAA_ERROR_STATE, with NAA_UNDEFINED, if a session is none, is in use by another thread or is there
/// twice.
///
/// # Safety
/// `sessions` points to `count` handles, `index` to a number, `outcome` to a naa_outcome unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call_wait_any(
    sessions: *const *mut naa_session,
    count: usize,
    timeout_ms: i32,
    index: *mut i64,
    outcome: *mut naa_outcome,
) -> naa_result {
    guarded(|| {
        // SAFETY: the caller's contract.
        unsafe {
            give(index, NAA_UNDEFINED, "index")?;
            any::wait_any(
                handles(sessions, count)?,
                timeout_ms,
                |at| give(index, at as i64, "index"),
                outcome,
            )
        }
    })
}

/// Waits for all calls of several sessions to end, as MPI_Waitall() does. `outcomes`, unless NULL, has a place for each of
/// `count` sessions; where there was no call, .function becomes 0. `timeout_ms` is for all together.
///
/// NAA_OK if all succeeded. NAA_ERROR_TIMEOUT if some still run: their .result is NAA_ERROR_TIMEOUT, and they go on.
/// Otherwise, the first failure in the order of `sessions`; .result has each one's. NAA_ERROR_ARGUMENT and NAA_ERROR_STATE as
/// naa_call_wait_any(): then nothing was waited for.
///
/// # Safety
/// `sessions` points to `count` handles, `outcomes` to as many places unless NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn naa_call_wait_all(
    sessions: *const *mut naa_session,
    count: usize,
    timeout_ms: i32,
    outcomes: *mut naa_outcome,
) -> naa_result {
    // SAFETY: the caller's contract.
    guarded(|| unsafe { any::wait_all(handles(sessions, count)?, timeout_ms, outcomes) })
}

/// # Safety
/// If `sessions` is not NULL and is aligned, it points to `count` handles.
unsafe fn handles<'a>(
    sessions: *const *mut naa_session,
    count: usize,
) -> Result<&'a [*mut naa_session], Problem> {
    // SAFETY: the caller's contract.
    let handles = unsafe { boundary::elements(sessions, count) };
    handles
        .ok_or_else(|| Problem::argument("sessions is NULL or not aligned; it is an array of naa_session *"))
}

pub(super) fn function_code(function: i32) -> Result<FunctionCode, Problem> {
    let code = u8::try_from(function).ok().and_then(FunctionCode::new);
    code.ok_or_else(|| Problem::argument(format!("{function} is no function code; they are 1 to 127")))
}

fn start(session: &mut SessionHandle, function: i32, user: u32) -> Result<(), Problem> {
    let function = function_code(function)?;
    let user = U24::new(user)
        .ok_or_else(|| Problem::argument(format!("user is {user:#x}; it has 24 bits, up to 0xffffff")))?;
    clear_status(session, function)?;
    session.host.invoke(function, user)?;
    session.function = Some(function);
    Ok(())
}

/// Clears the status block that an earlier call left, so that it is not taken for the status block of the call that
/// starts. Bytes that are no status block of `function` stay as they are, because they may be an input, too.
fn clear_status(session: &mut SessionHandle, function: FunctionCode) -> Result<(), Problem> {
    match session.first_output.filter(|_| !session.host.is_over()) {
        Some(output) if status(session, function).is_some() => {
            Ok(session.host.write(output, 0, &[0; BLOCK_BYTES])?)
        }
        _ => Ok(()),
    }
}

/// # Safety
/// `outcome` points to a place unless NULL.
unsafe fn wait(
    session: &mut SessionHandle,
    timeout_ms: i32,
    outcome: *mut naa_outcome,
) -> Result<(), Problem> {
    let waited = session.host.wait_until(deadline(timeout_ms));
    // SAFETY: the caller's contract.
    match unsafe { report(session, waited, outcome) }? {
        true => Ok(()),
        false => Err(Problem::Late(timeout_ms)),
    }
}

/// `None`: no limit.
pub(super) fn deadline(timeout_ms: i32) -> Option<Instant> {
    let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis)?;
    Instant::now().checked_add(timeout)
}

/// Writes down how a call ended, and says whether it did.
///
/// # Safety
/// `to` points to a place unless NULL.
pub(super) unsafe fn report(
    session: &SessionHandle,
    ended: Result<Option<naa_host::CallOutcome>, naa_host::Error>,
    to: *mut naa_outcome,
) -> Result<bool, Problem> {
    let ended = match ended {
        Ok(None) => return Ok(false),
        Ok(Some(outcome)) => {
            let status = status(session, outcome.function);
            let outcome = status.as_ref().map_or(outcome, |status| outcome.with_status(status));
            // SAFETY: the caller's contract.
            unsafe { write(to, naa_outcome::of(&outcome, status.as_ref())) };
            let failed = |error| if status.is_some() { session.host.with_detail(error) } else { error };
            outcome.into_result().map(drop).map_err(|error| failed(error).into())
        }
        Err(error) => {
            let problem = Problem::from(error);
            if problem.result() != NAA_ERROR_STATE {
                // SAFETY: the caller's contract.
                unsafe { write(to, naa_outcome::without_answer(problem.result(), session.function)) };
            }
            Err(problem)
        }
    };
    ended.map(|()| true)
}

/// # Safety
/// `to` points to a place unless NULL.
pub(super) unsafe fn write(to: *mut naa_outcome, outcome: naa_outcome) {
    if !to.is_null() {
        // SAFETY: the caller's contract; programs in other languages may not align it.
        unsafe { to.write_unaligned(outcome) };
    }
}

/// The status block of the last call, if it was one of a built-in function and there is a status block.
fn status(session: &SessionHandle, function: FunctionCode) -> Option<StatusBlock> {
    if !BUILT_IN.contains(&function.get()) {
        return None;
    }
    session.host.status_block().ok().filter(|status| status.function == function)
}
