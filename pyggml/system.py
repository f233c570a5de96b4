"""The engine's build, and the resources of the machine that this process may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyggml._core import c_calls
from pyggml._core.c_calls import text_of
from pyggml._core.ffi import ffi, lib, module_dir
from pyggml.gpus import nvidia
from pyggml.gpus.kinds import KINDS

_NO_QUOTA = 2**31 - 1
_NO_LIMIT = 1 << 60  # the kernel's "no limit" is just below 2**63, pyggml's is 2**64 - 1


@dataclass(frozen=True)
class BuildInfo:
    """Properties of the compiled module's build.

    Attributes:
        engine: the engine and its version, such as "llama.cpp b11549".
        compiler: the compiler and its version.
        build_type: CMake's build type, such as "Release".
        system: the target system.
        portable: True if backends and CPU variants are loaded at run time.
        sanitize: the compiled-in sanitizers; None: none.
        options: the engine's build options that are on.
        backends: the available backends: "CPU", "CUDA" ...
        unloaded: backends of this build that fail to load: the kind of their devices, such as "cuda" -> the loader's
            message.
        refused: backends of this build that run and find no device: the kind -> their message.
        cuda: the major version of CUDA that the build needs; None: it has no CUDA.
        capabilities: the compute capabilities of its CUDA code, such as "9.0"; newer GPUs work, too.
        module: the folder of the compiled module.
    """

    engine: str
    compiler: str
    build_type: str
    system: str
    portable: bool
    sanitize: str | None
    options: tuple[str, ...]
    backends: tuple[str, ...]
    unloaded: Mapping[str, str]
    refused: Mapping[str, str]
    cuda: int | None
    capabilities: tuple[str, ...]
    module: Path


@dataclass(frozen=True)
class CpuLimits:
    """The cores that this process may use.

    Attributes:
        n_processors: logical processors it may run on; None: unknown.
        n_cores: physical cores among them.
        n_quota: quota of its control groups in whole cores; None: there is no quota.
        n_usable: useful number of compute threads: the minimum of these.
    """

    n_processors: int | None
    n_cores: int
    n_quota: int | None
    n_usable: int


@dataclass(frozen=True)
class MemoryLimits:
    """The main memory that this process may still allocate.

    Attributes:
        usable_bytes: the minimum of the others.
        machine_bytes: free memory of the machine; None, as for the others: no limit.
        cgroup_bytes: memory left by its control groups (a container).
        address_space_bytes: address space left by ``ulimit -v``.
    """

    usable_bytes: int
    machine_bytes: int | None
    cgroup_bytes: int | None
    address_space_bytes: int | None


def build_info() -> BuildInfo:
    """Return the properties of the compiled module's build."""
    values = dict(line.split("=", 1) for line in text_of(lib.pyg_build_info()).splitlines())
    modules = _gpu_modules()  # before the backends are counted: they add theirs
    registries = [lib.ggml_backend_reg_get(index) for index in range(lib.ggml_backend_reg_count())]
    return BuildInfo(
        engine=f"llama.cpp {text_of(lib.pyg_engine_build())}",
        compiler=values["compiler"],
        build_type=values["build_type"],
        system=values["system"],
        portable=values["portable"] == "ON",
        sanitize=values["sanitize"] or None,
        options=tuple(name for name in values if name.startswith("GGML_")),
        backends=tuple(text_of(lib.ggml_backend_reg_name(registry)) for registry in registries),
        unloaded={kind: each.reason for kind, each in modules.items() if not (each.is_loaded or each.has_no_device)},
        refused={kind: each.reason for kind, each in modules.items() if each.has_no_device},
        cuda=nvidia.cuda_version_of(module_dir / KINDS["cuda"].module),
        capabilities=tuple(
            nvidia.format_capability(int(arch)) for arch in _features("CUDA").get("ARCHS", "").split(",") if arch
        ),
        module=module_dir,
    )


class _GpuModule(NamedTuple):
    """The result of loading the module of a kind of GPU, and the messages about it."""

    is_loaded: bool
    n_devices: int
    reason: str

    @property
    def has_no_device(self) -> bool:
        """True if it runs here and finds no device; Vulkan's then does not become a backend at all."""
        return not self.n_devices and (self.is_loaded or "returned NULL" in self.reason)


def _gpu_modules() -> dict[str, _GpuModule]:
    """Return the modules of GPUs by their kinds. The first call loads them."""
    kinds = {kind.module: name for name, kind in KINDS.items()}
    modules = {}
    for index in range(lib.pyg_gpu_module_count()):
        module = ffi.new("pyg_gpu_module *")
        c_calls.call(lib.pyg_gpu_module_get, index, module)
        if kind := kinds.get(text_of(module.name)):
            modules[kind] = _GpuModule(module.is_loaded, module.n_devices, text_of(module.reason))
    return modules


def cpu_limits() -> CpuLimits:
    """Return the cores that this process may use."""
    limits = ffi.new("pyg_cpu_limits *")
    lib.pyg_cpu_get_limits(limits)
    quota = limits.n_quota if limits.n_quota < _NO_QUOTA else None
    return CpuLimits(limits.n_processors or None, limits.n_cores, quota, lib.pyg_cpu_count())


def cpu_features() -> list[str]:
    """Return the CPU backend's features by the engine's names: instruction sets such as "AVX2", and others."""
    return [name for name, value in _features("CPU").items() if value != "0"]


def memory_limits() -> MemoryLimits:
    """Return the main memory that this process may still allocate."""
    limits = ffi.new("pyg_memory_limits *")
    lib.pyg_memory_get_limits(limits)
    found = (limits.machine, limits.groups, limits.address_space)
    return MemoryLimits(min(found), *(each if each < _NO_LIMIT else None for each in found))


def _features(backend: str) -> dict[str, str]:
    """Return the features that a backend reports; empty if the build has no such backend."""
    text = c_calls.call_for_text(lib.pyg_backend_features, backend.encode()) or b""
    return dict(line.split("=", 1) for line in text.decode(errors="replace").splitlines())
