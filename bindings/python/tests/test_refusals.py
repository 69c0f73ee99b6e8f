"""What is refused, with which text; failures as exceptions."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import pytest
from conftest import QUICK, Server

import naa
from naa._ffi import ffi

Connect = Callable[..., naa.Session]


@pytest.mark.parametrize(
    ("region", "text"),
    [
        (lambda: naa.InOut(numpy.zeros((4, 4))[:, ::2]), "region 0: the array is not contiguous"),
        (lambda: naa.Input(numpy.asfortranarray(numpy.ones((3, 2)))), "its .T"),
        (lambda: naa.Output(numpy.frombuffer(b"abc", numpy.uint8)), "region 0: the memory is read-only"),
        (lambda: naa.InOut(b"abc"), "read-only"),
        (lambda: naa.Input(numpy.array([{}, None])), "has Python objects"),
        (lambda: naa.Input(numpy.array(["2026-01-01"], "M8[D]")), "region 0: .* give a NumPy array of numbers"),
        (lambda: naa.Input([1.0, 2.0]), "region 0: .*'list'"),  # type: ignore[arg-type]
    ],
)
def test_arrays_that_cannot_be_used(server: Server, region: Callable[[], naa.Region], text: str) -> None:
    with pytest.raises(naa.ArgumentError, match=text):
        naa.connect(server.address, [region()])


def test_arrays_must_be_said_to_be_regions(server: Server) -> None:
    with pytest.raises(TypeError, match="region 1: not bytearray, but Input"):
        naa.connect(server.address, [naa.InOut(bytearray(1)), bytearray(1)])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (("f4", "f8", "f8"), r"input 0 \(a\): its type is f4, dgemm's is f8; convert"),
        (("f8", "f8", "i8"), r"output 0 \(c\): its type is i8"),
        (("f8", ">f8", "f8"), r"input 1 \(b\): its type is >d"),
    ],
)
def test_arrays_of_another_type_than_the_functions(server: Server, arrays: tuple[str, ...], text: str) -> None:
    a, b, c = (numpy.zeros((2, 2), kind) for kind in arrays)
    with pytest.raises(naa.ArgumentError, match=text):
        naa.offload(server.address, "dgemm", [2, 2, 2], [a, b], [c], timeout=5)


def test_values_that_are_not_the_functions() -> None:
    for function, values in (("sort", [1, 99, 0]), ("dgemm", [1] * 7), ("increment", [1]), ("sort", [1.5, 0, 0])):
        with pytest.raises(naa.ArgumentError):
            naa.arguments(function, values)


def test_types_without_a_code() -> None:
    assert [naa.type_code(numpy.zeros(1, kind)) for kind in naa.TYPES] == list(range(7))
    with pytest.raises(naa.ArgumentError, match="its type f2 is none of"):
        naa.type_code(numpy.zeros(1, "f2"))


def test_results_are_those_of_the_header() -> None:
    header = {name.removeprefix("NAA_ERROR_"): code for code, name in ffi.typeof("enum naa_result").elements.items()}
    assert {result.name: int(result) for result in naa.Result} | {"NAA_OK": 0} == header | {"OK": 0}
    for error in naa.Error.__subclasses__():
        assert error.code.name in header


def test_failures_of_functions_have_their_code(connect: Connect) -> None:
    session = connect(naa.Input(bytearray(64)), naa.Output(bytearray(64)))
    with pytest.raises(naa.FunctionError, match="sort") as failure:
        session.call("sort", timeout=5)
    assert failure.value.code is naa.Result.FUNCTION and int(failure.value.code) == -11
    assert failure.value.outcome is not None
    assert failure.value.outcome.return_code == 0x11
    assert session.state == naa.State.IDLE


def test_outputs_that_are_too_small_tell_what_is_needed(server: Server) -> None:
    packed = bytearray(300)
    sent = naa.offload(server.address, "zstd-compress", [10_000, 0], [bytes(10_000)], [packed], timeout=5)
    size = sent.produced[1]
    with pytest.raises(naa.FunctionError) as failure:
        out = bytearray(100)
        naa.offload(server.address, "zstd-decompress", [size], [packed[:size]], [out], timeout=5)
    assert failure.value.outcome is not None
    assert failure.value.outcome.return_code == 0x13
    assert failure.value.outcome.detail in (0, 10_000)


def test_names_and_numbers_of_no_function(connect: Connect) -> None:
    session = connect(naa.InOut(bytearray(1)))
    with pytest.raises(naa.ArgumentError, match="has no function \"frobnicate\"; it has increment, .*dgemm, .*sort"):
        session.call("frobnicate")
    with pytest.raises(naa.ArgumentError, match="300 is no function code"):
        session.call(300)
    with pytest.raises(naa.FunctionError):
        session.call(99, timeout=5)


def test_wrong_addresses_and_options(server: Server) -> None:
    start = time.monotonic()
    with pytest.raises(naa.UnreachableError, match=r"127\.7\.255\.254:12345"):
        naa.connect("127.7.255.254", [naa.InOut(bytearray(1))], QUICK)
    assert time.monotonic() - start < 5
    for options in (
        naa.Options(wait="never"),  # type: ignore[arg-type]
        naa.Options(provider="tcp"),  # type: ignore[arg-type]
        naa.Options(local_address="nowhere"),
    ):
        with pytest.raises(naa.ArgumentError, match="options"):
            naa.connect(server.address, [naa.InOut(bytearray(1))], options)
    with pytest.raises(ConnectionError):
        naa.connect("127.7.255.254", [naa.InOut(bytearray(1))], QUICK)
    with pytest.raises(naa.ArgumentError):
        naa.connect(server.address, [naa.InOut(bytearray(1))] * 32)


def test_memory_in_use_cannot_be_resized_or_freed(server: Server) -> None:
    numbers = numpy.zeros(1000, numpy.uint8)
    text = bytearray(10)
    freed = weakref.ref(numbers)
    session = naa.connect(server.address, [naa.InOut(numbers), naa.InOut(text)])
    with pytest.raises(ValueError, match="resize"):
        numbers.resize(2000)
    with pytest.raises(BufferError):
        text.extend(b"more")
    del numbers
    gc.collect()
    session.call("increment", timeout=5)
    kept = freed()
    assert kept is not None and (kept == 1).all()
    session.close()
    del kept
    gc.collect()
    assert freed() is None
    text.extend(b"more")


def test_memory_is_let_go_after_failures(server: Server) -> None:
    text = bytearray(10)
    with pytest.raises(naa.UnreachableError):
        naa.connect("127.7.255.254", [naa.InOut(text)], QUICK)
    with pytest.raises(naa.ArgumentError):
        naa.connect(server.address, [naa.InOut(text), naa.InOut(b"abc")])
    text.extend(b"more")


def test_sessions_that_are_dropped_are_closed(server: Server) -> None:
    text = bytearray(10)
    session: Any = naa.connect(server.address, [naa.InOut(text)])
    with pytest.warns(ResourceWarning, match="unclosed <naa.Session embedded"):
        del session
        gc.collect()
    text.extend(b"more")


def test_closed_sessions(server: Server) -> None:
    with naa.connect(server.address, [naa.InOut(bytearray(1))]) as session:
        assert not session.closed and "embedded" in session.description
    session.close()
    assert session.closed and repr(session) == "<naa.Session closed>"
    for use in (session.test, session.wait, session.fileno, lambda: session.call(1), session.__enter__):
        with pytest.raises(naa.ArgumentError, match="was closed"):
            use()


def test_calls_in_the_wrong_state(connect: Connect) -> None:
    session = connect(naa.InOut(bytearray(1)))
    for use in (session.test, session.wait):
        with pytest.raises(naa.StateError, match="no call"):
            use()
    session.start("increment")
    with pytest.raises(naa.StateError, match="by a call"):
        session.start("increment")
    session.wait(5)
