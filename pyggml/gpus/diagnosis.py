"""Why a GPU is not used, in words: which of hardware, driver, run-time libraries and build is missing.

The order is that in which to put things right: without the hardware no driver helps, without a driver no build.
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
# What carries libraries that modules need, by how their names begin.
_CARRIERS = {
    "libvulkan": "install the Vulkan loader (on Debian and Ubuntu: apt install libvulkan1)",
    "libamdhip": "install ROCm's run-time libraries",
    "libhip": "install ROCm's run-time libraries",
    "libroc": "install ROCm's run-time libraries",
    "libsycl": "install Intel's oneAPI run-time libraries",
    "libmkl": "install Intel's oneAPI run-time libraries",
}


class Seen(Protocol):
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
    """What a build of pyggml can do on this machine, as the engine says.

    Attributes:
        backends: the backends that it has and that load, by the engine's names: "CPU", "CUDA" ...
        devices: those that the engine sees.
        unloaded: what the system's loader says of modules that do not load, by the kind of their devices.
        refused: what backends say that find no device, by kind.
        cuda: the CUDA that it was built with, such as 12; None: not known.
        capabilities: the compute capabilities that its CUDA code is for, such as "9.0"; () if not known.
    """

    backends: Sequence[str]
    devices: Sequence[Seen]
    unloaded: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    cuda: int | None = None
    capabilities: Sequence[str] = ()

    @cached_property
    def kinds(self) -> list[str]:
        """The kinds of its backends, as ``device=`` has them: "cpu", "cuda" ..."""
        return [kind_of(backend) for backend in self.backends]

    def has(self, kind: str) -> bool:
        """Whether it was built for a kind of device, though its module may do nothing here."""
        return kind in self.kinds or kind in self.unloaded or kind in self.refused


@dataclass(frozen=True)
class Machine:
    """Where it runs.

    Attributes:
        root: the folder that stands for "/".
        environment: the environment variables.
    """

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs in it."""
        return find_gpus(self.root)

    @cached_property
    def has_rocm(self) -> bool:
        """Whether the kernel offers an AMD GPU to ROCm."""
        return has_rocm(self.root)


class Lack(NamedTuple):
    """Something that is missing: which part, what was found, and the way out; None: there is none."""

    part: Part
    text: str
    remedy: str | None


class Finding(NamedTuple):
    """How GPUs are used: how that is, in words, and what to do about it; None: nothing."""

    status: Literal["ok", "note", "warning", "failed"]
    text: str
    advice: str | None = None


def is_for_gpus(options: Sequence[str]) -> bool:
    """Whether a build with these options of CMake's computes on GPUs."""
    return any(kind.option in options for kind in KINDS.values())


def explanation(kind: str, build: Build, machine: Machine) -> str:
    """Why there is no such device, and the way out.

    Args:
        kind: the kind that was asked for: "cuda", "gpu" ..., without its number.
        build: what the engine says.
        machine: where it runs.
    """
    if kind == "gpu":
        seen = [device for device in build.devices if device.kind in KINDS]
        kind = _first_to_try(machine) if machine.gpus and not seen else kind
    else:
        seen = [device for device in build.devices if device.kind == kind]
    if seen:
        return _too_few(kind, seen, machine)
    if kind in KINDS:
        return _joined(lacks(kind, build, machine))
    if kind == "gpu":
        return 'this machine has no GPU that pyggml knows; device="auto" takes what there is'
    if kind == "rpc":
        return 'no other host is connected: start "pyggml rpc-serve" there, and name it in rpc=["host:port"]'
    names = ", ".join(f'"{name}"' for name in ("cpu", "gpu", *KINDS))
    return f'devices are called {names} and "cuda:1"; "pyggml doctor" shows those of this machine'


def lacks(kind: str, build: Build, machine: Machine) -> list[Lack]:
    """What is missing to have a device of a kind, the first thing to put right first; never nothing."""
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


def inability(device: Seen, build: Build) -> Lack | None:
    """Why a device that the engine sees cannot compute; None: it can. Code for newer GPUs ends in a failed check."""
    least = min(map(_number, build.capabilities), default=(0, 0))
    if device.capability is None or _number(device.capability) >= least:
        return None
    text = (
        f"{_shown([device])} has the compute capability {device.capability}, and the CUDA code of this build is for "
        f"{'.'.join(map(str, least))} and newer"
    )
    option = f"-DCMAKE_CUDA_ARCHITECTURES={device.capability.replace('.', '')}"
    return Lack("build", text, f"build it for that GPU, too, {KINDS['cuda'].to_build_with(option)}")


def _number(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def findings(build: Build, machine: Machine) -> Iterator[Finding]:
    """How each GPU in the machine is used, or why not."""
    ready = {
        vendor: [gpu.name for gpu in machine.gpus if gpu.vendor == vendor and not gpu.missing] for vendor in VENDORS
    }
    for gpu in machine.gpus:
        if gpu.missing:
            text = f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}"
            yield Finding("note" if ready[gpu.vendor] else "warning", text, gpu.remedy)
    for vendor, names in ready.items():
        if names:
            yield from _use(vendor, names, build, machine)


