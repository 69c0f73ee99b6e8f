"""Results of the library, and exceptions for them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._library import ffi, lib, text


class Result(enum.IntEnum):
    """What a function of naa.h returns."""

    OK = 0
    ARGUMENT = -1
    STATE = -2
    ENVIRONMENT = -3
    DEVICE = -4
    UNREACHABLE = -5
    REFUSED = -6
    TIMEOUT = -7
    PEER = -8
    GONE = -9
    MEMORY = -10
    FUNCTION = -11
    OVER = -12
    INTERNAL = -13


class Outcome(NamedTuple):
    """How a call ended."""

    result: Result
    function: int
    return_code: int
    """The function's, 24 bits; 0 is success."""
    user: int
    """With the dialect "next", 24 bits from the function."""
    last_output_bytes: int
    """Bytes of the last output region that the accelerator wrote."""
    detail: int
    """Of a built-in function whose output was too small: the bytes that are needed, 0 if unknown."""
    produced: tuple[int, ...]
    """Of a built-in function: bytes of each output that are a result. Output 0 is the status block."""


# Parsed once: calls are short.
_OUTCOME = ffi.typeof("naa_outcome *")


def new_outcome() -> Any:
    """A place for the library to write to."""
    return ffi.new(_OUTCOME)


def outcome_of(c: Any) -> Outcome:
    return Outcome(
        Result(c.result), c.function, c.return_code, c.user, c.last_output_bytes, c.detail, tuple(c.produced)
    )


class Error(Exception):
    """A failure. Its text says who has to act, and the remedy."""

    code: Result = Result.INTERNAL
    """The number that naa.h has for it."""
    index: int | None = None
    """Of wait_any() and wait_all(): the number of the session."""
    outcome: Outcome | None = None
    """How the call ended, if there was one and it did."""
    outcomes: Sequence[Outcome | None] = ()
    """Of wait_all(): how each call ended."""


class ArgumentError(Error, ValueError):
    """An argument cannot be used. Nothing happened."""

    code = Result.ARGUMENT


class StateError(Error):
    """Not now: a call is under way, or none is, or another thread or task is using the session. Nothing happened."""

    code = Result.STATE


class SettingsError(Error):
    """NAA_SPEC, NAA_LOCAL_IP, NAA_PROVIDER or NAA_TIMEOUT is not set, cannot be read, or has nothing free."""

    code = Result.ENVIRONMENT


class DeviceError(Error):
    """This machine's network device or its driver failed."""

    code = Result.DEVICE


class UnreachableError(Error, ConnectionError):
    """Nobody answers at the accelerator's address."""

    code = Result.UNREACHABLE


class RefusedError(Error, ConnectionError):
    """The accelerator refused the connection or the regions."""

    code = Result.REFUSED


class TimedOut(Error, TimeoutError):
    """Not done in time. A call goes on and can be waited for again; connecting was given up."""

    code = Result.TIMEOUT


class PeerError(Error, ConnectionError):
    """The accelerator broke the protocol. The session is over."""

    code = Result.PEER


class GoneError(Error, ConnectionError):
    """The accelerator was lost, or did not finish a call within its time. The session is over."""

    code = Result.GONE


class OutOfMemory(Error, MemoryError):
    """This machine has no memory for it."""

    code = Result.MEMORY


class FunctionError(Error):
    """The function failed, says the accelerator; `outcome.return_code` has its code. The session goes on."""

    code = Result.FUNCTION


class OverError(Error):
    """The session was over before. Close it and connect again."""

    code = Result.OVER


class InternalError(Error):
    """A defect of the library. Please report it."""


_CLASSES: dict[int, type[Error]] = {
    kind.code: kind
    for kind in (
        ArgumentError,
        StateError,
        SettingsError,
        DeviceError,
        UnreachableError,
        RefusedError,
        TimedOut,
        PeerError,
        GoneError,
        OutOfMemory,
        FunctionError,
        OverError,
        InternalError,
    )
}


def error_of(result: int) -> Error:
    """What the library's last function on this thread failed with."""
    return _CLASSES.get(result, InternalError)(text(lib.naa_last_error()))


def check(result: int) -> None:
    if result != 0:
        raise error_of(result)
