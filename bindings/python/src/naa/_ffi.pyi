# Generated of naa.h when a wheel is built: hatch_build.py.
from typing import Any

ffi: Any
