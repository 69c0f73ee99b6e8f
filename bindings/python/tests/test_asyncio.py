"""Calls as tasks of an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import numpy
import pytest
from conftest import PATIENT, QUICK, Server

import naa


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60), debug=False)


def test_several_calls_in_flight(server: Server) -> None:
    async def multiply(seed: int) -> None:
        random = numpy.random.default_rng(seed)
        a, b = random.random((300, 200)), random.random((200, 100))
        c = numpy.empty((300, 100))
        regions = naa.regions_for("dgemm", [300, 100, 200], [a, b], [c])
        with naa.connect(server.address, regions) as session:
            for _ in range(5):
                c[:] = 0
                await session.call_async("dgemm", timeout=30)
                assert numpy.allclose(c, a @ b)

    async def test() -> None:
        await asyncio.gather(*map(multiply, range(16)))

    run(test())


def test_other_tasks_run_and_the_call_goes_on_after_a_time_out(own_server: Server) -> None:
    async def test() -> None:
        numbers = bytearray(4)
        with naa.connect(own_server.address, [naa.InOut(numbers)], PATIENT) as session:
            own_server.pause()
            call = asyncio.create_task(session.call_async("increment", timeout=1))
            beats = 0
            while not call.done():
                await asyncio.sleep(0.02)
                beats += 1
            assert beats > 20
            with pytest.raises(naa.TimedOut, match="within 1 s; it goes on"):
                await call
            with pytest.raises(naa.TimedOut):
                await session.wait_async(0)
            own_server.go_on()
            await session.wait_async(10)
        assert numbers == bytes([1] * 4)

    run(test())


def test_a_task_that_is_cancelled_leaves_the_call_running(own_server: Server) -> None:
    async def test() -> None:
        with naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT) as session:
            own_server.pause()
            call = asyncio.create_task(session.call_async("increment"))
            await asyncio.sleep(0.1)
            with pytest.raises(naa.StateError, match="another task"):
                await session.wait_async()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            own_server.go_on()
            await session.wait_async(10)

    run(test())


def test_closing_wakes_the_task_that_waits(own_server: Server) -> None:
    async def test() -> None:
        session = naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT)
        own_server.pause()
        call = asyncio.create_task(session.call_async("increment"))
        await asyncio.sleep(0.1)
        with pytest.raises(naa.StateError, match="another thread"):
            await asyncio.to_thread(session.close)
        session.close()
        with pytest.raises(naa.StateError, match="closed while a task waited"):
            await call
        # The number of the descriptor may be taken again at once.
        own_server.go_on()
        with naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT) as again:
            await again.call_async("increment", timeout=10)

    run(test())


def test_a_server_that_dies_is_noticed(own_server: Server) -> None:
    async def test() -> None:
        with naa.connect(own_server.address, [naa.InOut(bytearray(4))], QUICK) as session:
            own_server.pause()
            call = asyncio.create_task(session.call_async("increment"))
            await asyncio.sleep(0.1)
            own_server.kill()
            start = time.monotonic()
            with pytest.raises(naa.GoneError):
                await call
            assert time.monotonic() - start < 5

    run(test())
