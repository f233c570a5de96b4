"""The devices that a server exports."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml._native.backend import Device, automatic_gpus, devices, find_device, inability_of, local_gpus
from pyggml.errors import DeviceError


@dataclass(frozen=True)
class ExportedDevices:
    """The devices that a server exports.

    Attributes:
        devices: names as for :func:`pyggml.load`; (): the GPUs of "auto", or the CPU if there are none.
        max_bytes: memory limit of each client on each device.
        n_threads: number of compute threads of CPU devices; 0: one per core.
    """

    devices: tuple[str, ...] = ()
    max_bytes: int = 2**63
    n_threads: int = 0

    def find(self) -> list[Device]:
        """Find the devices; raise DeviceError if one does not exist, or this build has no code for it."""
        if not self.devices:
            return automatic_gpus(local_gpus(devices())) or [find_device("cpu")]
        found = [find_device(name) for name in self.devices]
        for reason in filter(None, map(inability_of, found)):
            raise DeviceError(reason)
        return found
