"""Events of a bridge as arrays, copied and in place."""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from bridge import Bridge, Seat
from conftest import ADDRESSES, PROGRAM

import naa
from naa.events import Worker

Pair = tuple[Seat, Worker]


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    bridge = Bridge(tmp_path)
    yield bridge
    bridge.close()


@pytest.fixture
def subscribe(bridge: Bridge) -> Iterator[Callable[..., Pair]]:
    """Workers that are closed after the test."""
    workers: list[Worker] = []

    def subscribe(**options: Any) -> Pair:
        seats: list[Seat] = []
        thread = threading.Thread(target=lambda: seats.append(bridge.accept()))
        thread.start()
        workers.append(Worker(bridge.source, **{"slots": 8, "slot_bytes": 64, "reconnect": None, **options}))
        thread.join()
        return seats[0], workers[-1]

    yield subscribe
    for worker in workers:
        worker.close()


def ring() -> range:
    """Where the ring is mapped that this program reads."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, access, *_ = line.split()
        if "naa-test-events" in line and access.startswith("r--s"):
            first, last = (int(part, 16) for part in span.split("-"))
            return range(first, last)
    raise AssertionError("no ring is mapped")


def address(array: numpy.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_an_event_is_an_array_of_its_own_or_one_in_the_ring(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe(name="python", data_ids=range(3, 8), member=9)
    assert (seat.name, seat.filter) == ("python", (3, 7, 9))
    assert "shared" in worker.description
    numbers = numpy.arange(60, dtype="<u2")
    assert seat.put(numbers.tobytes(), event=5, data_id=3, tick=11)
    event = worker.next(10)
    assert (event.event, event.data_id, event.tick, event.sequence) == (5, 3, 11, 1)
    assert (event.first_segment_ns, event.assembly_ns, len(event)) == (1_000_000_000, 5000, 120)
    array = event.array_in_place("<u2")
    assert (array == numbers).all()
    assert not array.flags.owndata and not array.flags.writeable
    assert address(array) in ring() and address(array[-1:]) in ring()
    assert address(event.array_in_place()) == address(array)
    with pytest.raises(ValueError):
        array[0] = 1
    with pytest.raises(ValueError):
        array.flags.writeable = True
    assert event.view_in_place().readonly and bytes(event) == numbers.tobytes()
    copy = event.array("<u2")
    assert (copy == numbers).all() and address(copy) not in ring() and copy.flags.writeable
    for array_of in (event.array, event.array_in_place):
        with pytest.raises(ValueError, match="size"):
            array_of("V7")
    assert worker.stats == (1, 120, 0, 1)


def test_a_copy_does_not_change_when_the_bridge_writes_the_event_again(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()
    assert seat.put(bytes(range(100)))
    event = worker.next(10)
    array, copy, filled = event.array(), bytes(event), numpy.empty(50, "<u2")
    event.read_into(filled)
    in_place = event.array_in_place()
    seat.overwrite(0, bytes(100))
    assert not in_place.any()
    assert array.tolist() == list(copy) == list(filled.tobytes()) == list(range(100))


def test_a_part_of_an_event_goes_into_a_buffer(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()
    assert seat.put(bytes(range(100)))
    event = worker.next(10)
    part = bytearray(10)
    event.read_into(part, 90)
    assert list(part) == list(range(90, 100))
    event.read_into(bytearray(0), 100)
    for offset in (91, -1, 1 << 40):
        with pytest.raises(ValueError, match="do not lie inside the event, which has 100"):
            event.read_into(part, offset)
    with pytest.raises((TypeError, BufferError, ValueError)):
        event.read_into(b"0123456789")
    event.release()
    with pytest.raises(naa.StateError, match="released"):
        event.read_into(part)
    assert seat.held() == 0


def test_memory_is_given_back_with_the_last_view(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()
    assert seat.put(bytes(range(100)))
    event = worker.next(10)
    part = event.array_in_place("u1").reshape(10, 10)[3:5].T
    view, copy = event.view_in_place()[7:9], event.array()
    event.release()
    for use in (event.array, event.array_in_place, event.view_in_place, event.__bytes__):
        with pytest.raises(naa.StateError, match="released"):
            use()
    del event
    gc.collect()
    assert seat.held() == 1 and worker.stats.held == 1
    assert address(part) in ring()
    assert part.tolist() == [[30 + at, 40 + at] for at in range(10)]
    del part
    assert seat.held() == 1
    assert view.tolist() == [7, 8]
    del view
    assert seat.held() == 0 and worker.stats.held == 0
    # Copies keep nothing.
    assert copy.tolist() == list(range(100))


def test_events_are_released_in_any_order(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()
    for number in range(8):
        assert seat.put(bytes([number]) * 64, event=number)
    assert not seat.put(b"")
    events = [worker.next(10) for _ in range(8)]
    assert worker.try_next() is None
    for number in (5, 2, 7):
        events[number].release()
    assert seat.held() == 5
    for number in (10, 11, 12):
        assert seat.put(bytes([number]) * 64, event=number)
    assert [worker.next(10).event for _ in range(3)] == [10, 11, 12]
    # Nobody kept those, and the others are as they were.
    assert seat.held() == 5
    assert all((events[number].array() == number).all() for number in (0, 1, 3, 4, 6))
    with events[0] as first:
        assert first.array()[0] == 0
    thread = threading.Thread(target=events[1].release)
    thread.start()
    thread.join()
    assert seat.held() == 3


def test_events_come_by_a_loop(subscribe: Callable[..., Pair]) -> None:
    # Room for two of the largest: the loop keeps one until the next one came.
    seat, worker = subscribe(slots=32)

    def feed() -> None:
        for number in range(500):
            while not seat.put(number.to_bytes(4, "little") * (number % 100), event=number):
                time.sleep(0)

    thread = threading.Thread(target=feed)
    thread.start()
    for expected, event in enumerate(worker):
        assert event.event == expected
        assert (event.array("<u4") == expected).all() and len(event) == 4 * (expected % 100)
        if expected == 499:
            break
    thread.join()
    assert worker.stats.events == 500


def test_events_come_to_tasks_while_others_run(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()

    async def test() -> None:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.001)
                beats += 1

        async def feed() -> None:
            for number in range(50):
                await asyncio.sleep(0.002)
                assert seat.put(bytes([number]) * 10, event=number)

        others = [asyncio.create_task(beat()), asyncio.create_task(feed())]
        expected = 0
        async for event in worker:
            assert event.event == expected and (event.array() == expected).all()
            expected += 1
            if expected == 50:
                break
        assert beats > 20
        others[0].cancel()
        await others[1]
        with pytest.raises(naa.TimedOut, match="no event came within 0.05 s"):
            await worker.next_async(0.05)
        waiting = asyncio.create_task(worker.next_async())
        await asyncio.sleep(0.01)
        with pytest.raises(naa.StateError, match="another task"):
            await worker.next_async()
        worker.close()
        with pytest.raises(naa.StateError, match="closed while"):
            await waiting

    asyncio.run(asyncio.wait_for(test(), 60))


def test_events_that_another_worker_had_say_so(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe(again=True)
    for number, again in enumerate([False, True, False]):
        assert seat.put(b"bytes", event=number, tick=number or None, again=again)
        event = worker.next(10)
        assert (event.event, event.delivered_again, bytes(event)) == (number, again, b"bytes")
        event.release()
    seat, worker = subscribe()
    assert seat.put(b"bytes")
    assert not worker.next(10).delivered_again


def test_a_bridge_that_ends_is_told_and_its_events_stay(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe()
    assert seat.put(b"last")
    array = worker.next(10).array_in_place()
    seat.leave()
    with pytest.raises(naa.GoneError, match="closed its socket"):
        worker.next(10)
    with pytest.raises(naa.OverError):
        worker.next(10)
    worker.close()
    assert worker.closed and bytes(array) == b"last"


def test_a_bridge_that_comes_back_is_found(bridge: Bridge, subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe(reconnect=20.0)
    assert seat.put(b"old")
    old = worker.next(10)
    seat.leave()

    async def test() -> None:
        event = asyncio.create_task(worker.next_async(20))
        again = await asyncio.to_thread(bridge.accept)
        assert again.put(b"new")
        assert bytes(await event) == b"new"

    asyncio.run(test())
    assert bytes(old) == b"old" and worker.stats.reconnects == 1


def test_what_cannot_be_is_refused(bridge: Bridge, subscribe: Callable[..., Pair]) -> None:
    for options, words in (
        ({"slots": 0}, "slots"),
        ({"slot_bytes": 65}, "multiples of 64"),
        ({"data_ids": range(0)}, "data_ids"),
        ({"data_ids": 65536}, "data_ids"),
        ({"member": -1}, "member"),
        ({"name": "x" * 33}, "name"),
        ({"wait": "never"}, "wait"),
        ({"local_address": "nowhere"}, "local_address"),
    ):
        with pytest.raises(naa.ArgumentError, match=words):
            Worker(bridge.source, **options)
    with pytest.raises(naa.UnreachableError, match="naa bridge"):
        Worker("unix:/nowhere")
    seat, worker = subscribe()
    with pytest.raises(naa.TimedOut, match="within 0.02 s"):
        worker.next(0.02)
    worker.close()
    worker.close()
    for use in (worker.next, worker.try_next, worker.fileno, worker.__enter__):
        with pytest.raises(naa.ArgumentError, match="closed"):
            use()
    assert repr(worker) == "<naa.events.Worker closed>"


@pytest.fixture
def real_bridge(tmp_path: Path) -> Iterator[dict[str, str]]:
    """`naa bridge`: where it listens for segments, and its sources of events."""
    segments, address, path = next(ADDRESSES), next(ADDRESSES), tmp_path / "naa.sock"
    command = [PROGRAM, "bridge", "--listen", segments, "--bind", address, "--local", str(path), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "ready"
    yield {"segments": segments, "remote": address, "local": f"unix:{path}"}
    process.terminate()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("way", ["remote", "local"])
def test_a_real_bridge_streams_files_into_arrays(real_bridge: dict[str, str], way: str, tmp_path: Path) -> None:
    numbers = [numpy.arange(count, dtype="<u4") * (count + 1) for count in (1, 1000, 50_000, 300_000)]
    files = [tmp_path / f"{count}" for count in range(len(numbers))]
    for file, content in zip(files, numbers):
        content.tofile(file)
    with Worker(real_bridge[way], slots=16, slot_bytes=1 << 18) as worker:
        send = [PROGRAM, "ejfat", "send", "--to", real_bridge["segments"], "--rate", "0.5", *map(str, files)]
        subprocess.run(send, check=True, stdout=subprocess.DEVNULL)
        arrays = {}
        for _ in files:
            event = worker.next(20)
            arrays[event.event] = (event.array_in_place("<u4"), event.array("<u4"))
            event.release()
        assert worker.stats.held == len(files)
        for expected, (_, (array, copy)) in zip(numbers, sorted(arrays.items())):
            assert not array.flags.owndata and not array.flags.writeable
            assert numpy.array_equal(array, expected) and numpy.array_equal(copy, expected)


def test_empty_events_are_events(subscribe: Callable[..., Pair]) -> None:
    seat, worker = subscribe(data_ids=4)
    assert seat.filter == (4, 4, None)
    assert seat.put(b"")
    event = worker.next(10)
    assert len(event) == 0 and event.view_in_place().nbytes == 0 and bytes(event) == b""
    assert event.array("<f8").size == 0 and event.array_in_place("<f8").size == 0
    del event
    assert seat.held() == 0


def test_workers_are_closed_by_async_with(subscribe: Callable[..., Pair]) -> None:
    async def test() -> None:
        seat, worker = subscribe()
        assert seat.put(b"abc")
        async with worker as same:
            assert same is worker and bytes(await worker.next_async(5)) == b"abc"
        assert worker.closed

    asyncio.run(asyncio.wait_for(test(), 60))
