"""The type of what has a buffer."""

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["Buffer"]

if TYPE_CHECKING and sys.version_info >= (3, 12):
    from collections.abc import Buffer
else:
    # Type checkers know only from 3.12 on that NumPy arrays have one.
    Buffer: TypeAlias = Any