def _use(vendor: str, names: Sequence[str], build: Build, machine: Machine) -> Iterator[Finding]:
    """How the engine gets on with the GPUs of a vendor that lack nothing; of those that are hidden, only that."""
    known = VENDORS[vendor]
    if in_use := [device for device in build.devices if _is_of(device, known)]:
        rest = f", of {len(names)} {vendor} GPUs" if len(names) > len(in_use) else ""
        yield Finding("note" if rest else "ok", f"the engine sees {_shown(in_use)}{rest}")
        unable = filter(None, (inability(device, build) for device in in_use))
        yield from (Finding("failed", lack.text, lack.remedy) for lack in unable)
        return
    built = [kind for kind in known.kinds if build.has(kind)]
    found = lacks(built[0] if built else best_kind(vendor, rocm=machine.has_rocm), build, machine)
    for lack in [lack for lack in found if lack.part == "settings"] or found:
        yield Finding(_status(lack, vendor), f"found {', '.join(names)}, but {lack.text}", lack.remedy)


def _status(lack: Lack, vendor: str) -> Literal["note", "warning", "failed"]:
    """What a build was not made for works no worse than it could; what somebody chose is no fault."""
    # Most of Intel's share the main memory with the processor, and gain little.
    if lack.part == "settings" or (lack.part == "build" and vendor == "Intel"):
        return "note"
    return "warning" if lack.part == "build" else "failed"


def _is_of(device: Seen, vendor: Vendor) -> bool:
    """Whether the engine's device is one of the vendor's; Vulkan serves several, so there the description decides."""
    description = device.description.lower()
    return device.kind in vendor.kinds and (
        device.kind != "vulkan" or any(word in description for word in vendor.words)
    )


def _first_to_try(machine: Machine) -> str:
    """The kind of device that would use a GPU in this machine, better one that lacks nothing."""
    gpu = next((gpu for gpu in machine.gpus if not gpu.missing), machine.gpus[0])
    return best_kind(gpu.vendor, rocm=machine.has_rocm)


def _too_few(kind: str, seen: Sequence[Seen], machine: Machine) -> str:
    """Of those that there are, somebody asked for one more."""
    known = KINDS.get(kind)
    counted = f'they are counted from 0, so the last is "{kind}:{len(seen) - 1}"'
    others = [gpu for gpu in machine.gpus if known and gpu.vendor in known.vendors][len(seen) :]
    if not known or not others:
        return counted
    missing = next((gpu for gpu in others if gpu.missing), None)
    variable = next((name for name in known.lists if name in machine.environment), None)
    if missing:
        return f"{counted}; {missing.name} ({missing.seen}) cannot be used: {missing.missing}: {missing.remedy}"
    if variable:
        return f"{counted}; {variable}={machine.environment[variable]} hides others"
    return counted


def _joined(lacking: Sequence[Lack]) -> str:
    """What is missing in one sentence; without the hardware, nothing else is worth advice."""
    first, *rest = lacking
    if first.part == "hardware":
        aside = "".join(f" (and {lack.text}; building it would not help here)" for lack in rest)
        return f"{first.text}{aside}; {first.remedy}"
    return "; and ".join(f"{lack.text}: {lack.remedy}" if lack.remedy else lack.text for lack in lacking)


def _no_hardware(known: Kind, machine: Machine) -> Lack:
    if "NVIDIA" in known.vendors and (machine.root / "dev/dxg").exists():
        text = "Windows lends its Linux (WSL) no NVIDIA GPU: nvidia-smi lists none"
        return Lack("hardware", text, "install NVIDIA's driver in Windows, and none in its Linux")
    text = f"this machine has no {known.vendors[0]} GPU" if len(known.vendors) == 1 else "this machine has no GPU"
    remedy = 'device="auto" takes what there is'
    if machine.gpus:
        text += f", but {machine.gpus[0].name}"
        remedy = f'device="{_first_to_try(machine)}" is for that one'
    elif known is KINDS["vulkan"] and _has_vulkan_driver(machine, "lvp_icd*"):
        remedy = "GGML_VK_VISIBLE_DEVICES=0 takes Mesa's driver that computes on the CPU, for tests: it is slow"
    return Lack("hardware", text, remedy)


def _has_vulkan_driver(machine: Machine, pattern: str) -> bool:
    return any(True for folder in _VULKAN_DRIVERS for _ in (machine.root / folder).glob(f"{pattern}.json"))


def _no_driver(gpus: Sequence[Gpu]) -> Iterator[Lack]:
    if all(gpu.missing for gpu in gpus):
        gpu = gpus[0]
        yield Lack("driver", f"{gpu.name} ({gpu.seen}) cannot be used: {gpu.missing}", gpu.remedy)


