"""Devices, and backends for computing raw ggml graphs on them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyggml import errors, system
from pyggml._core import c_calls
from pyggml._core.c_calls import text_of
from pyggml._core.checks import integer, shown
from pyggml._core.device_names import find_named, kind_of, parse_device_name, split_device_names
from pyggml._core.ffi import ffi, lib
from pyggml._core.log import logger
from pyggml._core.owner import ClosableOwner
from pyggml.gpus import nvidia
from pyggml.gpus.diagnosis import Build, Machine, capability_problem, diagnose, explain_missing_device

if TYPE_CHECKING:
    from pyggml._core.ffi import CData

_TYPE_NAMES: dict[int, str] = {
    lib.GGML_BACKEND_DEVICE_TYPE_CPU: "cpu",
    lib.GGML_BACKEND_DEVICE_TYPE_GPU: "gpu",
    lib.GGML_BACKEND_DEVICE_TYPE_IGPU: "igpu",
    lib.GGML_BACKEND_DEVICE_TYPE_ACCEL: "accel",
    lib.GGML_BACKEND_DEVICE_TYPE_META: "meta",
}


@dataclass(frozen=True)
class Device:
    """A compute device, with its state at the time of the call to :func:`devices`.

    Attributes:
        name: the engine's name for it: "CPU", "CUDA0", "Vulkan0" ...
        kind: the name of its kind in ``device=``: "cpu", "cuda", "vulkan", "metal", "rpc" ...
        description: the product: "AMD EPYC ...", "NVIDIA H200" ...; of another host's device, the host.
        type: "cpu", "gpu", "igpu" (shares the main memory), "accel" (assists the CPU, such as BLAS) or "meta" (several
            devices as one).
        memory_total: total memory in bytes.
        memory_free: free memory in bytes. For the CPU, the memory that this process may still allocate: the minimum of
            the machine's free memory and the limits of its control groups and ``ulimit -v``.
        device_id: its bus address, such as "0000:65:00.0", the same for every backend that sees it; "" if unknown.
        capability: NVIDIA's compute capability of a CUDA device, such as "9.0"; None for others.
    """

    name: str
    kind: str
    description: str
    type: str
    memory_total: int
    memory_free: int
    device_id: str = ""
    capability: str | None = None


def devices() -> list[Device]:
    """Return the devices that this build supports on this machine, in the engine's order of preference."""
    info = ffi.new("pyg_device *")
    found = []
    for index in range(lib.pyg_device_count()):
        c_calls.call(lib.pyg_device_get, index, info)
        found.append(device_of(info))
    return found


def find_device(name: str) -> Device:
    """Return the device with a name, as for :func:`pyggml.load`: "cpu", "gpu", "cuda:1", "metal" ...

    Args:
        name: the name, such as "cpu", "gpu", "cuda:1" or "metal".

    Raises:
        DeviceError: there is no such device.
        InvalidParameterError: it is not the name of one device.
    """
    names = split_device_names(name)
    if len(names) > 1:
        raise errors.InvalidParameterError(f"expected one device, not {len(names)}: {name!r}")
    every = devices()
    device = find_named(names[0], every, local_gpus(every))
    if device is None:
        raise no_device(names[0], every)
    return device


def local_gpus(every: Sequence[Device]) -> list[Device]:
    """Return this machine's GPUs among some devices, those with their own memory first."""
    return [device for type in ("gpu", "igpu") for device in every if device.type == type]


def automatic_gpus(gpus: Sequence[Device]) -> list[Device]:
    """Return the GPUs that "auto" uses: all that can compute, each once even if two backends see it.

    GPUs that share the main memory are used only if there are no others.
    """
    able = [gpu for gpu in gpus if inability_of(gpu) is None]
    own = [gpu for gpu in able if gpu.type == "gpu"]
    if not own:
        return [gpu for gpu in able if gpu.kind == able[0].kind]
    ids = [gpu.device_id or gpu.name for gpu in own]
    return [gpu for index, gpu in enumerate(own) if ids.index(ids[index]) == index]


def no_device(name: str, every: Sequence[Device]) -> errors.DeviceError:
    """Return the error for a device that does not exist."""
    seen = ", ".join(device.name for device in every)
    return errors.DeviceError(f'there is no device "{name}"; this build sees: {seen}; {device_advice(name)}')


