"""Events of detectors, streamed by an EJFAT bridge into this program's memory, as NumPy arrays.

    from naa.events import Worker

    with Worker("10.9.0.1") as worker:          # or "unix:/run/naa-bridge.sock" on the bridge's own host
        for event in worker:
            print(event.data_id, event.array("<u2").mean())

`event.array()` and `bytes(event)` are copies. The bridge can write the memory that an event lies in as long as it has it: a
bridge that keeps to the protocol does not write an event before it was given back, one that breaks the protocol can change
it while it is read, but not the copy. `event.array_in_place()` and `event.view_in_place()` do without the copy: call
them where you trust the bridge, and whoever else can write that memory.

An event's memory is given back when nothing refers to it any more: neither the Event, nor an array or memoryview in
place. Who keeps all of them gets no more. In an event loop: `async with Worker(...) as worker`, then `async for event in
worker`. Worker(...) itself waits for the bridge; `await asyncio.to_thread(Worker, ...)` does so while other tasks run.

A bridge that ends is looked for as long as `reconnect` says; events of the old one stay readable.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ._buffer import Buffer
from ._connect import _choice
from ._errors import ArgumentError, Result, StateError, TimedOut, check
from ._library import ffi, lib, text
from ._time import Patience, milliseconds
from ._waiting import Waitable

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

__all__ = ["Event", "Stats", "Worker"]


class Stats(NamedTuple):
    """Of a worker, since it was opened."""

    events: int
    """That came."""
    bytes: int
    """Of them."""
    reconnects: int
    """How often the bridge was found again."""
    held: int
    """Events whose memory was not given back."""


class Event:
    """An event, where the bridge put it. This program cannot write its memory; the bridge can."""

    def __init__(self, c: Any) -> None:
        self.event = int(c.event)
        """The event's number, of those who sent it."""
        self.data_id = int(c.data_id)
        """Of the source, of those who sent it."""
        self.tick = int(c.tick) if c.has_tick else None
        """The tick of its segments, if they came with an LB header, as directly from a sender; None behind a load balancer, which takes
        the header away."""
        self.sequence = int(c.sequence)
        """Counts the events of a subscription from 1 on; a bridge that came back begins again."""
        self.first_segment_ns = int(c.first_segment_ns)
        """When its first segment came to the bridge, in nanoseconds since 1970 by the bridge's clock."""
        self.assembly_ns = int(c.assembly_ns)
        """Nanoseconds from then until the last one came."""
        self.delivered_again = False
        """Whether another worker had the event when that worker ended, and so may have used it. Always False unless the Worker
        was made with again=True."""
        self._length = int(c.length)
        self._token = token = int(c.token)
        process = os.getpid()

        def give_back(_: Any) -> None:
            # A child of fork() has no events.
            if process == os.getpid():
                lib.naa_event_release(token)

        # Whatever is made of the view keeps it, and gives the event back at last.
        owner = ffi.gc(ffi.cast("char *", c.data), give_back, self._length)
        self._view: memoryview | None = memoryview(ffi.buffer(owner, self._length)).toreadonly()

    def array(self, dtype: DTypeLike = "u1") -> NDArray[Any]:
        """The event as numbers: a copy, which the bridge cannot change.

        Raises: StateError after release(); ValueError if the bytes are not a whole number of elements
        """
        import numpy

        numbers = numpy.empty(len(self), "u1")
        self.read_into(numbers)
        return numbers.view(dtype)

    def read_into(self, buffer: Buffer, offset: int = 0) -> None:
        """Copies bytes of the event, from `offset` on, into `buffer`, all of which is filled: a contiguous array, or another
        writable buffer, that serves for one event after the other.

        Raises: StateError after release(); ValueError if the event ends before
        """
        # As long as this refers to the event it is not given back.
        here = self._in_place()
        place = ffi.from_buffer(buffer, require_writable=True)
        length = ffi.sizeof(place)
        if not 0 <= offset <= here.nbytes - length:
            raise ValueError(f"{length} bytes at {offset} do not lie inside the event, which has {here.nbytes}")
        check(lib.naa_event_copy(self._token, offset, place, length))

    def array_in_place(self, dtype: DTypeLike = "u1") -> NDArray[Any]:
        """The event as numbers where the bridge put it, without a copy and read-only. It keeps the memory as long as it lives.

        The bridge can change the numbers while you use them, and so can whoever else can write the ring. To call this is
        your promise that they do not, or that your program takes no harm if they do: a check of a number is no check any
        more when the number is read again. array() is a copy.

        Raises: StateError after release(); ValueError if the bytes are not a whole number of elements
        """
        import numpy

        return numpy.frombuffer(self._in_place(), dtype)

    def view_in_place(self) -> memoryview:
        """The bytes where the bridge put them, read-only. As with array_in_place(), the bridge can change them.

        Raises: StateError after release()
        """
        return self._in_place()

    def _in_place(self) -> memoryview:
        if self._view is None:
            raise StateError("the event was released; take what you need of it before")
        return self._view

    def release(self) -> None:
        """Lets go of the event: its memory is given back now, or with the last array or memoryview in place."""
        self._view = None

    def __len__(self) -> int:
        """In bytes."""
        return self._length

    def __bytes__(self) -> bytes:
        """A copy, which the bridge cannot change."""
        return bytes(self._in_place())

    def __enter__(self) -> Event:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        released = ", released" if self._view is None else ""
        return f"<naa.events.Event {self.event} of data id {self.data_id}, {self._length} bytes{released}>"


