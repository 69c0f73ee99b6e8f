"""Built-in functions of `naa serve`, codes 16 to 63: their argument blocks, and arrays that fit them."""

from __future__ import annotations

import inspect
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeVar

from ._buffer import Buffer
from ._connect import Options, connect, connect_async
from ._errors import ArgumentError, Outcome, check
from ._library import BLOCK_BYTES, ffi, lib
from ._regions import Input, Output, Region, view_of
from ._session import code_of
from ._signatures import SIGNATURES, TABLE, Array, Signature

TYPES = ("u1", "u4", "i4", "u8", "i8", "f4", "f8")
"""Types of numbers in the order of their codes, as NumPy calls them: kind, and bytes."""

_KINDS = {
    **dict.fromkeys("BHILQN", "u"),
    **dict.fromkeys("bhilqn", "i"),
    **dict.fromkeys("efd", "f"),
    **dict.fromkeys(("Zf", "Zd"), "c"),
}
# Values that the argument block has as the bits of a double.
_DOUBLES = ("lo", "hi")
_SIGNED = (*_DOUBLES, "level")
_BY_CODE = {signature.code: (name, signature) for name, signature in SIGNATURES.items()}

F = TypeVar("F", bound=Callable[..., Any])


def _with_table(function: F) -> F:
    """For help(): the docstring is followed by what built-in functions take."""
    function.__doc__ = f"{inspect.cleandoc(function.__doc__ or '')}\n\n{TABLE}\n"
    return function


@_with_table
def arguments(function: int | str, values: Sequence[int | float | str] | None = None, **named: Any) -> bytearray:
    """The argument block of a built-in function, its first input, from a list of values or from values by name:
    `arguments("sort", [1000, 6, 1])` is `arguments("sort", n=1000, type="f8", descending=True)`.

    Raises: ArgumentError
    """
    code = code_of(function)
    if code not in _BY_CODE:
        return _block(code, _unknown(code, values, named))
    name, signature = _BY_CODE[code]
    for argument in named:
        if argument not in signature.values:
            raise ArgumentError(f"{name} has no value {argument!r}; its values are {', '.join(signature.values)}")
    return _block(code, [*_values(name, signature, values, named, {}).values()])


def type_code(array: Buffer) -> int:
    """The code that functions have for the type of an array's numbers.

    Raises: ArgumentError
    """
    view = view_of(array, False, "array")
    kind = "u1" if view.format == "B" else _type_of(view)
    if kind not in TYPES:
        raise ArgumentError(f"array: its type {kind} is none of {', '.join(TYPES)}; convert it by .astype()")
    return TYPES.index(kind)


@_with_table
def regions_for(
    function: int | str,
    values: Sequence[int | float | str] | None = None,
    inputs: Sequence[Buffer] = (),
    outputs: Sequence[Buffer] = (),
    **named: Any,
) -> list[Region]:
    """The regions of a session for calls of a built-in function: argument block, inputs, status block, outputs.

    Values, inputs and outputs are lists in the order of the table below, or are given by name. Values that can be
    inferred from arrays need not be given: `regions_for("dgemm", a=a, b=b, c=c)` has m, n and k from two-dimensional arrays.

    Arrays of another type or shape than the function's are refused; bytes are taken for numbers of any type, and an array of one
    dimension for a matrix by rows.

    Raises: ArgumentError, which names the argument and what it should be
    """
    code = code_of(function)
    if code not in _BY_CODE:
        block = _block(code, _unknown(code, values, named))
        return [Input(block), *map(Input, inputs), Output(bytearray(BLOCK_BYTES)), *map(Output, outputs)]
    name, signature = _BY_CODE[code]
    known = {*signature.values, *(array.name for array in (*signature.inputs, *signature.outputs))}
    for argument in named:
        if argument not in known:
            raise ArgumentError(f"{name} has no argument {argument!r}; it has {_all_of(signature)}")
    sources = _arrays(name, signature, "input", signature.inputs, inputs, named)
    results = _arrays(name, signature, "output", signature.outputs, outputs, named)
    arrays = [
        (f"{what} {number} ({array.name})", array, view_of(given, what == "output", f"{what} {number} ({array.name})"))
        for what, declared, all_given in (("input", signature.inputs, sources), ("output", signature.outputs, results))
        for number, (array, given) in enumerate(zip(declared, all_given))
    ]
    of_values = {argument: value for argument, value in named.items() if argument in signature.values}
    of_type = _value(name, "type", named["type"], by_name=True) if "type" in of_values else None
    found = _values(name, signature, values, of_values, _inferred(arrays, of_type))
    _check_arrays(name, arrays, found)
    block = _block(code, [*found.values()])
    return [Input(block), *map(Input, sources), Output(bytearray(BLOCK_BYTES)), *map(Output, results)]


