"""Calls functions of network-attached accelerators on arrays in place.

    import naa, numpy

    numbers = numpy.arange(1000, dtype=numpy.uint8)
    with naa.connect("10.9.0.1", [naa.InOut(numbers)]) as session:
        session.call("increment", timeout=5)

Any number of threads and tasks may use sessions at once, each session one at a time. From the start of a call until its
end was reported, do not write its inputs nor touch its outputs. Times are in seconds; None is no limit.

Events that detectors stream come by naa.events.
"""

from ._builtin import TYPES, arguments, offload, regions_for, type_code
from ._connect import Options, connect, connect_spec
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
from ._library import BLOCK_BYTES
from ._library import VERSION as __version__
from ._many import wait_all, wait_any
from ._regions import InOut, Input, Internal, Output, Region, buffer
from ._session import Session, State, function_code

__all__ = [
    "BLOCK_BYTES",
    "TYPES",
    "ArgumentError",
    "DeviceError",
    "Error",
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
    "connect_spec",
    "function_code",
    "offload",
    "regions_for",
    "type_code",
    "wait_all",
    "wait_any",
]
