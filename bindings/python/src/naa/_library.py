"""Finds and loads libnaa."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ._ffi import ffi

__all__ = ["BLOCK_BYTES", "VERSION", "ffi", "lib", "text"]


def _load() -> Any:
    path = os.environ.get("NAA_LIBRARY") or str(Path(__file__).with_name("libnaa.so"))
    try:
        return ffi.dlopen(path)
    except OSError as error:
        raise ImportError(
            f"libnaa cannot be loaded: {error}; install the wheel again, or set NAA_LIBRARY to the path of libnaa.so.0"
        ) from error


def text(address: Any) -> str:
    """A text of the library; "" where there is none."""
    return "" if address == ffi.NULL else str(ffi.string(address).decode(errors="replace"))


lib = _load()

VERSION = text(lib.naa_version())
"""Of the library."""

BLOCK_BYTES: int = lib.NAA_BLOCK_BYTES
"""Bytes of the argument block and of the status block of a built-in function."""
