"""What built-in functions take: the names of their values and arrays, and how large arrays are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["SIGNATURES", "TABLE", "Array", "Signature"]


@dataclass(frozen=True)
class Array:
    """An input or output."""

    name: str
    kind: str | None = None
    """The type of its numbers as NumPy calls it; "type": what the value `type` says; None: bytes of anything."""
    shape: tuple[str | int, ...] | None = None
    """Its shape: numbers, or names of values; "bins + 3" is `bins` plus 3. The array must have exactly as many elements;
    None: any number."""
    least: str | int | None = None
    """The array must have at least so many bytes."""


@dataclass(frozen=True)
class Signature:
    """A built-in function."""

    values: tuple[str, ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    defaults: Mapping[str, int]
    """Defaults of values that may be left out; other values are inferred from arrays."""
    code: int


def _bytes(code: int, data: str, result: Array, **defaults: int) -> Signature:
    return Signature(("bytes", *defaults), (Array(data, least="bytes"),), (result,), defaults, code)


def _numbers(code: int, inputs: Sequence[Array], output: Array, values: Sequence[str], **defaults: int) -> Signature:
    return Signature(tuple(values), tuple(inputs), (output,), defaults, code)


SIGNATURES = {
    "sha256": _bytes(16, "data", Array("digest", least=32)),
    "crc32c": _bytes(17, "data", Array("checksum", "u4", least=4)),
    "dgemm": _numbers(
        18,
        [Array("a", "f8", ("m", "k")), Array("b", "f8", ("k", "n"))],
        Array("c", "f8", ("m", "n")),
        ["m", "n", "k"],
    ),
    "fft": _numbers(
        19, [Array("signal", "c16", ("n",))], Array("spectrum", "c16", ("n",)), ["n", "inverse"], inverse=0
    ),
    "lz4-compress": _bytes(20, "data", Array("compressed")),
    "lz4-decompress": _bytes(21, "compressed", Array("data")),
    "zstd-compress": _bytes(22, "data", Array("compressed"), level=0),
    "zstd-decompress": _bytes(23, "compressed", Array("data")),
    "vector-add": _numbers(
        24,
        [Array("a", "type", ("n",)), Array("b", "type", ("n",))],
        Array("sum", "type", ("n",)),
        ["n", "type"],
    ),
    "histogram": _numbers(
        25,
        [Array("numbers", "type", ("n",))],
        Array("counts", "u8", ("bins + 3",)),
        ["n", "type", "bins", "lo", "hi"],
    ),
    "sort": _numbers(
        26,
        [Array("numbers", "type", ("n",))],
        Array("sorted", "type", ("n",)),
        ["n", "type", "descending"],
        descending=0,
    ),
}
"""The built-in functions by name."""


def _row(name: str, signature: Signature) -> str:
    def shown(array: Array) -> str:
        shape = "" if array.shape is None else f" ({' x '.join(map(str, array.shape))})"
        kind = {None: "", "type": ""}.get(array.kind, f" {array.kind}")
        return f"{array.name}{kind}{shape}"

    inputs, outputs = (", ".join(map(shown, arrays)) for arrays in (signature.inputs, signature.outputs))
    return f"    {signature.code} {name:16} {', '.join(signature.values):26} {inputs:30} {outputs}"


_HEAD = f"    {'function':19} {'values':26} {'inputs':30} outputs"
_ROWS = [_row(name, signature) for name, signature in SIGNATURES.items()]

TABLE = "\n".join(
    [
        "Built-in functions, what they take, in the order of their lists, and its names:",
        "",
        _HEAD,
        *_ROWS,
        "",
        "    f8: float64, c16: complex128, u4: uint32, u8: uint64. Other arrays are bytes of anything, or numbers of `type`.",
        "    m, n, k, bytes  sizes, which are inferred from arrays: m, n, k of dgemm from two-dimensional ones",
        "    type            a code, type_code(), or a name: u1, u4, i4, u8, i8, f4, f8; inferred from the array",
        "    bins            how many bins; inferred from the output, which has three numbers more: below lo, from hi on, NaN",
        "    lo, hi          where the bins begin and end; in a list of values an int is the bits of a double, by name a number",
        "    inverse         1: the inverse transform, which is not scaled: divide by n; 0 if not given",
        "    level           of zstd; 0, the default, if not given",
        "    descending      1: the largest number first; 0 if not given",
    ]
)
"""The same as a table, for help()."""
