"""Times: seconds here, milliseconds there."""

from __future__ import annotations

import math
import threading
import time

_FOREVER = -1
_LONGEST = 2**31 - 1
_SLICE = 250


def milliseconds(seconds: float | None) -> int:
    """None is no limit."""
    return _FOREVER if seconds is None else min(max(math.ceil(seconds * 1000), 0), _LONGEST)


class Patience:
    """How long to wait, in parts: between them Python looks for signals, which it does on its main thread only."""

    def __init__(self, timeout: float | None, what: str = "the call did not end within {} s; it goes on") -> None:
        self.timeout = timeout
        self._what = what
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._sliced = threading.current_thread() is threading.main_thread()
        self.last = False

    def left(self) -> float | None:
        """Seconds."""
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def next(self) -> int:
        """Milliseconds of the next part; `last` is whether none follows."""
        left = milliseconds(self.left())
        if self._sliced and (left < 0 or left > _SLICE):
            self.last = False
            return _SLICE
        self.last = True
        return left

    def text(self) -> str:
        return f"{self._what.format(f'{self.timeout:g}')}, wait for it again"
