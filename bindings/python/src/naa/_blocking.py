"""Runs blocking work in threads, so that tasks do not block: connecting, and asking for functions.

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
"""The most threads for this work in a process, for all event loops together. Further work waits until one is free."""

# One executor for each process id: after fork(), a child cannot use its parent's threads.
_executors: dict[int, ThreadPoolExecutor] = {}


def _executor() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _executors:
        _executors.setdefault(process, ThreadPoolExecutor(THREADS, thread_name_prefix="naa"))
    return _executors[process]


async def in_thread(work: Callable[[], T], unwanted: Callable[[T], None]) -> T:
    """Runs `work` in a thread and returns its result. If the task is cancelled meanwhile, the result is given to `unwanted`."""
    future = _executor().submit(work)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _drop(done, unwanted))
        raise


def _drop(done: Future[T], unwanted: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        unwanted(done.result())