class Worker(Waitable):
    """A subscription to the events of a bridge. Threads and tasks use it one at a time; events may be used anywhere.

    `source`: "10.9.0.1", "10.9.0.1:12345", "[fd00::1]:12345" or a host's name, by RDMA; "unix:PATH", in memory that
    both map. The ring has `slots` of `slot_bytes`, a multiple of 64; an event takes as many as it needs, side by side.
    `data_ids`: which events, where they go by data id; None is all. `member`: which one this worker is of the members
    that load-balancer tables name. `name`: the bridge shows it. Times are in seconds: the bridge must answer within
    `setup_timeout`, None for NAA_TIMEOUT or else 10, and is asked for a sign of life every `probe_interval` while something waits; one that is silent
    for about `silence` is taken for dead, and looked for as long as `reconnect` says, None for not at all. `wait`,
    `provider` and `local_address` are as those of naa.Options.

    `again`: whether the bridge may also give this worker events that another worker had when it ended. Event.delivered_again
    says which these are. Set it in every worker, also in those that may end: the bridge keeps what a worker had only if that
    worker set it, or if another worker that set it is subscribed when the first one ends. Without `again` this worker gets each
    event at most once. A bridge that does not know this option refuses.

    Raises: UnreachableError, TimedOut; RefusedError; FunctionError if an accelerator is there that is no bridge;
    PeerError, ArgumentError, SettingsError, DeviceError, OutOfMemory
    """

    _kind = "worker"
    _remedy = "subscribe again"

    def __init__(
        self,
        source: str,
        *,
        slots: int = 64,
        slot_bytes: int = 1 << 20,
        data_ids: range | int | None = None,
        member: int | None = None,
        name: str = "",
        again: bool = False,
        setup_timeout: float | None = None,
        probe_interval: float | None = 1.0,
        silence: float = 2.1,
        reconnect: float | None = 30.0,
        wait: Literal["adaptive", "spin", "block"] = "adaptive",
        provider: Literal["verbs", "embedded"] | None = None,
        local_address: str | None = None,
    ) -> None:
        called = ffi.new("char[]", name.encode())
        settings = ffi.new("naa_worker_options *")
        check(lib.naa_worker_options_init(settings, ffi.sizeof("naa_worker_options")))
        settings.name = called
        # 0 would stand for the default.
        settings.slots = _number("slots", slots, 1, (1 << 32) - 1)
        settings.slot_bytes = _number("slot_bytes", slot_bytes, 1, (1 << 32) - 1)
        settings.first_data_id, settings.data_ids = _data_ids(data_ids)
        if member is not None:
            settings.has_member, settings.member = 1, _number("member", member, 0, 65535)
        self._again = bool(again)
        settings.again = 1 if again else 0
        # 0 stands for the default.
        settings.setup_timeout_ms = 0 if setup_timeout is None else max(milliseconds(setup_timeout), 1)
        settings.silence_ms = max(milliseconds(silence), 1)
        settings.probe_interval_ms = -1 if probe_interval is None else max(milliseconds(probe_interval), 1)
        settings.reconnect_ms = -1 if reconnect is None else max(milliseconds(reconnect), 1)
        settings.wait = _choice("wait", wait)
        settings.provider = _choice("provider", provider or "default")
        # The text must be there as long as the options that point to it.
        local = ffi.NULL if local_address is None else ffi.new("char[]", local_address.encode())
        settings.local_address = local
        place = ffi.new("naa_worker **")
        check(lib.naa_worker_open(source.encode(), settings, place))
        self._handle = place[0]
        self._free = weakref.finalize(self, _close, self._handle, os.getpid())

    # Events.

    def next(self, timeout: float | None = None) -> Event:
        """Waits at most `timeout` seconds for the next event.

        Raises: TimedOut; GoneError if the bridge ended and did not come back, RefusedError, PeerError, DeviceError:
        then the subscription is over, and OverError follows; StateError if another thread or task is using the worker
        """
        patience = Patience(timeout, _NO_EVENT)
        while True:
            event = self._next(patience.next())
            if event is not None:
                return event
            if patience.last and timeout is not None:
                raise TimedOut(patience.text())

    def try_next(self) -> Event | None:
        """The next event, if there is one. Raises as next()."""
        return self._next(0)

    def _next(self, timeout_ms: int) -> Event | None:
        place = ffi.new(_EVENT)
        result = lib.naa_worker_next(self.handle(), timeout_ms, place)
        if result == Result.TIMEOUT:
            return None
        check(result)
        event = Event(place)
        if self._again:
            flag = ffi.new("bool *")
            check(lib.naa_event_delivered_again(event._token, flag))
            event.delivered_again = bool(flag[0])
        return event

    async def next_async(self, timeout: float | None = None) -> Event:
        """As next(), while other tasks run."""
        return await self._wait_for(self.try_next, Patience(timeout, _NO_EVENT))

    def __iter__(self) -> Iterator[Event]:
        """Events without end. The loop's variable keeps its event until the next one came: have room for two."""
        while True:
            yield self.next()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Events without end, while other tasks run."""
        while True:
            yield await self.next_async()

    # State.

    @property
    def stats(self) -> Stats:
        stats = ffi.new("naa_worker_stats *")
        check(lib.naa_worker_get_stats(self.handle(), stats))
        return Stats(stats.events, stats.bytes, stats.reconnects, stats.held)

    @property
    def description(self) -> str:
        """Which way events come, and why, for people."""
        return text(lib.naa_worker_describe(self.handle()))

    def fileno(self) -> int:
        """A descriptor for poll() and event loops. Ask for it before try_next(). After try_next() gave None it becomes
        readable when it is time to call that again, until it gives None. Read nothing from it, and do not close it."""
        fd = ffi.new("int32_t *")
        check(lib.naa_worker_fd(self.handle(), fd))
        return int(fd[0])

    def close(self) -> None:
        """Ends the subscription. Events stay readable.

        Raises: StateError if another thread is using the worker
        """
        self._close(lambda: int(lib.naa_worker_close(self._handle)))

    def __repr__(self) -> str:
        state = "closed" if self.closed else text(lib.naa_worker_describe(self._handle)) or "in use"
        return f"<naa.events.Worker {state}>"


_EVENT = ffi.typeof("naa_event *")
_NO_EVENT = "no event came within {} s"


def _close(handle: Any, process: int) -> None:
    # A child of fork() has no workers.
    if process == os.getpid():
        lib.naa_worker_close(handle)


def _number(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise ArgumentError(f"{name}: {value} is not from {least} to {most}")
    return value


def _data_ids(ids: range | int | None) -> tuple[int, int]:
    """The first one, and how many."""
    if ids is None:
        return 0, 0
    if isinstance(ids, int):
        ids = range(ids, ids + 1)
    if ids.step != 1 or len(ids) == 0 or ids.start < 0 or ids.stop > 65536:
        raise ArgumentError(f"data_ids: {ids} is not a run of numbers from 0 to 65535; give a range, or one number")
    return ids.start, len(ids)
