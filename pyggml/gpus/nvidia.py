"""NVIDIA's driver: its version, supported CUDA version, startup errors, and compute capabilities of its GPUs.

They come from the driver's library, libcuda.so.1, which is loaded by name, as CUDA does.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path
from typing import NamedTuple

from pyggml.gpus.files import read_text

LIBCUDA = "libcuda.so.1"
_SYSTEM = Path("/")
# The first driver for each CUDA, and for the minor versions after it: NVIDIA's "Minor Version Compatibility".
FIRST_DRIVERS = {11: "450", 12: "525", 13: "580"}
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
# CUresult -> its cause and the fix. For others, the library's own description is used.
_STARTUP_ERRORS = {
    3: ("the process was forked after CUDA had started", 'start processes by the "spawn" method'),
    34: ("libcuda.so.1 is the toolkit's stub", "remove the toolkit's stubs from LD_LIBRARY_PATH"),
    100: ("it has no GPU for this process", "check that nvidia-smi lists it, and that it was passed to the container"),
    101: ("it has no GPU with that index", "run nvidia-smi to list the GPUs"),
    802: (
        "the GPUs are connected by NVSwitches, and not initialised yet",
        "start the service nvidia-fabricmanager, in the driver's version, on the host",
    ),
    803: (
        "the versions of the kernel driver and its library differ",
        "restart the machine (the driver was updated), or the container (its library is from another machine)",
    ),
    804: (
        "CUDA's compatibility library does not work with this GPU",
        "remove the folder of cuda-compat from LD_LIBRARY_PATH, and update the driver",
    ),
    999: (
        "it gives no reason",
        "reload its second module: sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm; else restart the machine",
    ),
}


class StartupError(NamedTuple):
    """Error of the driver at startup, and the fix; None: unknown."""

    text: str
    remedy: str | None


def driver_version(root: Path = _SYSTEM) -> str | None:
    """Return the version of the kernel driver, such as "535.129.03"; None: there is none, as in WSL."""
    found = re.search(r"\s(\d+\.\d[\d.]*)\s", read_text(root / "proc/driver/nvidia/version"))
    return found and found[1]


def libcuda_error(root: Path = _SYSTEM) -> str | None:
    """Return why the driver's library cannot be used; None: it can."""
    if root != _SYSTEM:
        return None if _libcuda_file(root) else f"{LIBCUDA} was not found"
    try:
        ctypes.CDLL(LIBCUDA)
    except OSError as error:
        text = str(error)
        return f"{LIBCUDA} was not found" if "No such file" in text else f"{LIBCUDA} does not load: {text}"
    return None


def max_cuda_version(root: Path = _SYSTEM) -> tuple[int, int] | None:
    """Return the newest CUDA version that the driver supports, such as (12, 2); None: unknown."""
    library, version = _libcuda(root), ctypes.c_int(0)
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) or not version.value:
        return None
    return version.value // 1000, version.value % 1000 // 10


def startup_error(root: Path = _SYSTEM) -> StartupError | None:
    """Start the driver and return its error; None: it starts, or its library is missing.

    This initialises the driver in this process, so call it only after CUDA has tried.
    """
    library = _libcuda(root)
    code = library.cuInit(0) if library else 0
    if not library or not code:
        return None
    name, description = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(description))
    own = (description.value or b"it gives no reason").decode(errors="replace")
    text, remedy = _STARTUP_ERRORS.get(code, (own, None))
    return StartupError(f"{text} ({(name.value or b'CUDA').decode(errors='replace')}, {code})", remedy)


def compute_capability(device_id: str, root: Path = _SYSTEM) -> str | None:
    """Return the compute capability of a GPU, such as "9.0", by its PCI address "0000:65:00.0"; None: unknown.

    This initialises the driver in this process, so call it only for devices that CUDA has listed.
    """
    library, device, numbers = _libcuda(root), ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
    if library is None or library.cuInit(0):
        return None
    if library.cuDeviceGetByPCIBusId(ctypes.byref(device), device_id.encode()):
        return None
    for number, attribute in zip(numbers, (_CAPABILITY_MAJOR, _CAPABILITY_MINOR), strict=True):
        if library.cuDeviceGetAttribute(ctypes.byref(number), attribute, device):
            return None
    return ".".join(str(number.value) for number in numbers)


def format_capability(arch: int) -> str:
    """Format the compiler's number of a compute capability: 750 as "7.5"."""
    return f"{arch // 100}.{arch % 100 // 10}"


def cuda_version_of(module: Path) -> int | None:
    """Return the CUDA version whose libraries a compiled module needs, such as 12; None: it needs none."""
    try:
        with module.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(rb"libcu(?:dart|blas)\.so\.(\d+)\0", content)
            return found and int(found[1])
    except (OSError, ValueError):  # missing or empty
        return None


def _libcuda(root: Path) -> ctypes.CDLL | None:
    path = LIBCUDA if root == _SYSTEM else _libcuda_file(root)
    try:
        return ctypes.CDLL(str(path)) if path else None
    except OSError:
        return None


def _libcuda_file(root: Path) -> Path | None:
    return next(root.glob(f"usr/lib*/**/{LIBCUDA}"), None)
