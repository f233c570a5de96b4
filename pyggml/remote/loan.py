"""What a server lends."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml.backend import Device, devices, find_device


@dataclass(frozen=True)
class Loan:
    """What a server lends.

    Attributes:
        devices: names as for :func:`pyggml.load`; (): all GPUs, or the CPU if there is none.
        max_bytes: memory for each client on each device.
        n_threads: compute threads for devices that compute on the CPU; 0: one per core.
    """

    devices: tuple[str, ...] = ()
    max_bytes: int = 2**63
    n_threads: int = 0

    def found(self) -> list[Device]:
        """The devices.

        Raises:
            DeviceError: there is no such device.
        """
        if self.devices:
            return [find_device(name) for name in self.devices]
        return [device for device in devices() if device.type in ("gpu", "igpu")] or [find_device("cpu")]