def inability_of(device: Device) -> str | None:
    """Return the reason why a device that the engine sees cannot compute, and the way out; None if it can."""
    problem = capability_problem(device, _build([device])) if device.capability else None
    return problem and f"{problem.text}: {problem.remedy}"


def device_advice(name: str) -> str:
    """Return the reason why a device is missing, and the way out: the end of a DeviceError's message.

    It names the missing part: hardware, driver, run-time libraries or build.

    Args:
        name: a device's name, as for :func:`pyggml.load`.
    """
    if not isinstance(name, str):
        raise errors.InvalidParameterError(f"the name of a device was expected, not {shown(name)}")
    return explain_missing_device(parse_device_name(name).kind, _build(devices()), Machine())


def unused_gpu() -> str | None:
    """Return the reason why this machine's GPU is not used, and the way out; None if there is none to give."""
    every = devices()
    seen = [inability_of(gpu) for gpu in local_gpus(every)]
    if seen:
        return None if None in seen else seen[0]
    faults = [each for each in diagnose(_build(every), Machine()) if each.status in ("warning", "failed")]
    return next((f"{fault.text}: {fault.advice}" for fault in faults), None)


@functools.cache
def warn_of_unused_gpu() -> None:
    """Log :func:`unused_gpu`, once per process."""
    reason = unused_gpu()
    if reason is not None:
        logger.warning('running on the CPU, as with device="cpu", although this machine has a GPU: %s', reason)


def _build(every: Sequence[Device]) -> Build:
    info = system.build_info()
    return Build(info.backends, every, info.unloaded, info.refused, info.cuda, info.capabilities)


def device_of(info: CData) -> Device:
    """Convert a ``pyg_device *``."""
    return Device(
        name=text_of(info.name),
        kind=kind_of(text_of(info.backend)),
        description=text_of(info.description),
        type=_TYPE_NAMES[info.type],
        memory_total=info.memory_total,
        memory_free=info.memory_free,
        device_id=text_of(info.device_id),
        capability=nvidia.compute_capability(text_of(info.device_id)) if text_of(info.backend) == "CUDA" else None,
    )


class Backend(ClosableOwner):
    """A device opened for raw ggml graphs.

    Graphs are built with ``pyggml.lib``; ``examples/raw_ggml_graph.py`` shows how. Thread-safe: computations run one
    at a time, without the GIL. Close it, or use it as a context manager; it then raises ClosedError, but buffers
    allocated on its device stay valid.
    """

    _instead_of_a_copy = "share this one between threads, or open the device again"

    def __init__(self, device: str = "CPU", n_threads: int | None = None) -> None:
        """Open a device.

        Args:
            device: its name, as for :func:`pyggml.load`: "cpu", "gpu", "cuda:1" ..., or as in :func:`devices`.
            n_threads: compute threads of a CPU device, 1 to 512; None: one per core that the process may use. Other
                devices ignore it.

        Raises:
            DeviceError: there is no such device, or it cannot be used.
            InvalidParameterError: ``n_threads`` is out of range.
        """
        if n_threads is not None:
            n_threads = integer("n_threads", n_threads, 1, lib.GGML_MAX_N_THREADS, "; None is one per core")
        self._handle = c_calls.create(
            "pyg_backend", lib.pyg_backend_free, lib.pyg_backend_new, find_device(device).name.encode(), n_threads or 0
        )

    @property
    def handle(self) -> CData:
        """The ``ggml_backend_t`` for the raw API, borrowed until :meth:`close`."""
        handle: CData = c_calls.call_for_value("struct ggml_backend *", lib.pyg_backend_get, self._handle)
        return handle

    def compute(self, graph: CData) -> None:
        """Compute a graph, and return when the results are ready.

        Args:
            graph: a ``struct ggml_cgraph *`` whose tensors are allocated in memory that the device can access.

        Raises:
            InvalidParameterError: it is not a graph, a tensor has no memory or memory that the device cannot access,
                or the device does not support one of its operations.
            OutOfMemoryError, EngineError: the computation failed.
        """
        if not isinstance(graph, ffi.CData) or ffi.typeof(graph) is not ffi.typeof("struct ggml_cgraph *"):
            raise errors.InvalidParameterError(f"a 'struct ggml_cgraph *' was expected, not {shown(graph)}")
        c_calls.call(lib.pyg_backend_compute, self._handle, graph)

    def close(self) -> None:
        """Free the backend once a running computation ends. Can be called repeatedly."""
        c_calls.call(lib.pyg_backend_close, self._handle)
