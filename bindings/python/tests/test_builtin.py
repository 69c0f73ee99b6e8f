"""Built-in functions: arguments by name, what is inferred from arrays, and arrays that do not fit."""

from __future__ import annotations

import pydoc
from typing import Any

import numpy
import pytest
from conftest import Server

import naa
from naa._signatures import SIGNATURES

# No server has this address: what does not fit is refused before connecting.
NOBODY = "127.7.255.253"


def zeros(*shape: int) -> Any:
    return numpy.zeros(shape)


def test_sizes_of_dgemm_are_inferred_from_matrices(server: Server) -> None:
    random = numpy.random.default_rng(11)
    a, b, c = random.random((20, 30)), random.random((30, 25)), zeros(20, 25)
    outcome = naa.offload(server.address, "dgemm", a=a, b=b, c=c, timeout=10)
    assert numpy.allclose(c, a @ b) and outcome.produced[1] == c.nbytes
    c[:] = 0
    naa.offload(server.address, "dgemm", inputs=[a, b], outputs=[c], timeout=10)
    assert numpy.allclose(c, a @ b)
    # A one-dimensional `a` must be as large as b and c say.
    c[:] = 0
    naa.offload(server.address, "dgemm", a=a.ravel(), b=b, c=c, timeout=10)
    assert numpy.allclose(c, a @ b)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        (
            {"a": zeros(3, 3)},
            r"input 0 \(a\) has the shape \(3, 3\), and dgemm needs m x k, \(2, 4\), with m = 2, k = 4; b has",
        ),
        ({"a": zeros(4, 2)}, r"input 0 \(a\) has the shape \(4, 2\)"),
        ({"b": zeros(4, 4)}, r"input 1 \(b\) has the shape \(4, 4\), and dgemm needs k x n, \(4, 3\)"),
        ({"b": zeros(13)}, r"input 1 \(b\) has the shape \(13,\)"),
        ({"b": zeros(2, 2, 3)}, r"input 1 \(b\) has the shape \(2, 2, 3\)"),
        ({"c": zeros(3, 3)}, r"output 0 \(c\) has the shape \(3, 3\), .* a has the shape \(2, 4\)"),
        ({"c": bytearray(47)}, r"output 0 \(c\) has 47 bytes, and dgemm needs m x n"),
    ],
)
def test_dgemm_refuses_wrong_shapes(arrays: dict[str, Any], text: str) -> None:
    with pytest.raises(naa.ArgumentError, match=text):
        naa.offload(NOBODY, "dgemm", m=2, n=3, k=4, **{"a": zeros(2, 4), "b": zeros(4, 3), "c": zeros(2, 3), **arrays})
    given = {"a": zeros(2, 4), "b": zeros(4, 3), "c": zeros(2, 3), **arrays}
    with pytest.raises(naa.ArgumentError, match=text):
        naa.offload(NOBODY, "dgemm", [2, 3, 4], [given["a"], given["b"]], [given["c"]])


def test_dgemm_refuses_matrices_that_cannot_be_multiplied() -> None:
    with pytest.raises(naa.ArgumentError, match=r"input 1 \(b\) has the shape \(5, 3\), .*a has the shape \(2, 4\)"):
        naa.offload(NOBODY, "dgemm", a=zeros(2, 4), b=zeros(5, 3), c=zeros(2, 3))
    with pytest.raises(naa.ArgumentError, match="dgemm: n is not given, and arrays do not tell it"):
        naa.offload(NOBODY, "dgemm", a=zeros(2, 4), b=zeros(12), c=zeros(6))


@pytest.mark.parametrize(
    ("values", "inputs", "outputs", "text"),
    [
        ([2, 2, 2, 2], 2, 1, r"dgemm has 3 values \(m, n, k\), and 4 are given"),
        ([2, 2], 2, 1, "3 values .* and 2 are given"),
        ([2, 2, 2], 3, 1, r"dgemm has 2 inputs \(a, b\), and 3 are given"),
        ([2, 2, 2], 2, 2, r"dgemm has 1 output \(c\), and 2 are given"),
        ([2, 2, 2], 2, 0, "dgemm: the output c is missing; it has values m, n, k; inputs a, b; outputs c"),
        ([2, -2, 2], 2, 1, "dgemm: n is -2"),
    ],
)
def test_dgemm_refuses_too_many_and_too_few(values: list[int], inputs: int, outputs: int, text: str) -> None:
    with pytest.raises(naa.ArgumentError, match=text):
        naa.regions_for("dgemm", values, [zeros(2, 2)] * inputs, [zeros(2, 2)] * outputs)


