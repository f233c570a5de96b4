"""The process that computes for one client, started by the supervisor.

Upstream's server aborts on invalid requests, and only the end of the process reliably frees the memory of its client.
Hence one process per client.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from dataclasses import asdict

from pyggml import errors
from pyggml._core import c_calls
from pyggml._core.ffi import ffi, lib
from pyggml._native.backend import devices
from pyggml.remote.exported_devices import ExportedDevices
from pyggml.remote.handshake import HandshakeError, PeerInfo, Wire

_HANDSHAKE_S = 10.0


def main() -> int:
    """List the devices, or serve the client on an inherited socket."""
    task = json.loads(sys.argv[1])
    exported = ExportedDevices(tuple(task["devices"]), task["max_bytes"], task["n_threads"])
    try:
        if task["socket"] is None:
            print(json.dumps([asdict(device) for device in exported.find()]))
        else:
            _exit_with_supervisor()
            _serve(socket.socket(fileno=task["socket"]), task["client"], exported)
    except (errors.InferError, HandshakeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(connection: socket.socket, client: str, exported: ExportedDevices) -> None:
    served = exported.find()
    wire = Wire(connection, _HANDSHAKE_S)
    theirs = wire.receive_info()
    mine = PeerInfo.this(tuple((device.name, device.description) for device in served))
    wire.send_info(mine)
    mine.require_same_engine(theirs)
    connection.settimeout(None)
    order = [device.name for device in devices()]
    indices = ffi.new("int32_t[]", [order.index(device.name) for device in served])
    c_calls.call(
        lib.pyg_remote_serve,
        connection.detach(),
        client.encode(),
        indices,
        len(served),
        exported.n_threads,
        exported.max_bytes,
    )


def _exit_with_supervisor() -> None:
    """Exit when the supervisor does, even if it crashes: the pipe to it then closes."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, name="pyggml-supervisor", daemon=True).start()
