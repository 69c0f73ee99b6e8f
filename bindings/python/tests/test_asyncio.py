"""Calls as tasks of an event loop."""

from __future__ import annotations

import asyncio
import threading
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


def test_sessions_are_connected_and_closed_in_tasks(server: Server) -> None:
    async def test() -> None:
        numbers = bytearray(4)
        async with naa.connect_async(server.address, [naa.InOut(numbers)]) as session:
            await session.call_async("increment", timeout=10)
        assert session.closed and numbers == bytes([1] * 4)
        numbers.extend(b"free")
        session = await naa.connect_async(server.address, [naa.InOut(numbers)])
        async with session as same:
            assert same is session
            await same.call_async("increment", timeout=10)
        assert session.closed and numbers[0] == 2
        with pytest.raises(naa.UnreachableError):
            async with naa.connect_async("127.7.255.254", [naa.InOut(numbers)], QUICK):
                pass
        numbers.extend(b"free")

    run(test())


def test_other_tasks_run_while_one_connects_and_few_threads_do(server: Server) -> None:
    async def test() -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.02)
                beats += 1

        beating = asyncio.create_task(beat())
        with pytest.raises(naa.UnreachableError):
            await naa.connect_async("127.7.255.254", [naa.InOut(bytearray(1))], naa.Options(setup_timeout=0.5))
        assert beats > 8
        a, b = numpy.random.default_rng(3).random((2, 20, 20))
        results = [numpy.zeros((20, 20)) for _ in range(60)]
        await asyncio.gather(*(naa.offload_async(server.address, "dgemm", a=a, b=b, c=c, timeout=30) for c in results))
        assert all(numpy.allclose(c, a @ b) for c in results)
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("naa")]
        assert 1 <= len(threads) <= 8
        beating.cancel()

    run(test())


def test_a_session_that_nobody_waits_for_any_more_is_closed(own_server: Server) -> None:
    async def test() -> None:
        numbers = bytearray(4)
        own_server.pause()

        async def connect() -> None:
            async with naa.connect_async(own_server.address, [naa.InOut(numbers)], PATIENT):
                raise AssertionError("it was cancelled before")

        connecting = asyncio.create_task(connect())
        await asyncio.sleep(0.1)
        with pytest.raises(BufferError):
            numbers.extend(b"more")
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        own_server.go_on()
        for _ in range(500):
            await asyncio.sleep(0.01)
            try:
                numbers.extend(b"more")
                return
            except BufferError:
                pass
        raise AssertionError("the memory is still in use")

    run(test())


def test_a_task_awaits_a_call_while_another_asks_for_functions(own_server: Server) -> None:
    data = numpy.random.default_rng(5).integers(0, 16, 4 << 20, dtype="u1")
    packed = numpy.zeros(5 << 20, "u1")
    # Takes seconds.
    regions = naa.regions_for("zstd-compress", data=data, compressed=packed, level=19)

    async def test() -> None:
        async with naa.connect_async(own_server.address, regions, PATIENT) as session:
            call = asyncio.create_task(session.call_async("zstd-compress", timeout=50))
            await asyncio.sleep(0.3)
            own_server.pause()
            asking = asyncio.create_task(session.functions_async())
            # The call is tested meanwhile: once a second the server is asked for a sign of life.
            await asyncio.sleep(2)
            assert not call.done() and not asking.done()
            own_server.go_on()
            await asyncio.gather(call, asking)
            assert session.functions["increment"].code == 1
        assert packed.any()

    run(test())


def test_a_session_is_closed_while_it_asks_for_functions(own_server: Server) -> None:
    async def test() -> None:
        numbers = bytearray(4)
        async with naa.connect_async(own_server.address, [naa.InOut(numbers)], PATIENT) as session:
            own_server.pause()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.call_async("a-kernel"), 0.05)
            asking = asyncio.create_task(session.functions_async())
            await asyncio.sleep(0.05)
        assert session.closed
        numbers.extend(b"free")
        own_server.go_on()
        with pytest.raises(naa.ArgumentError):
            await asking

    run(test())


def test_a_session_is_closed_in_another_event_loop_than_it_asked_in(server: Server) -> None:
    async def connect() -> naa.Session:
        session = await naa.connect_async(server.address, [naa.InOut(bytearray(4))])
        assert "dgemm" in await session.functions_async()
        return session

    async def close(session: naa.Session) -> None:
        async with session:
            pass
        assert session.closed

    asyncio.run(close(asyncio.run(connect())))