@_with_table
def offload(
    address: str,
    function: int | str,
    values: Sequence[int | float | str] | None = None,
    inputs: Sequence[Buffer] = (),
    outputs: Sequence[Buffer] = (),
    *,
    timeout: float | None = None,
    options: Options = Options(),
    **named: Any,
) -> Outcome:
    """Connects, has a built-in function run on `inputs`, receives into `outputs`, and disconnects:
    `offload("10.9.0.1", "dgemm", a=a, b=b, c=c)`. Values, inputs and outputs are as those of regions_for().

    `outcome.produced[1 + i]` is how many bytes of output i are a result. For several calls on the same arrays connect()
    once with regions_for().

    Raises: as regions_for(), connect() and Session.call()
    """
    with connect(address, regions_for(function, values, inputs, outputs, **named), options) as session:
        return session.call(function, timeout=timeout)


@_with_table
async def offload_async(
    address: str,
    function: int | str,
    values: Sequence[int | float | str] | None = None,
    inputs: Sequence[Buffer] = (),
    outputs: Sequence[Buffer] = (),
    *,
    timeout: float | None = None,
    options: Options = Options(),
    **named: Any,
) -> Outcome:
    """As offload(), while other tasks run. It connects in the way of connect_async()."""
    async with connect_async(address, regions_for(function, values, inputs, outputs, **named), options) as session:
        return await session.call_async(function, timeout=timeout)


def _block(code: int, values: Sequence[int]) -> bytearray:
    block = bytearray(BLOCK_BYTES)
    numbers = ffi.new("int64_t[]", list(values))
    with ffi.from_buffer(block, require_writable=True) as place:
        check(lib.naa_arguments(place, code, numbers, len(values)))
    return block


def _unknown(code: int, values: Sequence[int | float | str] | None, named: Mapping[str, Any]) -> list[int]:
    """The values of a function that SIGNATURES does not have. The C library refuses it if it has no argument block."""
    if named:
        raise ArgumentError(f"function {code} has no argument {next(iter(named))!r}; give lists")
    return [_whole(f"function {code}", f"value {number}", value) for number, value in enumerate(values or ())]


def _all_of(signature: Signature) -> str:
    inputs, outputs = (", ".join(it.name for it in arrays) for arrays in (signature.inputs, signature.outputs))
    return f"values {', '.join(signature.values)}; inputs {inputs}; outputs {outputs}"


def _arrays(
    name: str,
    signature: Signature,
    what: str,
    declared: Sequence[Array],
    given: Sequence[Buffer],
    named: Mapping[str, Any],
) -> list[Buffer]:
    """The given arrays, in the order of `declared`."""
    by_name = [array.name for array in declared if array.name in named]
    if len(given) > 0 and by_name:
        raise ArgumentError(f"{name}: {by_name[0]} is given by name, and there is a list of {what}s; give one of both")
    if len(given) == 0:
        missing = [array.name for array in declared if array.name not in named]
        if missing:
            raise ArgumentError(f"{name}: the {what} {missing[0]} is missing; it has {_all_of(signature)}")
        return [named[array.name] for array in declared]
    if len(given) != len(declared):
        names = ", ".join(array.name for array in declared)
        plural = "" if len(declared) == 1 else "s"
        raise ArgumentError(f"{name} has {len(declared)} {what}{plural} ({names}), and {len(given)} are given")
    return list(given)


