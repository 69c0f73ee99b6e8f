"""What goes into the wheel beside the package: libnaa, built by cargo, and its headers as cffi wants them."""

import json
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

from cffi import FFI
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HEADERS = ("naa.h", "naa_events.h")

# Conditions of the headers, for C before C23.
CONDITIONS = {
    "ifndef NAA_H": True,
    "ifndef NAA_EVENTS_H": True,
    "ifdef __cplusplus": False,
    "ifndef __cplusplus": True,
    "if defined(__cplusplus) || __STDC_VERSION__ >= 202311L": False,
    "if __STDC_VERSION__ >= 202311L": False,
}


class Library(BuildHookInterface):
    def initialize(self, version, build_data):
        checkout = Path(self.root).parents[1]
        if not (checkout / "bindings/capi").is_dir():
            raise SystemExit("naa: libnaa is built from a checkout of the project: pip wheel CHECKOUT/bindings/python")
        built = os.environ.get("NAA_BUILT_LIBRARY")
        library = Path(built) if built else cargo_build(checkout)
        work = library.parent / "python-wheel"
        work.mkdir(exist_ok=True)
        declarations(checkout / "bindings/capi/include", work / "_ffi.py")
        files = {
            strip(library, work / "libnaa.so"): "naa/libnaa.so",
            work / "_ffi.py": "naa/_ffi.py",
            checkout / "LICENSE-MIT": "naa/LICENSE-MIT",
            checkout / "LICENSE-APACHE": "naa/LICENSE-APACHE",
        }
        files = {str(file): place for file, place in files.items()}
        build_data["force_include"] = build_data["force_include_editable"] = files
        platform = re.sub(r"[-.]", "_", sysconfig.get_platform())
        build_data["tag"] = f"py3-none-{platform}"
        build_data["pure_python"] = False


def cargo_build(checkout):
    command = [os.environ.get("CARGO", "cargo"), "build", "--release", "--locked", "--package", "naa-capi"]
    command.append("--message-format=json-render-diagnostics")
    try:
        built = subprocess.run(command, cwd=checkout, stdout=subprocess.PIPE, check=True, text=True)
    except FileNotFoundError:
        raise SystemExit("naa: building needs cargo: https://rustup.rs") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"naa: {' '.join(command)} failed ({error.returncode}); its messages are above") from None
    for message in map(json.loads, built.stdout.splitlines()):
        for file in message.get("filenames") or ():
            if Path(file).name == "libnaa_c.so":
                return Path(file)
    raise SystemExit("naa: cargo built no libnaa_c.so")


def strip(library, to):
    """Without what is for debuggers, if binutils are there: a fifth of the size."""
    if program := shutil.which("strip"):
        subprocess.run([program, "--strip-debug", "-o", to, library], check=True)
    else:
        shutil.copyfile(library, to)
    return to


def declarations(folder, to):
    ffi = FFI()
    ffi.set_source("naa._ffi", None)
    for header in HEADERS:
        ffi.cdef(preprocess((folder / header).read_text(), header))
    ffi.emit_python_code(str(to))


def preprocess(text, header):
    """Does what the C preprocessor would do with a header; keeps constants, which cffi reads."""
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))
    lines, taken = [], []
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(\w+)\s*(.*?)\s*$", line)
        if directive is None:
            if all(taken):
                lines.append(line)
            continue
        word, rest = directive.groups()
        if word in ("if", "ifdef", "ifndef"):
            if f"{word} {rest}" not in CONDITIONS:
                raise SystemExit(f"naa: {header} has a condition that hatch_build.py does not know: #{word} {rest}")
            taken.append(CONDITIONS[f"{word} {rest}"])
        elif word == "else":
            taken[-1] = not taken[-1]
        elif word == "endif":
            taken.pop()
        elif word == "define" and " " in rest and all(taken):
            name, value = rest.split(maxsplit=1)
            lines.append(f"#define {name} {value.strip('()')}")
    return "\n".join(lines)
