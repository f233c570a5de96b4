"""Models split over hosts: each replica has hosts of its own, which Ray reserves as one placement group."""

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

#: How a placement group lies on nodes: no two parts of a model on one.
STRATEGY = "STRICT_SPREAD"


@dataclass(frozen=True)
class Hosts:
    """Hosts that lend their devices to a replica, as ``pyggml rpc-serve`` does.

    Attributes:
        n: how many.
        resources: what Ray reserves on each, such as {"CPU": 8} or {"CPU": 1, "GPU": 2}.
        devices: what each lends, by names as for :func:`pyggml.load`. (): the GPUs that it has reserved or, without
            any, the CPU, with as many threads as CPUs are reserved.
    """

    n: int
    resources: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1})
    devices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Checks what was given."""
        if not isinstance(self.n, int) or self.n < 1:
            raise pyggml.InvalidParameterError(f"Hosts(n) is how many hosts lend devices, at least 1, not {self.n!r}")
        if not any(self.resources.values()):
            raise pyggml.InvalidParameterError('Hosts(resources) reserves nothing: {"CPU": 1} is the least there is')

    @property
    def bundles(self) -> list[dict[str, float]]:
        """What a placement group has for them, after the replica's own part."""
        return [dict(self.resources) for _ in range(self.n)]


class Lent:
    """Devices of hosts, as a replica has them.

    Attributes:
        load: options of :func:`pyggml.load` that use them.
    """

    def __init__(self, lenders: list[Any], addresses: list[str], key_file: Path) -> None:
        self._lenders = lenders
        self.load: dict[str, Any] = {"rpc": addresses, "rpc_key": key_file}

    async def check(self) -> None:
        """Requires that all hosts are there.

        Raises:
            HostLostError: one is lost.
        """
        try:
            await asyncio.gather(*(lender.address.remote() for lender in self._lenders))
        except ray.exceptions.RayError as error:
            raise pyggml.HostLostError(f"a host that lends its devices is lost: {error}") from error


@contextlib.asynccontextmanager
async def lent_by(hosts: Hosts) -> AsyncIterator[Lent]:
    """Has the other bundles of this replica's placement group lend their devices to it, and to nobody else.

    Raises:
        RayError: one of them cannot.
    """
    key = secrets.token_hex(32)
    group = ray.util.get_current_placement_group()
    n_cpus, n_gpus = hosts.resources.get("CPU", 0), hosts.resources.get("GPU", 0)
    loan = ExportedDevices(hosts.devices, n_threads=int(n_cpus))
    lenders = [
        ray.remote(_Lender)
        .options(
            num_cpus=n_cpus,
            num_gpus=n_gpus,
            resources={name: n for name, n in hosts.resources.items() if name not in ("CPU", "GPU", "memory")},
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=1 + index),
        )
        .remote(key, loan)
        for index in range(hosts.n)
    ]
    with TemporaryDirectory() as folder:  # which only this user can read
        key_file = Path(folder) / "rpc-key"
        key_file.write_text(key)
        try:
            addresses = await asyncio.gather(*(lender.address.remote() for lender in lenders))
            yield Lent(lenders, addresses, key_file)
        finally:
            for lender in lenders:
                ray.kill(lender)


class _Lender:
    """The actor on a host. Ray ends it with the replica, and the processes that it starts end with it."""

    def __init__(self, key: str, loan: ExportedDevices) -> None:
        here = Address(ray.util.get_node_ip_address(), 0)
        self._supervisor = Supervisor(here, loan, key.encode())
        threading.Thread(target=self._supervisor.run, name="pyggml-rpc", daemon=True).start()

    def address(self) -> str:
        """Where it listens."""
        return str(self._supervisor.address)
