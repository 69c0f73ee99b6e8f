"""How sessions are made."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from ._blocking import in_thread
from ._errors import ArgumentError, Error, check
from ._library import ffi, lib
from ._regions import Pinned, Region
from ._session import Session, code_of
from ._time import milliseconds


@dataclass(frozen=True)
class Options:
    """Times are in seconds."""

    setup_timeout: float | None = None
    """Connecting and agreeing on regions must be done by then. None: NAA_TIMEOUT, and if that is not set 10."""
    probe_interval: float | None = 1.0
    """While a call runs the accelerator is asked for a sign of life that often; None: never, and then its death during
    a call may go unnoticed for ever."""
    silence: float = 4.3
    """An accelerator that acknowledges nothing for about that long is given up: GoneError."""
    provider: Literal["verbs", "embedded"] | None = None
    """None: as NAA_PROVIDER says, else the one that fits the local address."""
    local_address: str | None = None
    """None: NAA_LOCAL_IP, and if that is not set where the route to the accelerator begins."""
    wait: Literal["adaptive", "spin", "block"] = "adaptive"
    """How waiting threads wait: spin has the lowest latency and takes a core."""
    dialect: Literal["main", "next"] = "main"
    """What the accelerator means by its answers: a return code, or 24 bits for the user."""
    layout: Literal["symmetric", "asymmetric", "gathered", "packed", "auto"] = "symmetric"
    """How regions lie on the accelerator and get there; one that takes no layouts gets the symmetric one."""
    packed_bytes: int = 65536
    """With the layout "packed", outputs of up to so many bytes are copied together, inputs of up to a sixteenth."""
    call_timeout: float | None = None
    """A call must be done by then, however it is waited for; else it ends with GoneError and the session is over. None:
    NAA_TIMEOUT, and if that is not set no limit; math.inf: no limit whatever NAA_TIMEOUT says. A call that takes more than
    10 s is reported once on standard error; NAA_LOG=off switches that off."""


def connect(address: str, regions: Sequence[Region], options: Options = Options()) -> Session:
    """Connects to the accelerator at `address`, "10.9.0.1", "[fd00::1]:12345" or "name", and agrees with it on regions.

    Raises: UnreachableError, RefusedError, TimedOut, ArgumentError, SettingsError, DeviceError, OutOfMemory
    """
    return _connect(lib.naa_session_connect, address.encode(), regions, options)


def connect_spec(function: int | str, regions: Sequence[Region], options: Options = Options()) -> Session:
    """Connects to a free accelerator that NAA_SPEC has for `function` with as many inputs as there are in `regions`.

    Raises: as connect()
    """
    return _connect(lib.naa_session_connect_spec, code_of(function), regions, options)


class Connecting:
    """What connect_async() returns. `await` connects; `async with` also closes the session at the end."""

    def __init__(self, by: Callable[[], Session]) -> None:
        self._by = by
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, Session]:
        return in_thread(self._by, _give_up).__await__()

    async def __aenter__(self) -> Session:
        if self._session is not None:
            raise RuntimeError("a session is connected by this already; call connect_async() again for another one")
        self._session = await self
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close_async()


def connect_async(address: str, regions: Sequence[Region], options: Options = Options()) -> Connecting:
    """As connect(), while other tasks run: `async with naa.connect_async(...) as session:`, which closes the session at its
    end, or `session = await naa.connect_async(...)`.

    One of at most 8 threads of the process connects; further tasks wait for one of them. A call takes no thread. A session
    that is connected after its task was cancelled is closed.

    Raises: as connect()
    """
    return Connecting(lambda: connect(address, regions, options))


def connect_spec_async(function: int | str, regions: Sequence[Region], options: Options = Options()) -> Connecting:
    """As connect_spec(), while other tasks run, in the way of connect_async().

    Raises: as connect()
    """
    return Connecting(lambda: connect_spec(function, regions, options))


def _give_up(session: Session) -> None:
    # The session is closed even if the accelerator could not be told.
    with contextlib.suppress(Error):
        session.close()


def _connect(by: Any, whom: bytes | int, regions: Sequence[Region], options: Options) -> Session:
    # The text must be there as long as the options that point to it.
    local = ffi.NULL if options.local_address is None else ffi.new("char[]", options.local_address.encode())
    settings = _settings(options, local)
    pinned = Pinned(regions)
    place = ffi.new("naa_session **")
    try:
        check(by(whom, pinned.regions, pinned.count, settings, place))
    except BaseException:
        pinned.release()
        raise
    return Session(place[0], pinned)


def _settings(options: Options, local: Any) -> Any:
    settings = ffi.new("naa_options *")
    check(lib.naa_options_init(settings, ffi.sizeof("naa_options")))
    settings.local_address = local
    # 0 would stand for the default.
    if options.setup_timeout is not None:
        settings.setup_timeout_ms = max(milliseconds(options.setup_timeout), 1)
    if options.call_timeout is not None:
        endless = math.isinf(options.call_timeout)
        settings.call_timeout_ms = -1 if endless else max(milliseconds(options.call_timeout), 1)
    settings.silence_ms = max(milliseconds(options.silence), 1)
    interval = options.probe_interval
    settings.probe_interval_ms = -1 if interval is None else max(milliseconds(interval), 1)
    settings.provider = _choice("provider", options.provider or "default")
    settings.wait = _choice("wait", options.wait)
    settings.dialect = _choice("dialect", options.dialect)
    settings.layout = _choice("layout", options.layout)
    settings.packed_bytes = _packed_bytes(options.packed_bytes)
    return settings


def _packed_bytes(count: int) -> int:
    # 0 would stand for the default.
    if not 1 <= count < 1 << 32:
        raise ArgumentError(f"options, packed_bytes: {count} is not from 1 to {(1 << 32) - 1}")
    return count


def _choice(option: str, name: str) -> int:
    number = getattr(lib, f"NAA_{option}_{name}".upper(), None)
    if number is None:
        raise ArgumentError(f"options, {option}: there is no {name!r}")
    return int(number)