def _values(
    name: str,
    signature: Signature,
    values: Sequence[int | float | str] | None,
    named: Mapping[str, Any],
    inferred: Mapping[str, int],
) -> dict[str, int]:
    """All values in the order of the signature: given, inferred, or defaults."""
    if values is not None:
        if named:
            raise ArgumentError(
                f"{name}: {next(iter(named))} is given by name, and there is a list of values; give one of both"
            )
        names = signature.values
        if not len(names) - len(signature.defaults) <= len(values) <= len(names):
            plural = "" if len(names) == 1 else "s"
            raise ArgumentError(
                f"{name} has {len(names)} value{plural} ({', '.join(names)}), and {len(values)} are given"
            )
        named = dict(zip(names, values))
        inferred = {}
    found: dict[str, int] = {}
    for value in signature.values:
        if value in named:
            found[value] = _value(name, value, named[value], by_name=values is None)
        elif value in inferred:
            found[value] = inferred[value]
        elif value in signature.defaults:
            found[value] = signature.defaults[value]
        else:
            raise ArgumentError(
                f"{name}: {value} is not given, and arrays do not tell it; give {value}=..., or {_remedy(value)}"
            )
    return found


def _remedy(value: str) -> str:
    return {
        "m": "two-dimensional arrays",
        "k": "two-dimensional arrays",
        "n": "arrays with as many dimensions as the function's",
        "type": "arrays of numbers",
    }.get(value, "a list of all values")


def _value(name: str, value: str, given: Any, by_name: bool) -> int:
    """The number that stands for `given` in the argument block."""
    if value in _DOUBLES and (by_name or isinstance(given, float)):
        if not isinstance(given, Real):
            raise ArgumentError(f"{name}: {value} is {given!r}; it is a number")
        try:
            number = float(given)
        except OverflowError:
            raise ArgumentError(f"{name}: {value} is too large for a double; give one up to 1.8e308") from None
        return int.from_bytes(struct.pack("<d", number), "little", signed=True)
    if value == "type" and isinstance(given, str):
        if given not in TYPES:
            raise ArgumentError(f"{name}: the type {given!r} is none of {', '.join(TYPES)}")
        return TYPES.index(given)
    number = _whole(name, value, given)
    if value == "type" and not 0 <= number < len(TYPES):
        names = ", ".join(f"{code} {kind}" for code, kind in enumerate(TYPES))
        raise ArgumentError(f"{name}: the type {number} is none of {names}")
    if number < 0 and value not in _SIGNED:
        raise ArgumentError(f"{name}: {value} is {number}; it is 0 or more")
    return number


