"""Whether a model has room beside those that are loaded."""

from __future__ import annotations

from collections.abc import Mapping

import pyggml
from pyggml.units import bytes_text

# Left free beside several models: memory that they have, but that the system has not had to give them yet.
_SPARE = 0.1
# The name of main memory among devices.
_MAIN = "CPU"

#: What the loaded models take, by name.
Held = Mapping[str, pyggml.MemoryEstimate]


class Room:
    """The limits on what is loaded together. What a model takes is known from the engine's own plan.

    A model that is alone may use the machine as :func:`pyggml.load` lets it: mapped weights may exceed the memory.
    """

    def __init__(self, max_memory: int | None, max_loaded: int | None) -> None:
        """Sets the limits.

        Args:
            max_memory: bytes that models may take together, on all devices; None: what the machine has.
            max_loaded: number of models; None: any.
        """
        self._max_memory = max_memory
        self._max_loaded = max_loaded

    def has(self, needed: pyggml.MemoryEstimate, held: Held) -> bool:
        """Whether a model has room now."""
        return (
            (self._max_loaded is None or len(held) < self._max_loaded)
            and (self._max_memory is None or needed.total_bytes + _total(held) <= self._max_memory)
            and (not held or _machine_has(needed, held))
        )

    def require_possible(self, name: str, needed: pyggml.MemoryEstimate, held: Held) -> None:
        """Refuses a model that would have no room if it were alone.

        Raises:
            OutOfMemoryError: names required and available bytes.
        """
        total = needed.total_bytes
        if self._max_memory is not None and total > self._max_memory:
            raise pyggml.OutOfMemoryError(
                f"{name} needs {bytes_text(total)}, but models may take {bytes_text(self._max_memory)} together: raise "
                "max_memory, or load it with a smaller n_ctx",
                total,
                self._max_memory,
            )
        for device in needed.devices:
            lasting, most = _lasting(device), device.available_bytes + sum(map(_lasting, _on(device.name, held)))
            if lasting > most:
                raise pyggml.OutOfMemoryError(
                    f"{name} needs {bytes_text(lasting)} besides its mapped weights, but without other models "
                    f"{device.name} has {bytes_text(most)}; {needed.advice}",
                    lasting,
                    most,
                )

    def shortage(self, needed: pyggml.MemoryEstimate, in_use: Held) -> str:
        """Why a model has no room, for people."""
        used = " and ".join(f"{name!r} ({bytes_text(each.total_bytes)})" for name, each in in_use.items())
        limits = [
            "" if self._max_memory is None else f"models may take {bytes_text(self._max_memory)} together",
            "" if self._max_loaded is None else f"at most {self._max_loaded} may be loaded at a time",
        ]
        limit = " and ".join(filter(None, limits)) or f"{bytes_text(needed.available_bytes)} is available"
        return f"it needs {bytes_text(needed.total_bytes)}, {limit}, and {used} in use"


def _machine_has(needed: pyggml.MemoryEstimate, held: Held) -> bool:
    """Whether all weights stay in memory. The available memory counts what is mapped as free, so that is added."""
    return all(
        device.total_bytes + sum(map(_mapped, _on(device.name, held))) <= (1 - _SPARE) * device.available_bytes
        for device in needed.devices
    )


def _total(held: Held) -> int:
    return sum(each.total_bytes for each in held.values())


def _on(name: str, held: Held) -> list[pyggml.DeviceMemory]:
    """What the loaded models take on one device."""
    return [device for each in held.values() for device in each.devices if device.name == name]


def _mapped(device: pyggml.DeviceMemory) -> int:
    """Bytes that the system can drop and read again."""
    return device.weights_bytes - device.repacked_bytes if device.name == _MAIN else 0


def _lasting(device: pyggml.DeviceMemory) -> int:
    """Bytes that stay taken for as long as the model is loaded."""
    return device.total_bytes - _mapped(device)
