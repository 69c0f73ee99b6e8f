"""Calls on arrays in place, and what regions can be."""

from __future__ import annotations

import array
import math
import mmap
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from conftest import Server

import naa

Connect = Callable[..., naa.Session]


def test_increments_an_array_in_place(connect: Connect) -> None:
    numbers = numpy.arange(100_000, dtype=numpy.uint8)
    before = numbers.ctypes.data
    outcome = connect(naa.InOut(numbers)).call("increment", timeout=5)
    assert (numbers == numpy.arange(1, 100_001, dtype=numpy.uint8)).all()
    assert numbers.ctypes.data == before
    assert (outcome.result, outcome.function, outcome.return_code) == (naa.Result.OK, 1, 0)
    assert outcome.last_output_bytes == 100_000


def test_multiplies_matrices(server: Server) -> None:
    random = numpy.random.default_rng(7)
    a, b = random.random((200, 300)), random.random((300, 250))
    c = numpy.empty((200, 250))
    outcome = naa.offload(server.address, "dgemm", [200, 250, 300], [a, b], [c], timeout=10)
    assert numpy.allclose(c, a @ b)
    assert outcome.produced[1] == c.nbytes


def test_offloads_each_kind_of_array(server: Server) -> None:
    numbers = numpy.random.default_rng(8).integers(-1000, 1000, 5000, dtype=numpy.int32)
    ordered = numpy.empty_like(numbers)
    naa.offload(server.address, "sort", [5000, naa.type_code(numbers), 1], [numbers], [ordered])
    assert (ordered == -numpy.sort(-numbers)).all()
    signal = numpy.random.default_rng(9).random(1024) + 0j
    spectrum = numpy.empty_like(signal)
    naa.offload(server.address, "fft", [1024, 0], [signal], [spectrum])
    assert numpy.allclose(spectrum, numpy.fft.fft(signal))
    digest = bytearray(32)
    naa.offload(server.address, "sha256", [3], [b"abc"], [digest])
    assert digest.hex().startswith("ba7816bf")


@pytest.mark.parametrize(
    "memory",
    [
        bytearray(b"abcd"),
        memoryview(bytearray(b"abcd")),
        array.array("B", b"abcd"),
        mmap.mmap(-1, 4),
        numpy.frombuffer(bytearray(b"abcd"), numpy.uint32),
        numpy.array(1633837924, dtype=numpy.uint32),
        (numpy.frombuffer(bytearray(b"xabcdx"), numpy.uint8))[1:5],
    ],
    ids=["bytearray", "memoryview", "array", "mmap", "uint32", "scalar", "slice"],
)
def test_takes_any_writable_buffer(connect: Connect, memory: bytearray) -> None:
    before = memoryview(memory).tobytes()
    session = connect(naa.InOut(memory))
    session.call("increment", timeout=5)
    assert memoryview(memory).tobytes() == bytes(byte + 1 for byte in before)
    session.close()
    if isinstance(memory, mmap.mmap):
        memory.close()


def test_works_without_numpy(server: Server) -> None:
    program = f"""
import sys
import threading
import time
sys.modules["numpy"] = None
import naa
memory = bytearray(b"abc")
with naa.connect({server.address!r}, [naa.InOut(memory)]) as session:
    session.call("increment", timeout=5)
assert memory == b"bcd", memory
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)


def test_sends_read_only_memory(server: Server) -> None:
    checksum = bytearray(4)
    frozen = numpy.frombuffer(b"123456789", numpy.uint8)
    assert not frozen.flags.writeable
    naa.offload(server.address, "crc32c", [9], [frozen], [checksum])
    assert int.from_bytes(checksum, sys.byteorder) == 0xE3069283


def test_empty_arrays_single_send_and_internal_regions(connect: Connect) -> None:
    numbers = bytearray(8)
    constant = bytearray(b"once")
    session = connect(
        naa.InOut(numbers), naa.Output(numpy.empty(0)), naa.Input(constant, single_send=True), naa.Internal(4096)
    )
    for turn in (1, 2):
        session.call("increment", timeout=5)
        assert numbers == bytes([turn] * 8)
    assert constant == b"once"


def test_sends_a_range(connect: Connect) -> None:
    numbers = bytearray(8)
    session = connect(naa.InOut(numbers))
    session.call("increment", timeout=5)
    numbers[:] = bytes([10] * 8)
    session.set_range(0, 2, 3)
    session.call("increment", timeout=5)
    assert numbers == bytes([2, 2, 11, 11, 11, 2, 2, 2])
    session.set_range_all(0)
    session.call("increment", timeout=5)
    assert numbers == bytes([3, 3, 12, 12, 12, 3, 3, 3])
    with pytest.raises(naa.ArgumentError, match="region 0: it has 8 bytes"):
        session.set_range(0, 8, 1)


def test_buffers_stay_as_long_as_arrays_on_them(server: Server) -> None:
    numbers = numpy.frombuffer(naa.buffer(1 << 20), numpy.uint8)
    for turn in (1, 2):
        with naa.connect(server.address, [naa.InOut(numbers)]) as session:
            session.call("increment", timeout=5)
        assert (numbers == turn).all()
    few = numbers[5:10]
    del numbers
    assert (few == 2).all()


def test_finds_accelerators_by_naa_spec(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAA_SPEC", f"{server.address}::1:1")
    numbers = bytearray(3)
    with naa.connect_spec("increment", [naa.InOut(numbers)]) as session:
        session.call("increment", timeout=5)
        with pytest.raises(naa.SettingsError):
            naa.connect_spec("increment", [naa.InOut(bytearray(3))])
    assert numbers == bytes([1, 1, 1])


def test_calls_take_as_long_as_they_may(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(options: naa.Options) -> None:
        with naa.connect(server.address, [naa.InOut(bytearray(1 << 20))], options) as session:
            server.pause()
            threading.Timer(1.0, server.go_on).start()
            session.call("increment")

    monkeypatch.setenv("NAA_TIMEOUT", "0.3")
    with pytest.raises(naa.GoneError, match="NAA_TIMEOUT"):
        call(naa.Options(setup_timeout=5, silence=20))
    time.sleep(1.5)
    call(naa.Options(setup_timeout=5, silence=20, call_timeout=math.inf))
    time.sleep(0.5)
    monkeypatch.setenv("NAA_TIMEOUT", "soon")
    with pytest.raises(naa.SettingsError, match="NAA_TIMEOUT"):
        call(naa.Options())


@pytest.mark.parametrize("example", ["dgemm.py", "gather.py"])
def test_examples_run(server: Server, example: str) -> None:
    path = Path(__file__).parents[1] / "examples" / example
    subprocess.run([sys.executable, "-W", "error", path, server.address], check=True, timeout=60)


def test_the_example_of_the_readme_runs(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    program = readme.partition("```python\n")[2].partition("```")[0]
    exec(program.replace("127.0.0.1", server.address), {})
    assert capsys.readouterr().out == "2 3 4 5\n"
