"""Sessions and calls."""

from __future__ import annotations

import asyncio
import enum
import functools
import os
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from ._blocking import in_thread
from ._errors import (
    ArgumentError,
    Error,
    Outcome,
    Result,
    TimedOut,
    check,
    error_of,
    new_outcome,
    outcome_of,
)
from ._functions import Function, functions_of
from ._library import ffi, lib, text
from ._regions import Pinned
from ._time import Patience
from ._waiting import Waitable


class State(enum.IntEnum):
    IDLE = 0
    """Calls may be started."""
    RUNNING = 1
    """A call is under way."""
    OVER = 2
    """It ended by an error; close it."""


@functools.lru_cache(maxsize=256)
def known_code(name: str) -> int:
    """0 if neither NAAICE nor `naa serve` has a function that is called so."""
    return int(lib.naa_function_code(name.encode()))


def function_code(name: str) -> int:
    """The code of the function that is called `name` by NAAICE or `naa serve`: "increment" is 1, "dgemm" is 18.

    Raises: ArgumentError
    """
    code = known_code(name)
    if code == 0:
        raise ArgumentError(
            f"neither NAAICE nor `naa serve` has a function {name!r}; Session.functions has those of an accelerator, "
            "kernels too"
        )
    return code


class Session(Waitable):
    """A connection to an accelerator with its regions, made by connect(). One call at a time runs on it.

    Use it in a `with` or `async with` statement, or close() it: until then the regions' memory cannot be resized or
    freed.

    Functions are given by code or by name. Names of functions that NAAICE or `naa serve` has are known; the accelerator is
    asked for others, such as kernels, the first time that one is used: see `functions`.
    """

    _kind = "session"
    _remedy = "connect again"

    def __init__(self, handle: Any, pinned: Pinned) -> None:
        self._handle = handle
        self._functions: Mapping[str, Function] | None = None
        self._asking: asyncio.Task[Mapping[str, Function]] | None = None
        # Held while texts are read that the session has, and while it is closed.
        self._open_while = threading.Lock()
        self._free = weakref.finalize(self, _close, handle, pinned, os.getpid())

    # Calls.

    def call(self, function: int | str, user: int = 0, *, timeout: float | None = None) -> Outcome:
        """Calls `function`, a code or a name, and waits at most `timeout` seconds.

        Asking the accelerator for a name is not part of the call: Options.setup_timeout and Options.call_timeout limit it.

        Raises: FunctionError if the function failed; TimedOut, and the call goes on; GoneError, PeerError and
        DeviceError if the session is over; StateError; ArgumentError, which for a name that the accelerator does not
        have lists the names that it has
        """
        code = self._code_of(function)
        patience = Patience(timeout)
        outcome = new_outcome()
        result = lib.naa_call(self.handle(), code, user, patience.next(), outcome)
        return self._ended(result, patience, outcome)

    def start(self, function: int | str, user: int = 0) -> None:
        """Starts a call and returns. Until its end was reported, do not write inputs nor touch outputs."""
        check(lib.naa_call_start(self.handle(), self._code_of(function), user))

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
        """As call(), while other tasks run. If the task is cancelled, the call goes on.

        The task waits for a descriptor, so a call takes no thread. Only asking the accelerator for a name does, once for each
        session: see functions_async(). As for call(), `timeout` does not limit that.
        """
        code = await self._code_async(function)
        patience = Patience(timeout)
        self.start(code, user)
        return await self._wait_for(self.test, patience)

    async def wait_async(self, timeout: float | None = None) -> Outcome:
        """As wait(), while other tasks run."""
        return await self._wait_for(self.test, Patience(timeout))

    # Functions.

    @property
    def functions(self) -> Mapping[str, Function]:
        """The functions of the accelerator by name: `session.functions["dgemm"].code` is 18.

        The accelerator is asked once, over a connection of its own, and the answer is kept. A call may be under way
        meanwhile, other threads may test it, and what goes wrong leaves the session as it is.

        Raises: FunctionError, PeerError or GoneError if the accelerator has no catalogue; OverError; StateError if another
        thread is using the session; as connect()
        """
        if self._functions is None:
            self._functions = self._ask()
        return self._functions

    async def functions_async(self) -> Mapping[str, Function]:
        """As `functions`, while other tasks run, also tasks that await a call of this session. The accelerator is asked by
        one of a few threads. Tasks that ask at the same time share one question and its answer."""
        if self._functions is None:
            if self._asking is None or self._asking.done():
                self.handle()
                self._asking = asyncio.create_task(in_thread(self._ask, lambda _: None))
                self._asking.add_done_callback(_take_error)
            self._functions = await asyncio.shield(self._asking)
        return self._functions

    def _ask(self) -> Mapping[str, Function]:
        return functions_of(self.handle(), self._open_while)

    def _code_of(self, function: int | str) -> int:
        if not isinstance(function, str):
            return function
        if (known := known_code(function)) != 0:
            return known
        if self._functions is not None and function in self._functions:
            return self._functions[function].code
        # This asks the accelerator too, and tells which names there are.
        code = ffi.new("int32_t *")
        check(lib.naa_session_find_function(self.handle(), function.encode(), code))
        return int(code[0])

    async def _code_async(self, function: int | str) -> int:
        if isinstance(function, str) and known_code(function) == 0:
            await self.functions_async()
        return self._code_of(function)

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
        def close() -> int:
            with self._open_while:
                return int(lib.naa_session_close(self._handle))

        def release(_: Any, pinned: Pinned, process: int) -> None:
            pinned.release()

        self._close(close, release)

    async def close_async(self) -> None:
        """As close(), at the end of `async with`. It waits for nothing. If a thread still asks for functions, the tasks that
        wait for them get an ArgumentError when that ends."""
        self.close()

    def __repr__(self) -> str:
        return f"<naa.Session {'closed' if self.closed else text(lib.naa_session_describe(self._handle)) or 'in use'}>"


def _close(handle: Any, pinned: Pinned, process: int) -> None:
    # A child of fork() has no sessions. At the end of the program a thread may still use this one, and its memory.
    if process == os.getpid() and lib.naa_session_close(handle) != Result.STATE:
        pinned.release()


def _take_error(asking: asyncio.Task[Any]) -> None:
    # The tasks that wait have the error too. If all were cancelled, it does not matter any more.
    if not asking.cancelled():
        asking.exception()


def code_of(function: int | str) -> int:
    return function_code(function) if isinstance(function, str) else function


def failure(result: int, outcome: Any) -> Error:
    error = error_of(result)
    if outcome.function != 0:
        error.outcome = outcome_of(outcome)
    return error