def _whole(name: str, value: str, given: Any) -> int:
    try:
        number = operator.index(given)
    except TypeError:
        raise ArgumentError(f"{name}: {value} is {given!r}; it is a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise ArgumentError(f"{name}: {value} does not fit into 64 bits; give one from {-(2**63)} to {2**63 - 1}")
    return number


def _inferred(arrays: Sequence[tuple[str, Array, memoryview]], of_type: int | None) -> dict[str, int]:
    """The values that follow from types and shapes of arrays, and from the type `of_type` if it is given. If several arrays
    tell a value, the first one counts."""
    found: dict[str, int] = {}
    typed = [view for _, array, view in arrays if array.kind == "type"]
    # Bytes can hold numbers of any type. So the type is that of the first array of numbers, or u1 if there is none.
    kinds = [kind for kind in map(_type_of, typed) if kind in TYPES] or ["u1" for view in typed if view.format == "B"]
    if of_type is not None:
        found["type"] = of_type
    elif kinds:
        found["type"] = TYPES.index(kinds[0])
    for _, array, view in arrays:
        if array.least == "bytes":
            found.setdefault("bytes", view.nbytes)
        kind = TYPES[found["type"]] if array.kind == "type" and "type" in found else array.kind
        for size, length in zip(array.shape or (), _lengths(array, view, kind)):
            if size == "bins + 3" and length >= 3:
                found.setdefault("bins", length - 3)
            elif isinstance(size, str) and size != "bins + 3":
                found.setdefault(size, length)
    return found


def _lengths(array: Array, view: memoryview, kind: str | None) -> tuple[int, ...]:
    """How many numbers of the type `kind` each dimension has. Empty if `view` has other dimensions or numbers."""
    if array.shape is None or len(array.shape) != view.ndim:
        return ()
    if _type_of(view) == "bytes" and view.ndim == 1 and kind not in (None, "type"):
        return (view.nbytes // int(kind[1:]),)
    return tuple(view.shape or ()) if _type_of(view) == kind or _is_u1(view, kind) else ()


def _is_u1(view: memoryview, kind: str | None) -> bool:
    return kind == "u1" and view.format == "B"


def _check_arrays(name: str, arrays: Sequence[tuple[str, Array, memoryview]], values: Mapping[str, int]) -> None:
    for what, array, view in arrays:
        wanted = TYPES[values["type"]] if array.kind == "type" else array.kind
        kind = _type_of(view)
        if wanted is not None and kind not in (wanted, "bytes") and not _is_u1(view, wanted):
            raise ArgumentError(f"{what}: its type is {kind}, {name}'s is {wanted}; convert it by .astype()")
        if array.shape is not None and wanted is not None:
            shape = tuple(_size(size, values) for size in array.shape)
            if not _fits(view, kind, shape, int(wanted[1:])):
                raise ArgumentError(_misfit(name, what, array, shape, arrays, values))
        least = _size(array.least or 0, values)
        if view.nbytes < least:
            raise ArgumentError(f"{what} has {view.nbytes} bytes, and {name} needs {least}{_because(array.least)}")


def _because(least: str | int | None) -> str:
    return ", the value bytes" if least == "bytes" else ""


def _size(size: str | int, values: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    name, _, more = size.partition(" + ")
    return values[name] + int(more or 0)


def _fits(view: memoryview, kind: str, shape: tuple[int, ...], item: int) -> bool:
    """An array of several dimensions must have the shape of the matrix. For bytes, and where array or function has one
    dimension, only the number of bytes counts."""
    if kind != "bytes" and view.ndim > 1 and len(shape) > 1:
        return view.shape == shape
    return view.nbytes == math.prod(shape) * item


def _misfit(
    name: str,
    what: str,
    array: Array,
    shape: tuple[int, ...],
    arrays: Sequence[tuple[str, Array, memoryview]],
    values: Mapping[str, int],
) -> str:
    names = " x ".join(map(str, array.shape or ()))
    sizes = ", ".join(f"{size} = {values[size]}" for size in values if size in names.split())
    own = next(_shape_of(view) for _, other, view in arrays if other is array)
    others = ", ".join(f"{other.name} has {_shape_of(view)}" for _, other, view in arrays if other is not array)
    return f"{what} has {own}, and {name} needs {names}, {shape}, with {sizes}; {others}"


def _shape_of(view: memoryview) -> str:
    return f"{view.nbytes} bytes" if _type_of(view) == "bytes" else f"the shape {view.shape}"


def _type_of(view: memoryview) -> str:
    """As NumPy calls it; "bytes" where it is bytes and may stand for anything."""
    order, kind = view.format[:1], view.format.lstrip("@=<>!")
    if order in ">!" and view.itemsize > 1:
        return f">{kind}"
    if kind in ("B", "b", "c"):
        return "bytes"
    return f"{_KINDS[kind]}{view.itemsize}" if kind in _KINDS else kind
