"""Diagnosis of unused GPUs: missing hardware, drivers, run-time libraries or builds.

Problems are reported in the order of fixing: without hardware no driver helps, without a driver no build.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pyggml._core.cached_property import cached_property
from pyggml._core.device_names import kind_of
from pyggml.gpus import nvidia
from pyggml.gpus.hardware import VENDORS, Gpu, Vendor, find_gpus, has_rocm
from pyggml.gpus.kinds import KINDS, Kind, best_kind

Part = Literal["hardware", "driver", "settings", "libraries", "build"]

_VULKAN_DRIVERS = ("usr/share/vulkan/icd.d", "usr/local/share/vulkan/icd.d", "etc/vulkan/icd.d")
_VULKAN_VARIABLES = ("VK_DRIVER_FILES", "VK_ADD_DRIVER_FILES", "VK_ICD_FILENAMES")
_NOT_FOUND = re.compile(r"(lib[\w+-]+\.so[.\d]*): cannot open shared object file")
_CUDA_LIBRARY = re.compile(r"libcu\w+\.so\.(\d+)")
# By the beginnings of a library's name.
_INSTALL_HINTS = {
    ("libvulkan",): "install the Vulkan loader (on Debian and Ubuntu: apt install libvulkan1)",
    ("libamdhip", "libhip", "libroc"): "install ROCm's run-time libraries",
    ("libsycl", "libmkl"): "install Intel's oneAPI run-time libraries",
}


class EngineDevice(Protocol):
    """A device of the engine."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def description(self) -> str: ...  # noqa: D102
    @property
    def capability(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True)
class Build:
    """A build of pyggml on this machine, as reported by the engine.

    Attributes:
        backends: its backends that load, by the engine's names: "CPU", "CUDA" ...
        devices: devices of the engine.
        unloaded: errors of modules that do not load, by the kind of their devices.
        refused: errors of backends without devices, by kind.
        cuda: the CUDA version that it was built with, such as 12; None: unknown.
        capabilities: compute capabilities of its CUDA code, such as "9.0"; (): unknown.
    """

    backends: Sequence[str]
    devices: Sequence[EngineDevice]
    unloaded: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    cuda: int | None = None
    capabilities: Sequence[str] = ()

    @cached_property
    def kinds(self) -> list[str]:
        """Kinds of its backends, as in ``device=``: "cpu", "cuda" ..."""
        return [kind_of(backend) for backend in self.backends]

    def has(self, kind: str) -> bool:
        """Return True if it was built for a kind of device, even if its module does not load.

        Args:
            kind: a kind of device: "cuda", "rocm", "vulkan" ...
        """
        return kind in self.kinds or kind in self.unloaded or kind in self.refused


@dataclass(frozen=True)
class Machine:
    """A machine: its root folder, which is "/" unless in tests, and the environment variables.

    Attributes:
        root: its root folder.
        environment: its environment variables.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The machine's GPUs."""
        return find_gpus(self.root)

    @cached_property
    def has_rocm(self) -> bool:
        """True if the kernel supports an AMD GPU for ROCm."""
        return has_rocm(self.root)


class Problem(NamedTuple):
    """A problem with a part, its description, and the fix; None: there is none.

    Attributes:
        part: "hardware", "driver", "settings", "libraries" or "build".
        text: the description.
        remedy: the fix; None: there is none.
    """

    part: Part
    text: str
    remedy: str | None


class Diagnosis(NamedTuple):
    """Diagnosis of a GPU: status, description and advice, if any.

    Attributes:
        status: "ok", "note", "warning" or "failed".
        text: the description.
        advice: the fix, if there is one.
    """

    status: Literal["ok", "note", "warning", "failed"]
    text: str
    advice: str | None = None


def has_gpu_backend(options: Sequence[str]) -> bool:
    """Return True if a build with these CMake options supports GPUs.

    Args:
        options: names of the build's CMake options that are on.
    """
    return any(kind.option in options for kind in KINDS.values())


