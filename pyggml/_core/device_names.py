"""Names of devices, as users write them and as the engine does, independent of the machine and the build.

Imports nothing compiled, so that a command's ``--help`` stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyggml._core.checks import device_name, invalid, items

AUTO = "auto"
CPU = "cpu"
GPU = "gpu"  # of any kind
RPC = "rpc"  # of another host


@dataclass(frozen=True)
class Kind:
    """A kind of device.

    Attributes:
        name: its name in ``device=``.
        engine_name: the engine's name of its backend; the names of its devices begin with it.
        other_names: other common names.
    """

    name: str
    engine_name: str
    other_names: tuple[str, ...] = ()


#: The kinds with names of pyggml's own. Any other kind has the engine's name.
KINDS = (
    Kind(CPU, "CPU"),
    Kind("cuda", "CUDA"),
    Kind("rocm", "ROCm", ("hip",)),
    Kind("vulkan", "Vulkan"),
    Kind("sycl", "SYCL"),
    Kind("metal", "MTL", ("mps",)),
    Kind(RPC, "RPC"),
)

_KIND_OF = {other.lower(): kind.name for kind in KINDS for other in (kind.name, kind.engine_name, *kind.other_names)}


@dataclass(frozen=True)
class DeviceName:
    """A parsed name: "cuda", "cuda:0" and "CUDA0" are the same.

    Attributes:
        kind: the kind's name, in lower case.
        index: index among the devices of this kind.
    """

    kind: str
    index: int = 0


class Named(Protocol):
    """An object with the engine's name of a device, and its kind."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


_Device = TypeVar("_Device", bound=Named)


def kind_of(backend: str) -> str:
    """Return the kind of a backend's devices, by the engine's name of the backend."""
    return _KIND_OF.get(backend.lower(), backend.lower())


def parse_device_name(name: str) -> DeviceName:
    """Parse a name: a kind and perhaps an index, in any case, with a colon or without."""
    kind, index = re.fullmatch(r"(.*?):?([0-9]{0,9})", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return DeviceName(_KIND_OF.get(kind.lower(), kind.lower()), int(index or 0))


def split_device_names(device: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names in ``device=``: one, several separated by commas (or slashes), or a sequence.

    Raises:
        InvalidParameterError: a name is empty or not text, or "auto" or "cpu" is one of several.
    """
    if isinstance(device, str):
        given: Sequence[str] = re.split("[,/]", device) if device else [device]
    else:
        given = items("device", device, 'a name such as "cuda:1", or a list of names')
    if not given:
        raise invalid('device is an empty list: "cpu" computes without a GPU')
    names = tuple(name.strip() if isinstance(name, str) else name for name in given)
    for name in names:
        device_name(name)
    alone = [name for name in names if parse_device_name(name).kind in (AUTO, CPU)]
    if alone and len(names) > 1:
        raise invalid(
            f"device names {alone[0]!r} and others: name only the devices that take layers; n_gpu_layers, n_cpu_moe "
            "and override_tensor keep weights in main memory"
        )
    return names


def find_named(name: str, devices: Sequence[_Device], gpus: Sequence[_Device]) -> _Device | None:
    """Return the device with a name: the engine's own, or a kind and the index among the devices of that kind.

    ``gpus`` are the devices that "gpu" stands for.
    """
    exact = next((each for each in devices if each.name.lower() == name.lower()), None)
    if exact is not None:
        return exact
    wanted = parse_device_name(name)
    own = gpus if wanted.kind == GPU else [each for each in devices if each.kind == wanted.kind]
    return own[wanted.index] if wanted.index < len(own) else None
