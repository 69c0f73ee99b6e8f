"""Calls functions of network-attached accelerators on arrays in place.

    import naa, numpy

    numbers = numpy.arange(1000, dtype=numpy.uint8)
    with naa.connect("10.9.0.1", [naa.InOut(numbers)]) as session:
        session.call("increment", timeout=5)

Built-in functions of `naa serve` take arrays by name: naa.offload("10.9.0.1", "dgemm", a=a, b=b, c=c); help(naa.offload) has a
table of them all. session.functions has what an accelerator offers, kernels too. In tasks:

    async with naa.connect_async("10.9.0.1", [naa.InOut(numbers)]) as session:
        await session.call_async("increment", timeout=5)

Any number of threads and tasks may use sessions at once, each session one at a time. From the start of a call until its
end was reported, do not write its inputs nor touch its outputs. Times are in seconds; None is no limit.

Events that detectors stream come by naa.events.
"""

from ._builtin import TYPES, arguments, offload, offload_async, regions_for, type_code
from ._connect import Connecting, Options, connect, connect_async, connect_spec, connect_spec_async
from ._errors import (
    ArgumentError,
    DeviceError,
    Error,
    FunctionError,
    GoneError,
    InternalError,
    Outcome,
    OutOfMemory,
    OverError,
    PeerError,
    RefusedError,
    Result,
    SettingsError,
    StateError,
    TimedOut,
    UnreachableError,
)
from ._functions import Function
from ._library import BLOCK_BYTES
from ._library import VERSION as __version__
from ._many import wait_all, wait_any
from ._regions import InOut, Input, Internal, Output, Region, buffer
from ._session import Session, State, function_code
from ._signatures import TABLE as _TABLE

__doc__ = f"{__doc__}\n{_TABLE}\n"

__all__ = [
    "BLOCK_BYTES",
    "TYPES",
    "ArgumentError",
    "Connecting",
    "DeviceError",
    "Error",
    "Function",
    "FunctionError",
    "GoneError",
    "InOut",
    "Input",
    "Internal",
    "InternalError",
    "Options",
    "OutOfMemory",
    "Outcome",
    "Output",
    "OverError",
    "PeerError",
    "RefusedError",
    "Region",
    "Result",
    "Session",
    "SettingsError",
    "State",
    "StateError",
    "TimedOut",
    "UnreachableError",
    "__version__",
    "arguments",
    "buffer",
    "connect",
    "connect_async",
    "connect_spec",
    "connect_spec_async",
    "function_code",
    "offload",
    "offload_async",
    "regions_for",
    "type_code",
    "wait_all",
    "wait_any",
]
