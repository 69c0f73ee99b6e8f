"""Waiting for several calls."""

from __future__ import annotations

from collections.abc import Sequence

from ._errors import Error, Outcome, Result, TimedOut, error_of, new_outcome, outcome_of
from ._library import ffi, lib
from ._session import Session, State
from ._time import Patience


def wait_any(sessions: Sequence[Session], timeout: float | None = None) -> tuple[int, Outcome] | None:
    """Waits at most `timeout` seconds for the first of several calls to end. Returns the number of its session and
    how it ended; None if no call is under way.

    Raises: as Session.wait(); the exception's `index` is the number of the session
    """
    patience = Patience(timeout)
    handles = ffi.new("naa_session *[]", [session.handle() for session in sessions])
    index, outcome = ffi.new("int64_t *"), new_outcome()
    while True:
        result = lib.naa_call_wait_any(handles, len(sessions), patience.next(), index, outcome)
        if result != Result.TIMEOUT or patience.last:
            break
    if result == Result.TIMEOUT:
        raise TimedOut(patience.text())
    found = None if index[0] == lib.NAA_UNDEFINED else int(index[0])
    if result != 0:
        error = error_of(result)
        if found is not None:
            error.index, error.outcome = found, outcome_of(outcome)
        raise error
    return None if found is None else (found, outcome_of(outcome))


def wait_all(sessions: Sequence[Session], timeout: float | None = None) -> list[Outcome | None]:
    """Waits at most `timeout` seconds for all calls to end. Returns how each ended; None where there was no call.

    Raises: when all were waited for, the first failure, as Session.wait(); its `index` is the number of the session.
    TimedOut before other failures. `outcomes` of the exception has how the others ended.
    """
    patience = Patience(timeout)
    outcomes: list[Outcome | None] = []
    first: Error | None = None
    for index, session in enumerate(sessions):
        outcome = None
        try:
            if session.state == State.RUNNING:
                outcome = session.wait(patience.left())
        except Error as error:
            outcome = error.outcome
            error.index = index
            if isinstance(error, TimedOut):
                error.args = (patience.text(),)
            if first is None or (isinstance(error, TimedOut) and not isinstance(first, TimedOut)):
                first = error
        outcomes.append(outcome)
    if first is not None:
        first.outcomes = outcomes
        raise first
    return outcomes
