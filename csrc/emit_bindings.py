"""Write the C source of the compiled module `pyggml._pyggml` from the hand-written declarations.

The build runs `python csrc/emit_bindings.py --out build/_pyggml.c` and compiles the result against the
headers of the vendored engine and `csrc/pyggml.h`. The declarations live in `csrc/cdef/`, one file per
upstream header, and in `csrc/pyggml.h`, our own C API, which C++ includes and cffi reads. `HEADERS` defines
their order; tests and maintainers' tools import it from here.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import cffi

CSRC = Path(__file__).resolve().parent
CDEF = CSRC / "cdef"

MODULE = "pyggml._pyggml"

#: The upstream headers, each after those whose types it uses; `csrc/cdef/` has one file for each.
HEADERS = ("ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-opt.h", "gguf.h", "llama.h")

#: Our own C API, read after the upstream headers.
PYGGML_H = CSRC / "pyggml.h"

#: `extern "Python"` declarations, if any. They use types of all other headers, so they come last.
CALLBACKS_H = CDEF / "callbacks.h"

_CPLUSPLUS_BLOCK = re.compile(r"^#ifdef __cplusplus\n.*?^#endif\b[^\n]*\n", re.MULTILINE | re.DOTALL)
# A function declaration starts a line with its result type, and has its name before a parenthesis.
_FUNCTION_NAME = re.compile(r"^(?!typedef\b)\w[\w *]*?(\w+)\(", re.MULTILINE)
_PREPROCESSOR_LINE = re.compile(r"^[ \t]*#[^\n]*\n", re.MULTILINE)


def plain_declarations(header: str) -> str:
    """Strip a C header of plain declarations down to what cffi can read.

    Removes blocks from `#ifdef __cplusplus` to `#endif` (they open or close `extern "C"`), then every line
    that begins with `#` (guards and includes). Constants therefore have to be enums.
    """
    return _PREPROCESSOR_LINE.sub("", _CPLUSPLUS_BLOCK.sub("", header))


def declarations() -> str:
    """Return all declarations of the module, in the order in which cffi has to read them."""
    parts = [(CDEF / name).read_text(encoding="utf-8") for name in HEADERS]
    parts.append(plain_declarations(PYGGML_H.read_text(encoding="utf-8")))
    if CALLBACKS_H.exists():
        parts.append(CALLBACKS_H.read_text(encoding="utf-8"))
    return "\n".join(parts)


def preamble() -> str:
    """Return the C code that precedes what cffi writes.

    A portable build (`PYGGML_BACKEND_DL`) has no CPU backend to link to: it calls the functions of ggml-cpu.h in
    the loaded library.
    """
    includes = [f'#include "{name}"' for name in (*HEADERS, PYGGML_H.name)]
    functions = _FUNCTION_NAME.findall((CDEF / "ggml-cpu.h").read_text(encoding="utf-8"))
    calls = [f"#define {name}(...) FROM_LOADED_CPU({name}, __VA_ARGS__)" for name in functions]
    loaded = ["#ifdef PYGGML_BACKEND_DL", '#include "boundary/loaded_cpu_backend.h"', *calls, "#endif"]
    return "\n".join([*includes, *loaded, ""])


def emit(out: Path) -> None:
    """Write the C source of the module to `out`, unless nothing changed."""
    ffi = cffi.FFI()
    ffi.cdef(declarations())
    ffi.set_source(MODULE, preamble(), py_limited_api=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    ffi.emit_c_code(str(out))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the C source of the compiled module.")
    parser.add_argument("--out", type=Path, required=True, help="the C file to write")
    emit(parser.parse_args().out)


if __name__ == "__main__":
    main()
