"""The functions that an accelerator has."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ._errors import check
from ._library import ffi, lib, text


class Function(NamedTuple):
    """A function of an accelerator, as the accelerator describes it."""

    code: int
    """Its number, 1 to 127."""
    name: str
    parameters: str
    """The parameters in their order, such as "<a:f64 <b:f64 >c:f64". < marks inputs, > outputs, = both, ~ internal regions. The argument block
    and the status block are left out. "any": the function takes whatever it gets."""
    description: str
    """What it does, in one line."""


def functions_of(session: Any, open_while: threading.Lock) -> Mapping[str, Function]:
    """The functions of a session's accelerator by name, in the order of codes.

    The session may be closed while the accelerator is asked, but not while `open_while` is held.
    """
    first, count = ffi.new("naa_function **"), ffi.new("size_t *")
    # Asks the accelerator, which may take long.
    check(lib.naa_session_functions(session, first, count))
    with open_while:
        # Gets the stored answer, and fails if the session was closed meanwhile: the texts go with the session.
        check(lib.naa_session_functions(session, first, count))
        found = [
            Function(int(it.code), text(it.name), text(it.parameters), text(it.description))
            for it in ffi.unpack(first[0], count[0])
        ]
    return MappingProxyType({function.name: function for function in found})
