"""Names of devices, as people write them and as the engine does. Knows neither this machine nor this build.

Imports nothing compiled, so that a command's ``--help`` stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from pyggml._core.checks import device_name, items, refused

AUTO = "auto"
CPU = "cpu"
GPU = "gpu"  # of any kind
RPC = "rpc"  # of another host


@dataclass(frozen=True)
class Kind:
    """A kind of device.

    Attributes:
        name: what ``device=`` calls it.
        engine_name: what the engine calls its backend; the names of its devices begin with it.
        other_names: what else people call it.
    """

    name: str
    engine_name: str
    other_names: tuple[str, ...] = ()


#: The kinds that have names of ours. The engine's name serves for any other.
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
    """A name, understood: "cuda", "cuda:0" and "CUDA0" are the same.

    Attributes:
        kind: the kind's name, in lower case.
        index: which of its kind.
    """

    kind: str
    index: int = 0


class Named(Protocol):
    """What has the engine's name of a device, and says what kind it is."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...


_Device = TypeVar("_Device", bound=Named)


def kind_of(backend: str) -> str:
    """The kind of the devices of a backend, by the engine's name for that."""
    return _KIND_OF.get(backend.lower(), backend.lower())


def understood(name: str) -> DeviceName:
    """What a name means: a kind and perhaps an index, in any case, with a colon or without."""
    kind, index = re.fullmatch(r"(.*?):?([0-9]{0,9})", name, re.DOTALL).groups()  # type: ignore[union-attr]
    return DeviceName(_KIND_OF.get(kind.lower(), kind.lower()), int(index or 0))


def names_of(device: str | Sequence[str]) -> tuple[str, ...]:
    """The names in ``device=``: one, several with commas (or slashes) between them, or a sequence.

    Raises:
        InvalidParameterError: a name is empty or no text, or "auto" or "cpu" stands beside others.
    """
    if isinstance(device, str):
        given: Sequence[str] = re.split("[,/]", device) if device else [device]
    else:
        given = items("device", device, 'a name such as "cuda:1", or a list of names')
    if not given:
        raise refused('device is an empty list: "cpu" computes without a GPU')
    names = tuple(name.strip() if isinstance(name, str) else name for name in given)
    for name in names:
        device_name(name)
    alone = [name for name in names if understood(name).kind in (AUTO, CPU)]
    if alone and len(names) > 1:
        raise refused(
            f"device names {alone[0]!r} beside others: give only the devices that take layers; what is in main memory "
            "is for n_gpu_layers, n_cpu_moe and override_tensor to say"
        )
    return names


def found(name: str, devices: Sequence[_Device], gpus: Sequence[_Device]) -> _Device | None:
    """The device with a name: the engine's own, or a kind and the place in the list of that kind.

    Args:
        name: as in :func:`names_of`.
        devices: those that there are.
        gpus: those among them that "gpu" stands for.
    """
    exact = next((each for each in devices if each.name.lower() == name.lower()), None)
    if exact is not None:
        return exact
    wanted = understood(name)
    own = gpus if wanted.kind == GPU else [each for each in devices if each.kind == wanted.kind]
    return own[wanted.index] if wanted.index < len(own) else None
