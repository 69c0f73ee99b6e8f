"""Sessions and calls."""

from __future__ import annotations

import asyncio
import enum
import functools
import os
import warnings
import weakref
from types import TracebackType
from typing import Any

from ._errors import (
    ArgumentError,
    Error,
    Outcome,
    Result,
    StateError,
    TimedOut,
    check,
    error_of,
    new_outcome,
    outcome_of,
)
from ._library import ffi, lib, text
from ._regions import Pinned
from ._time import Patience
from ._waiting import Waiter


class State(enum.IntEnum):
    IDLE = 0
    """Calls may be started."""
    RUNNING = 1
    """A call is under way."""
    OVER = 2
    """It ended by an error; close it."""


@functools.lru_cache
def function_code(name: str) -> int:
    """The code of the function that is called `name` by NAAICE or `naa serve`: "increment" is 1, "dgemm" is 18.

    Raises: ArgumentError
    """
    code = int(lib.naa_function_code(name.encode()))
    if code == 0:
        raise ArgumentError(f"no function is called {name!r}; `naa functions --server ADDRESS` lists codes and names")
    return code


class Session:
    """A connection to an accelerator with its regions, made by connect(). One call at a time runs on it.

    Use it in a `with` statement, or close() it: until then the regions' memory cannot be resized or freed.
    """

    def __init__(self, handle: Any, pinned: Pinned) -> None:
        self._handle = handle
        self._waiter: Waiter | None = None
        self._free = weakref.finalize(self, _close, handle, pinned, os.getpid())

    # Calls.

    def call(self, function: int | str, user: int = 0, *, timeout: float | None = None) -> Outcome:
        """Calls `function`, a code or a name, and waits at most `timeout` seconds.

        Raises: FunctionError if the function failed; TimedOut, and the call goes on; GoneError, PeerError and
        DeviceError if the session is over; StateError; ArgumentError
        """
        patience = Patience(timeout)
        outcome = new_outcome()
        result = lib.naa_call(self.handle(), code_of(function), user, patience.next(), outcome)
        return self._ended(result, patience, outcome)

    def start(self, function: int | str, user: int = 0) -> None:
        """Starts a call and returns. Until its end was reported, do not write inputs nor touch outputs."""
        check(lib.naa_call_start(self.handle(), code_of(function), user))

    def test(self) -> Outcome | None:
        """How the call ended; None if it still runs. Raises as call()."""
        done, outcome = ffi.new("bool *"), new_outcome()
        result = lib.naa_call_test(self.handle(), done, outcome)
        if result != 0:
            raise failure(result, outcome)
        return outcome_of(outcome) if done[0] else None

    def wait(self, timeout: float | None = None) -> Outcome:
        """Waits at most `timeout` seconds for the call to end. Raises as call()."""
        patience = Patience(timeout)
        outcome = new_outcome()
        result = lib.naa_call_wait(self.handle(), patience.next(), outcome)
        return self._ended(result, patience, outcome)

    def _ended(self, result: int, patience: Patience, outcome: Any) -> Outcome:
        while result == Result.TIMEOUT and not patience.last:
            result = lib.naa_call_wait(self.handle(), patience.next(), outcome)
        if result == Result.TIMEOUT:
            raise TimedOut(patience.text())
        if result != 0:
            raise failure(result, outcome)
        return outcome_of(outcome)

    async def call_async(self, function: int | str, user: int = 0, *, timeout: float | None = None) -> Outcome:
        """As call(), while other tasks run. If the task is cancelled, the call goes on."""
        patience = Patience(timeout)
        self.start(function, user)
        return await self._wait_async(patience)

    async def wait_async(self, timeout: float | None = None) -> Outcome:
        """As wait(), while other tasks run."""
        return await self._wait_async(Patience(timeout))

    async def _wait_async(self, patience: Patience) -> Outcome:
        if self._waiter is not None:
            raise StateError("another task is waiting for this session")
        # Before the first test, which is what arms it.
        fd = self.fileno()
        while (outcome := self.test()) is None:
            self._waiter = Waiter(fd)
            try:
                await self._waiter.wait(patience.left())
            except asyncio.TimeoutError:
                raise TimedOut(patience.text()) from None
            finally:
                self._waiter = None
        return outcome

    # Settings and state.

    def set_range(self, region: int, offset: int, size: int) -> None:
        """Sends only `size` bytes from byte `offset` on of an input with the calls to come."""
        check(lib.naa_session_set_range(self.handle(), region, offset, size))

    def set_range_all(self, region: int) -> None:
        """Sends all of an input again with the calls to come."""
        check(lib.naa_session_set_range_all(self.handle(), region))

    @property
    def state(self) -> State:
        state = ffi.new("int32_t *")
        check(lib.naa_session_state(self.handle(), state))
        return State(state[0])

    @property
    def description(self) -> str:
        """Which provider serves the session, on which address, and why, for people."""
        return text(lib.naa_session_describe(self.handle()))

    def fileno(self) -> int:
        """A descriptor for poll() and event loops. Ask for it before test(). After test() returned None it becomes
        readable when it is time to call test() again. Read nothing from it, and do not close it."""
        fd = ffi.new("int32_t *")
        check(lib.naa_session_fd(self.handle(), fd))
        return int(fd[0])

    # The end.

    def close(self) -> None:
        """Disconnects. A call that is under way is given up. The memory of the regions is the program's alone again.

        Raises: StateError if another thread is using the session; DeviceError if the accelerator could not be told, but
        it is closed all the same
        """
        if not self._free.alive:
            return
        if (waiter := self._waiter) is not None:
            if not waiter.is_of_this_thread():
                raise StateError("a task in another thread is waiting for this session; close it there")
            waiter.fail(StateError("the session was closed while a task waited for it"))
        result = lib.naa_session_close(self._handle)
        if result == Result.STATE:
            raise error_of(result)
        if (detached := self._free.detach()) is not None:
            pinned: Pinned = detached[2][1]
            pinned.release()
        # NAA_ERROR_ARGUMENT: another thread closed it in this moment.
        if result not in (Result.OK, Result.ARGUMENT):
            raise error_of(result)

    @property
    def closed(self) -> bool:
        return not self._free.alive

    def handle(self) -> Any:
        """What naa.h knows it by."""
        if not self._free.alive:
            raise ArgumentError("the session was closed; connect again")
        return self._handle

    def __enter__(self) -> Session:
        self.handle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_free") and self._free.alive:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        return f"<naa.Session {'closed' if self.closed else text(lib.naa_session_describe(self._handle)) or 'in use'}>"


def _close(handle: Any, pinned: Pinned, process: int) -> None:
    # A child of fork() has no sessions. At the end of the program a thread may still use this one, and its memory.
    if process == os.getpid() and lib.naa_session_close(handle) != Result.STATE:
        pinned.release()


def code_of(function: int | str) -> int:
    return function_code(function) if isinstance(function, str) else function


def failure(result: int, outcome: Any) -> Error:
    error = error_of(result)
    if outcome.function != 0:
        error.outcome = outcome_of(outcome)
    return error
