"""Built-in functions of `naa serve`, codes 16 to 63: their argument blocks and the types of their arrays."""

from __future__ import annotations

from collections.abc import Sequence

from ._buffer import Buffer
from ._connect import Options, connect
from ._errors import ArgumentError, Outcome, check
from ._library import BLOCK_BYTES, ffi, lib
from ._regions import Input, Output, Region, view_of
from ._session import code_of, function_code

TYPES = ("u1", "u4", "i4", "u8", "i8", "f4", "f8")
"""Types of numbers in the order of their codes, as NumPy calls them: kind, and bytes."""

_KINDS = {
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("efd", "f"),
    **dict.fromkeys(("Zf", "Zd"), "c"),
}
# Of functions that have one type only.
_INPUTS = {"dgemm": "f8", "fft": "c16"}
_OUTPUTS = {"dgemm": "f8", "fft": "c16", "crc32c": "u4", "histogram": "u8"}


def arguments(function: int | str, values: Sequence[int]) -> bytearray:
    """The argument block of a built-in function, its first input. naa.h has a table of the values:
    dgemm's are m, n, k; sort's the count of numbers, their type_code() and 0 for ascending, 1 for descending.

    Raises: ArgumentError
    """
    block = bytearray(BLOCK_BYTES)
    numbers = ffi.new("int64_t[]", list(values))
    with ffi.from_buffer(block, require_writable=True) as place:
        check(lib.naa_arguments(place, code_of(function), numbers, len(values)))
    return block


def type_code(array: Buffer) -> int:
    """The code that functions have for the type of an array's numbers.

    Raises: ArgumentError
    """
    view = view_of(array, False, "array")
    kind = "u1" if view.format == "B" else _type_of(view)
    if kind not in TYPES:
        raise ArgumentError(f"array: its type {kind} is none of {', '.join(TYPES)}; convert it by .astype()")
    return TYPES.index(kind)


def regions_for(
    function: int | str,
    values: Sequence[int],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
) -> list[Region]:
    """The regions of a session for calls of a built-in function: argument block, inputs, status block, outputs.

    Arrays of another type than the function's are refused; bytes are taken for anything.

    Raises: ArgumentError
    """
    code = code_of(function)
    block = arguments(code, values)
    for what, arrays, types in (("input", inputs, _INPUTS), ("output", outputs, _OUTPUTS)):
        for number, array in enumerate(arrays):
            _check_type(
                view_of(array, what == "output", f"{what} {number}"), _wanted(code, types, values), what, number
            )
    status = bytearray(BLOCK_BYTES)
    return [Input(block), *map(Input, inputs), Output(status), *map(Output, outputs)]


def offload(
    address: str,
    function: int | str,
    values: Sequence[int],
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    *,
    timeout: float | None = None,
    options: Options = Options(),
) -> Outcome:
    """Connects, has a built-in function run on `inputs`, receives into `outputs`, and disconnects.

    `outcome.produced[1 + i]` is how many bytes of output i are a result. For several calls on the same arrays connect()
    once with regions_for().

    Raises: as connect() and Session.call()
    """
    with connect(address, regions_for(function, values, inputs, outputs), options) as session:
        return session.call(function, timeout=timeout)


def _wanted(code: int, types: dict[str, str], values: Sequence[int]) -> str | None:
    for name, kind in types.items():
        if function_code(name) == code:
            return kind
    with_type = ("vector-add", "sort", "histogram")
    if code in map(function_code, with_type) and len(values) > 1:
        return TYPES[values[1]]
    return None


def _check_type(view: memoryview, wanted: str | None, what: str, number: int) -> None:
    kind = _type_of(view)
    if wanted is not None and kind not in (wanted, "bytes"):
        raise ArgumentError(f"{what} {number}: its type is {kind}, the function's is {wanted}; convert it by .astype()")


def _type_of(view: memoryview) -> str:
    """As NumPy calls it; "bytes" where it is bytes and may stand for anything."""
    order, kind = view.format[:1], view.format.lstrip("@=<>!")
    if order in ">!" and view.itemsize > 1:
        return f">{kind}"
    if kind in ("B", "b", "c"):
        return "bytes"
    return f"{_KINDS[kind]}{view.itemsize}" if kind in _KINDS else kind