def _old_driver(kind: str, build: Build, machine: Machine) -> Iterator[Lack]:
    known = nvidia.newest_cuda(machine.root) if kind == "cuda" and build.cuda else None
    if build.cuda and known and known[0] < build.cuda:
        version = nvidia.driver_version(machine.root) or "here"
        text = (
            f"NVIDIA's driver {version} knows CUDA up to {known[0]}.{known[1]}, and this build needs CUDA {build.cuda}"
        )
        first = nvidia.FIRST_DRIVERS.get(build.cuda)
        newer = f"update the driver to {first} or newer" if first else "update the driver"
        yield Lack("driver", text, f"{newer}, or take a build for CUDA {known[0]}")


def _no_vulkan_driver(kind: str, machine: Machine) -> Iterator[Lack]:
    if kind != "vulkan" or any(name in machine.environment for name in _VULKAN_VARIABLES):
        return
    if not _has_vulkan_driver(machine, "*"):
        remedy = (
            "install the GPU's own: Mesa's for AMD and Intel (on Debian and Ubuntu: apt install mesa-vulkan-drivers); "
            "NVIDIA's comes with its driver, and into a container with -e NVIDIA_DRIVER_CAPABILITIES=all"
        )
        yield Lack("driver", "no Vulkan driver is installed (there is none in /usr/share/vulkan/icd.d)", remedy)


def _no_rocm(kind: str, machine: Machine) -> Iterator[Lack]:
    if kind == "rocm" and not machine.has_rocm:
        text = "the kernel offers this GPU to no ROCm program (/sys/class/kfd has none): ROCm computes only on some"
        yield Lack("driver", text, f"use it through Vulkan, {KINDS['vulkan'].to_build}")


def _hidden(known: Kind, n_gpus: int, machine: Machine) -> Iterator[Lack]:
    """Variables that hide every GPU: their lists end at the first entry that is none."""
    for name in known.lists:
        first = machine.environment.get(name, "0").split(",")[0].strip()
        if not (int(first) < n_gpus if first.isdecimal() else re.match("GPU-|MIG-", first)):
            yield _hiding(known, name, machine)


def _hiding(known: Kind, name: str, machine: Machine) -> Lack:
    return Lack(
        "settings", f"{name}={machine.environment[name]} hides it from {known.label}", f"unset {name} to use it"
    )


def _no_libraries(kind: str, build: Build) -> Iterator[Lack]:
    if kind not in build.unloaded:
        return
    words = build.unloaded[kind]
    label, name = KINDS[kind].label, _NOT_FOUND.search(words)
    if not name:
        remedy = f"build it again here, {KINDS[kind].to_build}"
        yield Lack("libraries", f"the {label} module of this build does not load: {words}", remedy)
    elif name[1] == nvidia.LIBCUDA:
        remedy = "install NVIDIA's driver; in a container: docker run --gpus all"
        yield Lack("driver", f"the driver's library {name[1]}, which this build needs, was not found", remedy)
    else:
        text = f"the run-time library {name[1]}, which the {label} module of this build needs, was not found"
        yield Lack("libraries", text, _carrier(name[1]))


def _carrier(library: str) -> str:
    """How to get a run-time library."""
    if cuda := _CUDA_LIBRARY.match(library):
        return f'pip install "pyggml[cuda{cuda[1]}]", or a CUDA {cuda[1]} toolkit'
    install = (remedy for beginning, remedy in _CARRIERS.items() if library.startswith(beginning))
    return next(install, f"install what has {library}")


def _not_built(kind: str, build: Build, machine: Machine) -> Iterator[Lack]:
    if build.has(kind):
        return
    known, toolkit = KINDS[kind], KINDS[kind].toolkit
    newest = nvidia.newest_cuda(machine.root) if kind == "cuda" else None
    if newest and newest[0] < max(nvidia.FIRST_DRIVERS):
        toolkit += f", {newest[0]}.x for this driver"
    text = f"this build cannot use {known.label}: it was built for {', '.join(build.backends) or 'nothing'}"
    yield Lack("build", text, f"build pyggml with it, {known.to_build}; that needs {toolkit}")


def _unexplained(kind: str, build: Build, machine: Machine) -> Lack:
    """Nothing is missing that can be seen from outside: the driver is asked, then the variables are doubted."""
    known = KINDS[kind]
    refusal = nvidia.refusal(machine.root) if kind == "cuda" else None
    if refusal:
        return Lack("driver", f"NVIDIA's driver does not start: {refusal.text}", refusal.remedy)
    for name in (*known.lists, *known.switches):
        if name in machine.environment:
            return _hiding(known, name, machine)
    access = ", and that you may open /dev/kfd" if kind == "rocm" else ""
    said = f": {build.refused[kind]}" if kind in build.refused else ", and gives no reason"
    text = f"{known.label}, which this build has, finds no device{said}"
    return Lack("driver", text, f"see that {known.look} lists it{access}")


def _shown(devices: Sequence[Seen]) -> str:
    return ", ".join(f"{device.name} ({device.description})" for device in devices)
