"""NVIDIA's driver: its version, the CUDA it knows, what it says when it refuses to start, and what its GPUs can do.

Everything comes from the driver's own library, libcuda.so.1, which is opened here as CUDA opens it: by name.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path
from typing import NamedTuple

from pyggml.gpus.files import text_of

LIBCUDA = "libcuda.so.1"
_SYSTEM = Path("/")
# The first driver for each CUDA, and for the minor versions after it: NVIDIA's "Minor Version Compatibility".
FIRST_DRIVERS = {11: "450", 12: "525", 13: "580"}
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
# What CUresult means for the person who meets it, and the way out; of the others, the library's own words are given.
_REFUSALS = {
    3: ("the process was forked after CUDA had started", 'start processes by the "spawn" method'),
    34: ("the libcuda.so.1 that is found is the toolkit's stub", "take the toolkit's stubs out of LD_LIBRARY_PATH"),
    100: ("it has no GPU for this process", "see that nvidia-smi lists it, and that the container was given it"),
    101: ("it has no GPU of that number", "see which nvidia-smi lists"),
    802: (
        "the GPUs are connected by NVSwitches, and not set up yet",
        "start the service nvidia-fabricmanager, of the driver's version, on the machine itself",
    ),
    803: (
        "the driver in the kernel and its library are of different versions",
        "restart the machine (the driver was updated), or the container (which has the library of another machine)",
    ),
    804: (
        "CUDA's compatibility library does not work with this GPU",
        "take the folder of cuda-compat out of LD_LIBRARY_PATH, and update the driver",
    ),
    999: (
        "it gives no reason",
        "load its second module: sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm; else restart the machine",
    ),
}


class Refusal(NamedTuple):
    """What the driver says instead of starting, and the way out; None: not known."""

    text: str
    remedy: str | None


def driver_version(root: Path = _SYSTEM) -> str | None:
    """The version of the driver in the kernel, such as "535.129.03"; None where there is none, as in WSL."""
    found = re.search(r"\s(\d+\.\d[\d.]*)\s", text_of(root / "proc/driver/nvidia/version"))
    return found and found[1]


def libcuda_failure(root: Path = _SYSTEM) -> str | None:
    """Why the driver's library cannot be used; None: it can."""
    if root != _SYSTEM:
        return None if _libcuda_file(root) else f"{LIBCUDA} was not found"
    try:
        ctypes.CDLL(LIBCUDA)
    except OSError as error:
        words = str(error)
        return f"{LIBCUDA} was not found" if "No such file" in words else f"{LIBCUDA} does not load: {words}"
    return None


def newest_cuda(root: Path = _SYSTEM) -> tuple[int, int] | None:
    """The newest CUDA that the driver's library knows, such as (12, 2); None: it does not say."""
    library, version = _libcuda(root), ctypes.c_int(0)
    if library is None or library.cuDriverGetVersion(ctypes.byref(version)) or not version.value:
        return None
    return version.value // 1000, version.value % 1000 // 10


def refusal(root: Path = _SYSTEM) -> Refusal | None:
    """What the driver says when it is asked to start; None: nothing, or there is no library to ask.

    It starts the driver in this process: ask where CUDA has tried already.
    """
    library = _libcuda(root)
    code = library.cuInit(0) if library else 0
    if not library or not code:
        return None
    name, words = ctypes.c_char_p(), ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuGetErrorString(code, ctypes.byref(words))
    text, remedy = _REFUSALS.get(code, ((words.value or b"it gives no reason").decode(errors="replace"), None))
    return Refusal(f"{text} ({(name.value or b'CUDA').decode(errors='replace')}, {code})", remedy)


def capability(device_id: str, root: Path = _SYSTEM) -> str | None:
    """What a GPU can do, as "9.0", by its place on the bus, such as "0000:65:00.0"; None: the driver does not say.

    It starts the driver in this process: ask about devices that CUDA has shown.
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


def capability_text(arch: int) -> str:
    """A compute capability as people write it, "7.5", of the compiler's number for it, 750."""
    return f"{arch // 100}.{arch % 100 // 10}"


def cuda_of(module: Path) -> int | None:
    """The CUDA whose libraries a compiled module needs, such as 12; None: it names none."""
    try:
        with module.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(rb"libcu(?:dart|blas)\.so\.(\d+)\0", content)
            return found and int(found[1])
    except (OSError, ValueError):  # not there, or empty
        return None


def _libcuda(root: Path) -> ctypes.CDLL | None:
    path = LIBCUDA if root == _SYSTEM else _libcuda_file(root)
    try:
        return ctypes.CDLL(str(path)) if path else None
    except OSError:
        return None


def _libcuda_file(root: Path) -> Path | None:
    return next(root.glob(f"usr/lib*/**/{LIBCUDA}"), None)