def explain_missing_device(kind: str, build: Build, machine: Machine) -> str:
    """Explain why there is no device of a kind ("cuda", "gpu" ..., without its index), and how to fix it.

    Args:
        kind: the kind of device that was asked for.
        build: the build, as the engine reports it.
        machine: the machine.
    """
    if kind == "gpu":
        seen = [device for device in build.devices if device.kind in KINDS]
        kind = _preferred_kind(machine) if machine.gpus and not seen else kind
    else:
        seen = [device for device in build.devices if device.kind == kind]
    if seen:
        return _explain_index(kind, seen, machine)
    if kind in KINDS:
        return _join(find_problems(kind, build, machine))
    if kind == "gpu":
        return 'this machine has no GPU that pyggml supports; use device="auto"'
    if kind == "rpc":
        return 'no other host is connected: start "pyggml rpc-serve" there, and pass rpc=["host:port"]'
    names = ", ".join(f'"{name}"' for name in ("cpu", "gpu", *KINDS))
    return f'names of devices are {names} and "cuda:1"; "pyggml doctor" lists those of this machine'


def find_problems(kind: str, build: Build, machine: Machine) -> list[Problem]:
    """Find out why there is no device of a kind. There is at least one problem; the first is to be fixed first.

    Args:
        kind: a kind of device: "cuda", "rocm", "vulkan" ...
        build: the build, as the engine reports it.
        machine: the machine.
    """
    known = KINDS[kind]
    gpus = [gpu for gpu in machine.gpus if gpu.vendor in known.vendors]
    if not gpus:
        return [_no_hardware(known, machine), *_not_built(kind, build, machine)]
    found = [
        *_no_driver(gpus),
        *_old_driver(kind, build, machine),
        *_no_vulkan_driver(kind, machine),
        *_no_rocm(kind, machine),
        *_hidden(known, len(gpus), machine),
        *_no_libraries(kind, build),
        *_not_built(kind, build, machine),
    ]
    return found or [_unexplained(kind, build, machine)]


def capability_problem(device: EngineDevice, build: Build) -> Problem | None:
    """Return the problem of a device that is older than the build's CUDA code, which would crash; None: it is not.

    Args:
        device: the device.
        build: the build, as the engine reports it.
    """
    oldest = min(map(_parse_capability, build.capabilities), default=(0, 0))
    if device.capability is None or _parse_capability(device.capability) >= oldest:
        return None
    text = (
        f"{_describe([device])} has the compute capability {device.capability}, but the CUDA code of this build is for "
        f"{'.'.join(map(str, oldest))} and newer"
    )
    option = f"-DCMAKE_CUDA_ARCHITECTURES={device.capability.replace('.', '')}"
    return Problem("build", text, f"build it for that GPU too, {KINDS['cuda'].build_command(option)}")


def _parse_capability(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def diagnose(build: Build, machine: Machine) -> Iterator[Diagnosis]:
    """Diagnose each GPU in the machine.

    Args:
        build: the build, as the engine reports it.
        machine: the machine.
    """
    usable = {
        vendor: [gpu.name for gpu in machine.gpus if gpu.vendor == vendor and not gpu.missing] for vendor in VENDORS
    }
    for gpu in machine.gpus:
        if gpu.missing:
            text = f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}"
            yield Diagnosis("note" if usable[gpu.vendor] else "warning", text, gpu.remedy)
    for vendor, names in usable.items():
        if names:
            yield from _diagnose_vendor(vendor, names, build, machine)


def _diagnose_vendor(vendor: str, names: Sequence[str], build: Build, machine: Machine) -> Iterator[Diagnosis]:
    """Diagnose the usable GPUs of a vendor. If an environment variable hides them, report only that."""
    known = VENDORS[vendor]
    if in_use := [device for device in build.devices if _is_of(device, known)]:
        rest = f", of {len(names)} {vendor} GPUs" if len(names) > len(in_use) else ""
        yield Diagnosis("note" if rest else "ok", f"the engine sees {_describe(in_use)}{rest}")
        problems = filter(None, (capability_problem(device, build) for device in in_use))
        yield from (Diagnosis("failed", problem.text, problem.remedy) for problem in problems)
        return
    built = [kind for kind in known.kinds if build.has(kind)]
    found = find_problems(built[0] if built else best_kind(vendor, rocm=machine.has_rocm), build, machine)
    for problem in [problem for problem in found if problem.part == "settings"] or found:
        yield Diagnosis(_status(problem, vendor), f"found {', '.join(names)}, but {problem.text}", problem.remedy)