@pytest.mark.parametrize(
    ("function", "named", "text"),
    [
        ("sort", {"n": 2, "numbers": zeros(5), "sorted": zeros(5)}, r"input 0 \(numbers\) has the shape \(5,\)"),
        ("sort", {"numbers": zeros(5), "sorted": zeros(6)}, r"output 0 \(sorted\) has the shape \(6,\)"),
        ("fft", {"signal": zeros(5) + 0j, "spectrum": zeros(4) + 0j}, r"output 0 \(spectrum\)"),
        ("fft", {"signal": zeros(5, 5) + 0j, "spectrum": zeros(5, 5) + 0j}, "fft: n is not given"),
        ("vector-add", {"a": zeros(5), "b": zeros(4), "sum": zeros(5)}, r"input 1 \(b\)"),
        ("histogram", {"numbers": zeros(5), "counts": numpy.zeros(9, "u8"), "bins": 4, "lo": 0, "hi": 1}, "bins = 4"),
        ("sha256", {"bytes": 10, "data": b"abc", "digest": bytearray(32)}, "data.* has 3 bytes, and sha256 needs 10"),
        ("sha256", {"data": b"abc", "digest": bytearray(31)}, "digest.* has 31 bytes, and sha256 needs 32"),
        (
            "sort",
            {"numbers": zeros(5), "sorted": zeros(5), "up": True},
            "sort has no argument 'up'; it has values n, type",
        ),
        ("sort", {"numbers": zeros(5), "sorted": zeros(5), "type": "f2"}, "the type 'f2' is none of u1"),
        ("sort", {"numbers": zeros(5), "sorted": zeros(5), "type": 9}, "the type 9 is none of 0 u1"),
        ("histogram", {"numbers": zeros(5), "counts": numpy.zeros(9, "u8")}, "histogram: lo is not given"),
    ],
)
def test_other_functions_refuse_arrays_that_do_not_fit(function: str, named: dict[str, Any], text: str) -> None:
    with pytest.raises(naa.ArgumentError, match=text):
        naa.offload(NOBODY, function, **named)


@pytest.mark.parametrize(
    ("function", "named", "text"),
    [
        ("sort", {"n": 2**63, "type": 0}, "sort: n does not fit into 64 bits"),
        ("zstd-compress", {"bytes": 1, "level": -(2**63) - 1}, "level does not fit into 64 bits"),
        ("histogram", {"n": 1, "type": 0, "bins": 1, "lo": 10**400, "hi": 1}, "histogram: lo is too large for a double"),
    ],
)
def test_numbers_that_no_argument_block_can_hold_are_refused(function: str, named: dict[str, Any], text: str) -> None:
    with pytest.raises(naa.ArgumentError, match=text):
        naa.arguments(function, **named)
    signature = SIGNATURES[function]
    arrays: dict[str, Any] = {array.name: bytearray(64) for array in (*signature.inputs, *signature.outputs)}
    with pytest.raises(naa.ArgumentError, match=text):
        naa.regions_for(function, **named, **arrays)


