"""Waits, time-outs, threads, several calls in flight, servers that die."""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from conftest import PATIENT, QUICK, Server

import naa

Connect = Callable[..., naa.Session]


def test_a_call_goes_on_after_a_time_out(own_server: Server) -> None:
    numbers = bytearray(4)
    with naa.connect(own_server.address, [naa.InOut(numbers)], PATIENT) as session:
        own_server.pause()
        for timeout in (0.1, 0.6, 0):
            start = time.monotonic()
            with pytest.raises(naa.TimedOut, match="it goes on"):
                if session.state == naa.State.IDLE:
                    session.call("increment", timeout=timeout)
                else:
                    session.wait(timeout)
            assert timeout <= time.monotonic() - start < timeout + 0.5
        assert session.state == naa.State.RUNNING and session.test() is None
        own_server.go_on()
        session.wait(10)
    assert numbers == bytes([1] * 4)


def test_a_server_that_dies_is_noticed(own_server: Server) -> None:
    with naa.connect(own_server.address, [naa.InOut(bytearray(4))], QUICK) as session:
        own_server.pause()
        session.start("increment")
        own_server.kill()
        start = time.monotonic()
        with pytest.raises(naa.GoneError) as failure:
            session.wait()
        assert time.monotonic() - start < 5
        assert isinstance(failure.value, ConnectionError) and own_server.address in str(failure.value)
        assert session.state == naa.State.OVER
        with pytest.raises(naa.OverError):
            session.call("increment")


def test_ctrl_c_ends_a_wait(own_server: Server) -> None:
    with naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT) as session:
        own_server.pause()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            session.call("increment")
        assert time.monotonic() - start < 2
        own_server.go_on()
        session.wait(10)


def test_other_threads_run_during_a_wait_and_cannot_disturb_it(own_server: Server) -> None:
    with naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT) as session:
        own_server.pause()
        thread = threading.Thread(target=session.call, args=("increment",))
        thread.start()
        time.sleep(0.3)
        for use in (session.test, session.close, lambda: session.start("increment")):
            with pytest.raises(naa.StateError, match="another thread"):
                use()
        assert not session.closed
        own_server.go_on()
        thread.join()
        assert session.state == naa.State.IDLE


def test_threads_with_a_session_each(server: Server) -> None:
    def work(first: int) -> bool:
        numbers = numpy.full(10_000, first, numpy.uint8)
        with naa.connect(server.address, [naa.InOut(numbers)]) as session:
            for _ in range(50):
                session.call("increment", timeout=30)
        return bool((numbers == first + 50).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_waits_for_any_and_for_all(server: Server, own_server: Server) -> None:
    arrays = [bytearray(4) for _ in range(3)]
    addresses = [own_server.address, server.address, server.address]
    sessions = [
        naa.connect(address, [naa.InOut(array)], PATIENT) for address, array in zip(addresses, arrays, strict=True)
    ]
    slow, quick, idle = sessions
    assert naa.wait_any(sessions) is None and naa.wait_all(sessions) == [None] * 3
    own_server.pause()
    slow.start("increment")
    quick.start("increment")
    found = naa.wait_any(sessions, 5)
    assert found is not None and found[0] == 1 and found[1].function == 1
    with pytest.raises(naa.TimedOut):
        naa.wait_any(sessions, 0.4)
    quick.start(99)
    with pytest.raises(naa.TimedOut, match=r"0\.4 s") as late:
        naa.wait_all(sessions, 0.4)
    assert late.value.index == 0
    outcomes = late.value.outcomes
    assert outcomes[0] is None and outcomes[1] is not None and outcomes[1].return_code != 0 and outcomes[2] is None
    quick.start(99)
    with pytest.raises(naa.FunctionError) as failure:
        naa.wait_any(sessions, 5)
    assert failure.value.index == 1 and failure.value.outcome is not None
    own_server.go_on()
    idle.start("increment")
    assert [outcome and outcome.function for outcome in naa.wait_all(sessions, 10)] == [1, None, 1]
    for session in sessions:
        session.close()


def test_a_descriptor_to_poll(own_server: Server) -> None:
    with naa.connect(own_server.address, [naa.InOut(bytearray(4))], PATIENT) as session:
        own_server.pause()
        session.start("increment")
        poll = select.poll()
        poll.register(session, select.POLLIN)
        assert session.test() is None
        own_server.go_on()
        deadline = time.monotonic() + 10
        while session.test() is None:
            assert poll.poll(5000) and time.monotonic() < deadline


def test_a_child_of_fork_leaves_sessions_alone(server: Server) -> None:
    numbers = bytearray(4)
    session = naa.connect(server.address, [naa.InOut(numbers)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fork() in a process with threads
        child = os.fork()
        if child == 0:
            del session
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    session.call("increment", timeout=5)
    session.close()
    assert numbers == bytes([1] * 4)


def _resources() -> tuple[int, int, int]:
    """Pages, resident pages, and descriptors."""
    with open("/proc/self/statm") as statm:
        pages, resident, *_ = map(int, statm.read().split())
    return pages, resident, len(os.listdir("/proc/self/fd"))


def test_a_thousand_sessions_leave_nothing(server: Server) -> None:
    numbers = numpy.zeros(100_000, numpy.uint8)

    def some(count: int) -> tuple[int, int, int]:
        for _ in range(count):
            with naa.connect(server.address, [naa.InOut(numbers)]) as session:
                session.call("increment", timeout=5)
        return _resources()

    before = some(200)
    after = some(1000)
    assert (numbers == 1200 % 256).all()
    assert after[2] == before[2]
    assert after[1] - before[1] < 500, "2 MB in 1000 sessions"


def test_buffers_are_freed(server: Server) -> None:
    before = _resources()
    for _ in range(50):
        with naa.connect(server.address, [naa.InOut(memory := naa.buffer(1 << 26))]) as session:
            session.set_range(0, 0, 1)
        del memory
    assert _resources()[0] - before[0] < 100_000, "400 MB of 3.2 GB"