def _status(problem: Problem, vendor: str) -> Literal["note", "warning", "failed"]:
    """Return the status for a problem. The user's own settings are no failure, and a missing backend is a warning."""
    # Most Intel GPUs share the main memory with the CPU, so they gain little.
    if problem.part == "settings" or (problem.part == "build" and vendor == "Intel"):
        return "note"
    return "warning" if problem.part == "build" else "failed"


def _is_of(device: EngineDevice, vendor: Vendor) -> bool:
    """Return True if a device is the vendor's. Vulkan supports several vendors, so its descriptions decide."""
    description = device.description.lower()
    return device.kind in vendor.kinds and (
        device.kind != "vulkan" or any(word in description for word in vendor.keywords)
    )


def _preferred_kind(machine: Machine) -> str:
    """Return the preferred kind of device for this machine, if possible for a GPU without problems."""
    gpu = next((gpu for gpu in machine.gpus if not gpu.missing), machine.gpus[0])
    return best_kind(gpu.vendor, rocm=machine.has_rocm)


def _explain_index(kind: str, seen: Sequence[EngineDevice], machine: Machine) -> str:
    """Explain that there are fewer devices of a kind than requested."""
    counted = f'devices are numbered from 0; the last is "{kind}:{len(seen) - 1}"'
    known = KINDS.get(kind)
    others = [gpu for gpu in machine.gpus if known and gpu.vendor in known.vendors][len(seen) :]
    if not known or not others:
        return counted
    if missing := next((gpu for gpu in others if gpu.missing), None):
        return f"{counted}; {missing.name} ({missing.seen}) cannot be used: {missing.missing}: {missing.remedy}"
    if variable := next((name for name in known.index_variables if name in machine.environment), None):
        return f"{counted}; {variable}={machine.environment[variable]} hides the others"
    return counted


def _join(lacking: Sequence[Problem]) -> str:
    """Join problems to a sentence. Without the hardware, the other problems get no advice."""
    first, *rest = lacking
    if first.part == "hardware":
        others = "".join(f" (also, {problem.text}; building it would not help here)" for problem in rest)
        return f"{first.text}{others}; {first.remedy}"
    return "; and ".join(f"{problem.text}: {problem.remedy}" if problem.remedy else problem.text for problem in lacking)


def _no_hardware(known: Kind, machine: Machine) -> Problem:
    if "NVIDIA" in known.vendors and (machine.root / "dev/dxg").exists():
        text = "WSL has no NVIDIA GPU: nvidia-smi lists none"
        return Problem("hardware", text, "install NVIDIA's driver in Windows, but not in WSL")
    text = f"this machine has no {known.vendors[0]} GPU" if len(known.vendors) == 1 else "this machine has no GPU"
    remedy = 'use device="auto"'
    if machine.gpus:
        text += f", but {machine.gpus[0].name}"
        remedy = f'use device="{_preferred_kind(machine)}" for it'
    elif known is KINDS["vulkan"] and _has_vulkan_driver(machine, "lvp_icd*"):
        remedy = "for tests, set GGML_VK_VISIBLE_DEVICES=0 to use Mesa's slow CPU driver"
    return Problem("hardware", text, remedy)


def _has_vulkan_driver(machine: Machine, pattern: str) -> bool:
    return any(True for folder in _VULKAN_DRIVERS for _ in (machine.root / folder).glob(f"{pattern}.json"))


def _no_driver(gpus: Sequence[Gpu]) -> Iterator[Problem]:
    if all(gpu.missing for gpu in gpus):
        gpu = gpus[0]
        yield Problem("driver", f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}", gpu.remedy)


def _old_driver(kind: str, build: Build, machine: Machine) -> Iterator[Problem]:
    known = nvidia.max_cuda_version(machine.root) if kind == "cuda" and build.cuda else None
    if build.cuda and known and known[0] < build.cuda:
        version = nvidia.driver_version(machine.root) or "here"
        supported = f"{known[0]}.{known[1]}"
        text = f"NVIDIA's driver {version} supports CUDA up to {supported}, but this build needs CUDA {build.cuda}"
        first = nvidia.FIRST_DRIVERS.get(build.cuda)
        newer = f"update the driver to {first} or newer" if first else "update the driver"
        yield Problem("driver", text, f"{newer}, or use a build for CUDA {known[0]}")


