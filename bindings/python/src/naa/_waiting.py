"""Tasks that wait for the descriptor of a session or a worker, and what else a session and a worker have in common."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ._errors import ArgumentError, Error, Result, StateError, TimedOut, error_of
from ._time import Patience

if TYPE_CHECKING:
    import weakref

    from typing_extensions import Self

_T = TypeVar("_T")


class Waiter:
    """A task's wait for a descriptor to become readable, once."""

    def __init__(self, fd: int) -> None:
        self.loop = asyncio.get_running_loop()
        self._fd: int | None = fd
        self._future: asyncio.Future[None] = self.loop.create_future()
        self.loop.add_reader(fd, self._readable)

    async def wait(self, timeout: float | None) -> None:
        """Raises: TimeoutError, and what fail() was given."""
        try:
            await asyncio.wait_for(self._future, timeout)
        finally:
            self._stop()

    def fail(self, error: Error) -> None:
        """Lets go of the descriptor at once."""
        self._stop()
        if not self._future.done():
            self._future.set_exception(error)

    def is_of_this_thread(self) -> bool:
        try:
            return asyncio.get_running_loop() is self.loop
        except RuntimeError:
            return False

    def _readable(self) -> None:
        self._stop()
        if not self._future.done():
            self._future.set_result(None)

    def _stop(self) -> None:
        if self._fd is not None:
            self.loop.remove_reader(self._fd)
            self._fd = None


class Waitable:
    """A session or a worker: a handle of the C library that is closed once, and for which one task at a time waits."""

    _kind: ClassVar[str]
    """The class in error messages."""
    _remedy: ClassVar[str]
    """What a program does instead of using a closed handle."""
    _handle: Any
    _free: weakref.finalize[Any, Any]
    _waiter: Waiter | None = None

    def fileno(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    async def _wait_for(self, test: Callable[[], _T | None], patience: Patience) -> _T:
        """Waits until `test` returns something. Raises: TimedOut; StateError if another task waits."""
        if self._waiter is not None:
            raise StateError(f"another task is waiting for this {self._kind}")
        # The descriptor is asked for before the first test, because the test arms it.
        fd = self.fileno()
        while (found := test()) is None:
            self._waiter = Waiter(fd)
            try:
                await self._waiter.wait(patience.left())
            except asyncio.TimeoutError:
                raise TimedOut(patience.text()) from None
            finally:
                self._waiter = None
        return found

    def _close(self, close: Callable[[], int], release: Callable[..., None] = lambda *_: None) -> None:
        """Closes the handle by `close`, unless it is closed. `release` gets the arguments of the finalizer."""
        if not self._free.alive:
            return
        if (waiter := self._waiter) is not None:
            if not waiter.is_of_this_thread():
                raise StateError(f"a task in another thread is waiting for this {self._kind}; close it there")
            waiter.fail(StateError(f"the {self._kind} was closed while a task waited for it"))
        result = close()
        if result == Result.STATE:
            raise error_of(result)
        if (detached := self._free.detach()) is not None:
            release(*detached[2])
        # NAA_ERROR_ARGUMENT: another thread closed it in this moment.
        if result not in (Result.OK, Result.ARGUMENT):
            raise error_of(result)

    @property
    def closed(self) -> bool:
        return not self._free.alive

    def handle(self) -> Any:
        """What the C library knows it by."""
        if not self._free.alive:
            raise ArgumentError(f"the {self._kind} was closed; {self._remedy}")
        return self._handle

    def __enter__(self) -> Self:
        self.handle()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_free") and self._free.alive:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
