"""Models split over hosts: each replica has its own hosts, which Ray reserves as one placement group."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ray
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

import pyggml
from pyggml.remote import Address, ExportedDevices, Supervisor

#: Placement strategy: each part of a model on a node of its own.
STRATEGY = "STRICT_SPREAD"


@dataclass(frozen=True)
class Hosts:
    """Hosts that export their devices to a replica, as ``pyggml rpc-serve`` does.

    Attributes:
        n: number of hosts.
        resources: resources that Ray reserves on each, such as {"CPU": 8} or {"CPU": 1, "GPU": 2}.
        devices: names of the devices that each exports, as for :func:`pyggml.load`. (): the reserved GPUs or, without
            any, the CPU, with one thread per reserved CPU.
    """

    n: int
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the values."""
        if not isinstance(self.n, int) or self.n < 1:
            raise pyggml.InvalidParameterError(f"Hosts(n): expected a number of hosts of at least 1, not {self.n!r}")
        if not any(self.resources.values()):
            raise pyggml.InvalidParameterError('Hosts(resources) reserves nothing: use at least {"CPU": 1}')

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The hosts' bundles of a placement group, which follow the replica's own bundle."""
        return [dict(self.resources) for _ in range(self.n)]


class RemoteDevices:
    """Devices of other hosts, which a replica uses over RPC with the load options :attr:`load`."""

    def __init__(self, exporters: list[Any], addresses: list[str], key_file: Path) -> None:
        self._exporters = exporters
        self.load: dict[str, Any] = {"rpc": addresses, "rpc_key": key_file}

    async def check(self) -> None:
        """Check that all hosts respond, or raise HostLostError."""
        try:
            await asyncio.gather(*(exporter.address.remote() for exporter in self._exporters))
        except ray.exceptions.RayError as error:
            raise pyggml.HostLostError(f"a host that exports its devices is lost: {error}") from error


@contextlib.asynccontextmanager
async def export_devices(hosts: Hosts) -> AsyncIterator[RemoteDevices]:
    """Export the devices of the other bundles of this replica's placement group to this replica alone."""
    key = secrets.token_hex(32)
    group = ray.util.get_current_placement_group()
    n_cpus, n_gpus = hosts.resources.get("CPU", 0), hosts.resources.get("GPU", 0)
    exported = ExportedDevices(hosts.devices, n_threads=int(n_cpus))
    exporters = [
        ray.remote(_DeviceExporter)
        .options(
            num_cpus=n_cpus,
            num_gpus=n_gpus,
            resources={name: n for name, n in hosts.resources.items() if name not in ("CPU", "GPU", "memory")},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1 + index),
        )
        .remote(key, exported)
        for index in range(hosts.n)
    ]
    with TemporaryDirectory() as folder:  # readable only by this user
        key_file = Path(folder) / "rpc-key"
        key_file.write_text(key)
        try:
            addresses = await asyncio.gather(*(exporter.address.remote() for exporter in exporters))
            yield RemoteDevices(exporters, addresses, key_file)
        finally:
            for exporter in exporters:
                ray.kill(exporter)


class _DeviceExporter:
    """The RPC server's actor on a host. Ray stops it with the replica, and its child processes exit with it."""

    def __init__(self, key: str, exported: ExportedDevices) -> None:
        here = Address(ray.util.get_node_ip_address(), 0)
        self._supervisor = Supervisor(here, exported, key.encode())
        threading.Thread(target=self._supervisor.run, name="pyggml-rpc", daemon=True).start()

    def address(self) -> str:
        """Return the address that it listens on."""
        return str(self._supervisor.address)
