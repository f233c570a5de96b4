"""The CPU as another process's device: memory that is not ours, behind a backend that cannot be interrupted."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyggml._ffi import ffi, lib
from pyggml.errors import check

_SERVE = """
import sys
from pyggml._ffi import ffi, lib
socket, max_bytes = int(sys.argv[1]), int(sys.argv[2])
sys.exit(lib.pyg_remote_serve(socket, b"the test", [0], 1, 1, max_bytes, ffi.new("pyg_error *")))
"""


@dataclass(frozen=True)
class LentCPU:
    """A connected device.

    Attributes:
        name: for ``device=``.
        process: that computes.
    """

    name: str
    process: subprocess.Popen[bytes]


@contextmanager
def lent_cpu(max_bytes: int = 1 << 40) -> Iterator[LentCPU]:
    """Lends the CPU, with one thread, to this process.

    Args:
        max_bytes: memory that may be allocated on it.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        served, _ = listener.accept()
    with served:
        command = [sys.executable, "-c", _SERVE, str(served.fileno()), str(max_bytes)]
        process = subprocess.Popen(command, pass_fds=[served.fileno()])
    try:
        err, out = ffi.new("pyg_error *"), ffi.new("pyg_remote **")
        check(lib.pyg_remote_connect(client.detach(), b"loopback", 30.0, out, err), err)
        try:
            device = ffi.new("pyg_device *")
            check(lib.pyg_remote_device_get(out[0], 0, device, err), err)
            yield LentCPU(ffi.string(device.name).decode(), process)
        finally:
            lib.pyg_remote_free(out[0])
    finally:
        process.wait(10)
