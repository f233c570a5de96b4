"""The CPU as another process's device: memory that is not ours, behind a backend that cannot be interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyggml
from pyggml._native.placement import Placement, resolve_placement
from pyggml.options import PlacementOptions
from pyggml.remote import ExportedDevices, connect
from support.servers.remote_servers import KEY, Server, server


@dataclass(frozen=True)
class LentCPU:
    """A connected device.

    Attributes:
        placement: of models that are all on it.
        server: that lends it, with one worker for this and each model that it loads.
        key_file: for ``rpc_key=``.
    """

    placement: Placement
    server: Server
    key_file: Path

    def load(self, source: Path | None = None, **options: Any) -> pyggml.LLM:
        """A model, or the shipped one, all of it on the device."""
        return pyggml.load(source, rpc=self.server.address, rpc_key=self.key_file, **options)


@contextmanager
def lent_cpu(max_bytes: int = 1 << 40) -> Iterator[LentCPU]:
    """Lends the CPU, with one thread, to this process.

    Args:
        max_bytes: memory that each client may allocate on it.
    """
    with (
        TemporaryDirectory() as directory,
        server(ExportedDevices(("cpu",), max_bytes=max_bytes, n_threads=1)) as lending,
        connect(lending.address, KEY) as host,
    ):
        key_file = Path(directory, "key")
        key_file.write_bytes(KEY)
        yield LentCPU(resolve_placement(PlacementOptions(), host.devices), lending, key_file)
