"""Tasks that wait for a session's descriptor."""

from __future__ import annotations

import asyncio

from ._errors import Error


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
