"""Memory budget for loaded models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyggml
from pyggml.units import bytes_text

# Share of the memory left free with several models, for memory that they have allocated but not touched yet.
_RESERVE = 0.1
# Device name of main memory.
_MAIN = "CPU"

#: Memory of the loaded models, by name.
MemoryUse = Mapping[str, pyggml.MemoryEstimate]


@dataclass(frozen=True)
class MemoryBudget:
    """Limits on the memory and the number of loaded models.

    A single model has the limits of :func:`pyggml.load`: its mapped weights may exceed the memory. The limit of a
    prefix cache counts if ``prefix_cache_bytes`` was given. The default one follows what is available, so it excludes
    no model.

    Attributes:
        max_memory: maximum bytes of all models on all devices; None: the machine's memory.
        max_loaded: maximum number of models; None: unlimited.
    """

    max_memory: int | None
    max_loaded: int | None

    def fits(self, needed: pyggml.MemoryEstimate, in_use: MemoryUse) -> bool:
        """Return True if a model fits in addition to the loaded ones."""
        total = _total(needed) + sum(map(_total, in_use.values()))
        return (
            (self.max_loaded is None or len(in_use) < self.max_loaded)
            and (self.max_memory is None or total <= self.max_memory)
            and (not in_use or _fits_machine(needed, in_use))
        )

    def require_fits_alone(self, name: str, needed: pyggml.MemoryEstimate, in_use: MemoryUse) -> None:
        """Refuse a model that would not fit even if all others were unloaded.

        Raises:
            OutOfMemoryError: with required and available bytes.
        """
        total = _total(needed)
        if self.max_memory is not None and total > self.max_memory:
            smaller = "n_ctx or prefix_cache_bytes" if needed.prefix_cache_bytes else "n_ctx"
            raise pyggml.OutOfMemoryError(
                f"{name} needs {bytes_text(total)}; max_memory is {bytes_text(self.max_memory)}: raise it, or load "
                f"the model with a smaller {smaller}",
                total,
                self.max_memory,
            )
        for device in needed.devices:
            resident = _resident(device)
            available = device.available_bytes + sum(map(_resident, _on(device.name, in_use)))
            if resident > available:
                raise pyggml.OutOfMemoryError(
                    f"{name} needs {bytes_text(resident)} in addition to its mapped weights; without other models "
                    f"{device.name} has {bytes_text(available)}; {needed.advice}",
                    resident,
                    available,
                )

    def shortage(self, needed: pyggml.MemoryEstimate, in_use: MemoryUse) -> str:
        """Return why a model does not fit, as a message."""
        used = " and ".join(f"{name!r} ({bytes_text(_total(each))})" for name, each in in_use.items())
        limits = [
            "" if self.max_memory is None else f"max_memory is {bytes_text(self.max_memory)}",
            "" if self.max_loaded is None else f"max_loaded_models is {self.max_loaded}",
        ]
        limit = " and ".join(filter(None, limits)) or f"{bytes_text(needed.available_bytes)} is available"
        return f"it needs {bytes_text(_total(needed))}, {limit}, and requests use {used}"


def _total(estimate: pyggml.MemoryEstimate) -> int:
    """Return the bytes that a model may take on all devices, with a prefix cache whose limit was given."""
    return estimate.total_bytes + (estimate.prefix_cache_bytes or 0)


def _fits_machine(needed: pyggml.MemoryEstimate, in_use: MemoryUse) -> bool:
    """Return True if all weights stay in memory. The system reports mapped weights as available, so they are added."""
    return all(
        device.total_bytes + sum(map(_mapped, _on(device.name, in_use))) <= (1 - _RESERVE) * device.available_bytes
        for device in needed.devices
    )


def _on(name: str, in_use: MemoryUse) -> list[pyggml.DeviceMemory]:
    """Return the loaded models' memory on one device."""
    return [device for each in in_use.values() for device in each.devices if device.name == name]


def _mapped(device: pyggml.DeviceMemory) -> int:
    """Return the bytes of mapped weights, which the system can drop and read again."""
    return device.weights_bytes - device.repacked_bytes if device.name == _MAIN else 0


def _resident(device: pyggml.DeviceMemory) -> int:
    """Return the bytes that stay allocated while the model is loaded."""
    return device.total_bytes - _mapped(device)