def _no_vulkan_driver(kind: str, machine: Machine) -> Iterator[Problem]:
    if kind != "vulkan" or any(name in machine.environment for name in _VULKAN_VARIABLES):
        return
    if not _has_vulkan_driver(machine, "*"):
        remedy = (
            "install Mesa's driver for AMD and Intel (on Debian and Ubuntu: apt install mesa-vulkan-drivers); NVIDIA's "
            "driver includes one, in a container with -e NVIDIA_DRIVER_CAPABILITIES=all"
        )
        yield Problem("driver", "no Vulkan driver is installed (there is none in /usr/share/vulkan/icd.d)", remedy)


def _no_rocm(kind: str, machine: Machine) -> Iterator[Problem]:
    if kind == "rocm" and not machine.has_rocm:
        text = "the kernel does not support this GPU for ROCm (/sys/class/kfd has none)"
        yield Problem("driver", text, f"use it through Vulkan, {KINDS['vulkan'].build_command()}")


def _hidden(known: Kind, n_gpus: int, machine: Machine) -> Iterator[Problem]:
    """Yield variables that hide every GPU. A list of devices ends at its first invalid entry."""
    for name in known.index_variables:
        first = machine.environment.get(name, "0").split(",")[0].strip()
        if not (int(first) < n_gpus if first.isdecimal() else re.match("GPU-|MIG-", first)):
            yield _hidden_by(known, name, machine)


def _hidden_by(known: Kind, name: str, machine: Machine) -> Problem:
    text = f"{name}={machine.environment[name]} hides it from {known.label}"
    return Problem("settings", text, f"unset {name} to use it")


def _no_libraries(kind: str, build: Build) -> Iterator[Problem]:
    if (error := build.unloaded.get(kind)) is None:
        return
    label, name = KINDS[kind].label, _NOT_FOUND.search(error)
    if not name:
        remedy = f"rebuild it here, {KINDS[kind].build_command()}"
        yield Problem("libraries", f"the {label} module of this build does not load: {error}", remedy)
    elif name[1] == nvidia.LIBCUDA:
        remedy = "install NVIDIA's driver; in a container: docker run --gpus all"
        yield Problem("driver", f"the driver's library {name[1]}, which this build needs, was not found", remedy)
    else:
        text = f"the run-time library {name[1]}, which the {label} module of this build needs, was not found"
        yield Problem("libraries", text, _install_hint(name[1]))


def _install_hint(library: str) -> str:
    """Return how to install a run-time library."""
    if cuda := _CUDA_LIBRARY.match(library):
        return f'pip install "pyggml[cuda{cuda[1]}]", or a CUDA {cuda[1]} toolkit'
    install = (remedy for prefixes, remedy in _INSTALL_HINTS.items() if library.startswith(prefixes))
    return next(install, f"install the package with {library}")


def _not_built(kind: str, build: Build, machine: Machine) -> Iterator[Problem]:
    if build.has(kind):
        return
    known, toolkit = KINDS[kind], KINDS[kind].toolkit
    newest = nvidia.max_cuda_version(machine.root) if kind == "cuda" else None
    if newest and newest[0] < max(nvidia.FIRST_DRIVERS):
        toolkit += f", {newest[0]}.x for this driver"
    text = f"this build cannot use {known.label}: it was built for {', '.join(build.backends) or 'nothing'}"
    yield Problem("build", text, f"build pyggml with it, {known.build_command()}; that needs {toolkit}")


def _unexplained(kind: str, build: Build, machine: Machine) -> Problem:
    """Explain a problem without a visible cause: a startup error of the driver, or else a variable."""
    known = KINDS[kind]
    if kind == "cuda" and (error := nvidia.startup_error(machine.root)):
        return Problem("driver", f"NVIDIA's driver does not start: {error.text}", error.remedy)
    for name in (*known.index_variables, *known.other_variables):
        if name in machine.environment:
            return _hidden_by(known, name, machine)
    access = ", and that you can open /dev/kfd" if kind == "rocm" else ""
    reason = f": {build.refused[kind]}" if kind in build.refused else ", and gives no reason"
    text = f"{known.label}, which this build has, finds no device{reason}"
    return Problem("driver", text, f"check that {known.list_command} lists it{access}")


def _describe(devices: Sequence[EngineDevice]) -> str:
    return ", ".join(f"{device.name} ({device.description})" for device in devices)
