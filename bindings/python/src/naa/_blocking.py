"""Work that blocks its thread, for tasks: connecting, and asking for the functions of an accelerator.

Calls need none of this: tasks wait for the descriptor of a session.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 8
"""At most so many threads work for all event loops of a process together. What comes meanwhile waits for one of them."""

# A child of fork() has none of its parent's threads.
_executors: dict[int, ThreadPoolExecutor] = {}


def _executor() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _executors:
        _executors.setdefault(process, ThreadPoolExecutor(THREADS, thread_name_prefix="naa"))
    return _executors[process]


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], None]) -> T:
    """What `work` returns. If the task is cancelled meanwhile, `unwanted` gets it when it is there."""
    future = _executor().submit(work)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _drop(done, unwanted))
        raise


def _drop(done: Future[T], unwanted: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        unwanted(done.result())
