"""A device that costs nothing (internal/null_backend.cpp), for measuring the host's part of a step without a GPU.

It is compiled on the first call and added to the devices of this process; no package contains it. Only a build with its
backends in one module can have it, because the device uses a function of the engine by its address.
"""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import cffi

from pyggml import ffi, lib

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "benchmarks" / "internal" / "null_backend.cpp"
ENGINE = ROOT / "vendor" / "llama.cpp" / "ggml"
LIBRARY = ROOT / "build" / "null_backend" / "null_backend.so"


@cache
def null_device() -> str:
    """Register the device with the engine, and return its name for ``device=``."""
    own = cffi.FFI()
    own.cdef("void *null_backend_reg(void *buffer_from_ptr);")
    library: Any = own.dlopen(str(_compiled()))
    buffer_from_ptr = ffi.addressof(lib, "ggml_backend_cpu_buffer_from_ptr")
    reg = library.null_backend_reg(own.cast("void *", int(ffi.cast("uintptr_t", buffer_from_ptr))))
    lib.ggml_backend_register(ffi.cast("ggml_backend_reg_t", int(own.cast("uintptr_t", reg))))
    _keep.append(library)
    return "null"


_keep: list[object] = []  # the engine has no way to remove a backend


def _compiled() -> Path:
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        LIBRARY.parent.mkdir(parents=True, exist_ok=True)
        options = ["-std=c++17", "-O2", "-shared", "-fPIC", f"-I{ENGINE / 'include'}", f"-I{ENGINE / 'src'}"]
        subprocess.run([os.environ.get("CXX", "c++"), *options, str(SOURCE), "-o", str(LIBRARY)], check=True)
    return LIBRARY
