"""Regions: memory of the program that the accelerator has too."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ._buffer import Buffer
from ._errors import ArgumentError, check
from ._library import ffi, lib


class Region:
    """Input, Output, InOut or Internal."""

    def __init__(self, data: Buffer | None, size: int, flags: int, writes: bool) -> None:
        self.data = data
        self.size = size
        self.flags = flags
        self.writes = writes


class Input(Region):
    """Sent with each call; with `single_send` with the first one only. Any contiguous buffer, read-only ones too."""

    def __init__(self, data: Buffer, *, single_send: bool = False) -> None:
        super().__init__(data, 0, lib.NAA_INPUT | _single(single_send), writes=False)


class Output(Region):
    """Received with each answer. A contiguous and writable buffer."""

    def __init__(self, data: Buffer, *, single_send: bool = False) -> None:
        super().__init__(data, 0, lib.NAA_OUTPUT | _single(single_send), writes=True)


class InOut(Region):
    """Sent with each call, then overwritten by the answer. A contiguous and writable buffer."""

    def __init__(self, data: Buffer, *, single_send: bool = False) -> None:
        super().__init__(data, 0, lib.NAA_INOUT | _single(single_send), writes=True)


class Internal(Region):
    """Memory of `size` bytes on the accelerator only, kept from call to call."""

    def __init__(self, size: int) -> None:
        super().__init__(None, size, lib.NAA_INTERNAL, writes=False)


def _single(single_send: bool) -> int:
    return int(lib.NAA_SINGLE_SEND) if single_send else 0


def view_of(data: Buffer, writes: bool, what: str) -> memoryview:
    """`data`'s memory, if it can be sent from, or received into, where it is.

    Raises: ArgumentError
    """
    try:
        view = memoryview(data)
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(
            f"{what}: {error}; give a NumPy array of numbers, a bytearray, a memoryview or an array.array"
        ) from None
    if not view.c_contiguous:
        raise ArgumentError(
            f"{what}: the array is not contiguous by rows; "
            "give numpy.ascontiguousarray(it), or of an array in Fortran's order its .T"
        )
    if "O" in re.sub(":[^:]*:", "", view.format):  # without names of fields
        raise ArgumentError(f"{what}: the array has Python objects, not numbers; convert it by .astype()")
    if writes and view.readonly:
        raise ArgumentError(f"{what}: the memory is read-only, and results go there; give a writable array")
    return view


class Pinned:
    """Memory of regions, as the library wants it. Until it is released, nobody can resize or free the memory."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self._held: list[Any] = []
        self._views: list[memoryview] = []
        try:
            entries = [self._pin(region, f"region {number}") for number, region in enumerate(regions)]
        except BaseException:
            self.release()
            raise
        self.count = len(entries)
        self.regions = ffi.new("naa_region[]", entries)

    def _pin(self, region: Region, what: str) -> tuple[Any, int, int]:
        if not isinstance(region, Region):
            raise TypeError(f"{what}: not {type(region).__name__}, but Input(), Output(), InOut() or Internal() of it")
        if region.data is None:
            return ffi.NULL, region.size, region.flags
        view = view_of(region.data, region.writes, what)
        self._views.append(view)
        held = ffi.from_buffer(view, require_writable=region.writes)
        self._held.append(held)
        return held, view.nbytes, region.flags

    def release(self) -> None:
        for held in self._held:
            ffi.release(held)
        for view in self._views:
            view.release()
        self._held.clear()
        self._views.clear()


def buffer(size: int) -> memoryview:
    """`size` zeroed bytes that stay registered with the network device from one session to the next, which spares
    large regions most of the time it takes to connect. For NumPy: `numpy.frombuffer(naa.buffer(8 * n))`.

    They are freed when nothing refers to them any more.
    """
    place = ffi.new("naa_buffer **")
    check(lib.naa_buffer_alloc(size, place))
    handle = place[0]
    data = ffi.gc(lib.naa_buffer_data(handle), lambda _: lib.naa_buffer_free(handle), size)
    return memoryview(ffi.buffer(data, size))