def test_every_function_takes_its_arguments_by_name(server: Server) -> None:
    numbers = numpy.random.default_rng(12).integers(0, 100, 500, dtype=numpy.uint32)

    def call(function: str, **named: Any) -> naa.Outcome:
        return naa.offload(server.address, function, timeout=5, **named)

    ordered, total, counts = numpy.empty_like(numbers), numpy.empty_like(numbers), numpy.zeros(10 + 3, "u8")
    call("sort", numbers=numbers, sorted=ordered, descending=True)
    assert (ordered == numpy.sort(numbers)[::-1]).all()
    call("vector-add", a=numbers, b=ordered, sum=total)
    assert (total == numbers + ordered).all()
    call("histogram", numbers=numbers, counts=counts, lo=0, hi=100.0)
    assert (counts[:10] == numpy.histogram(numbers, 10, (0, 100))[0]).all() and not counts[10:].any()
    signal = numpy.random.default_rng(13).random(64) + 0j
    spectrum = numpy.empty_like(signal)
    call("fft", signal=signal, spectrum=spectrum, inverse=1)
    assert numpy.allclose(spectrum / 64, numpy.fft.ifft(signal))
    digest, checksum = bytearray(32), numpy.zeros(1, "u4")
    call("sha256", data=b"abc", digest=digest)
    call("crc32c", data=b"123456789", checksum=checksum)
    assert digest.hex().startswith("ba7816bf") and checksum[0] == 0xE3069283
    for kind in ("lz4", "zstd"):
        packed, data = bytearray(1000), bytearray(500)
        size = call(f"{kind}-compress", data=b"x" * 500, compressed=packed).produced[1]
        call(f"{kind}-decompress", compressed=packed[:size], data=data)
        assert data == b"x" * 500


def test_lists_and_names_are_the_same() -> None:
    assert naa.arguments("sort", [9, 6, 1]) == naa.arguments("sort", n=9, type="f8", descending=True)
    assert naa.arguments("histogram", [9, 6, 4, 0.5, 2.5]) == naa.arguments(
        "histogram", n=9, type=6, bins=4, lo=0.5, hi=2.5
    )
    assert naa.arguments("zstd-compress", [9]) == naa.arguments("zstd-compress", bytes=9, level=0)
    assert naa.arguments(18, [1, 2, 3]) == naa.arguments("dgemm", k=3, n=2, m=1)
    with pytest.raises(naa.ArgumentError, match="dgemm: m is given by name, and there is a list of values"):
        naa.arguments("dgemm", [1, 2, 3], m=1)
    with pytest.raises(naa.ArgumentError, match="dgemm: a is given by name, and there is a list of inputs"):
        naa.regions_for("dgemm", inputs=[zeros(2, 2)] * 2, a=zeros(2, 2), c=zeros(2, 2))


def test_help_has_the_table_of_what_each_function_takes(server: Server) -> None:
    for what in (naa, naa.arguments, naa.regions_for, naa.offload, naa.offload_async):
        help_text = pydoc.plain(pydoc.render_doc(what))
        assert all(
            signature.code and f"{signature.code} {name} " in help_text for name, signature in SIGNATURES.items()
        )
        assert "m, n, k" in help_text and "a f8 (m x k), b f8 (k x n)" in help_text
    # The table agrees with the catalogue of the accelerator.
    with naa.connect(server.address, [naa.InOut(bytearray(1))]) as session:
        offered = {name: it for name, it in session.functions.items() if 16 <= it.code <= 63}
    assert {name: it.code for name, it in offered.items()} == {name: it.code for name, it in SIGNATURES.items()}
    for name, function in offered.items():
        signs = [parameter[0] for parameter in function.parameters.split()]
        signature = SIGNATURES[name]
        assert signs == ["<"] * len(signature.inputs) + [">"] * len(signature.outputs)


def test_bytes_stand_for_numbers_of_any_type(server: Server) -> None:
    numbers, memory = numpy.array([3, 1, 2], dtype=numpy.uint32), bytearray(12)
    naa.offload(server.address, "sort", numbers=numbers, sorted=memory, timeout=5)
    assert numpy.frombuffer(memory, numpy.uint32).tolist() == [1, 2, 3]
    signed = numpy.frombuffer(memory, numpy.int8)
    naa.offload(server.address, "sort", [3, "u4", 1], [signed], [numbers], timeout=5)
    assert numbers.tolist() == [3, 2, 1]
    doubles, sorted_doubles = bytearray(numpy.array([3.0, 1.0, 2.0]).tobytes()), bytearray(24)
    naa.offload(server.address, "sort", type="f8", numbers=doubles, sorted=sorted_doubles, timeout=5)
    assert numpy.frombuffer(sorted_doubles).tolist() == [1, 2, 3]
    letters = bytearray(3)
    naa.offload(server.address, "sort", numbers=b"cab", sorted=letters, timeout=5)
    assert letters == b"abc"
