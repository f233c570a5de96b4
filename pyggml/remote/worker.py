"""The process that computes for one client, started by the supervisor.

Upstream's server ends the process on requests that make no sense, and what a client has allocated is given back for
certain only with the process. Hence one for each.
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
from pyggml.remote.exported_devices import Loan
from pyggml.remote.handshake import About, HandshakeError, Wire

_GREETING_S = 10.0


def main() -> int:
    """Describes what would be lent, or serves the client on an inherited socket."""
    task = json.loads(sys.argv[1])
    loan = Loan(tuple(task["devices"]), task["max_bytes"], task["n_threads"])
    try:
        if task["socket"] is None:
            print(json.dumps([asdict(device) for device in loan.found()]))
        else:
            _end_with_the_supervisor()
            _serve(socket.socket(fileno=task["socket"]), task["client"], loan)
    except (errors.InferError, HandshakeError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(connection: socket.socket, client: str, loan: Loan) -> None:
    lent = loan.found()
    wire = Wire(connection, _GREETING_S)
    theirs = wire.receive_about()
    mine = About.this(tuple((device.name, device.description) for device in lent))
    wire.send_about(mine)
    mine.require_same_engine(theirs)
    connection.settimeout(None)
    order = [device.name for device in devices()]
    indices = ffi.new("int32_t[]", [order.index(device.name) for device in lent])
    c_calls.call(
        lib.pyg_remote_serve,
        connection.detach(),
        client.encode(),
        indices,
        len(lent),
        loan.n_threads,
        loan.max_bytes,
    )


def _end_with_the_supervisor() -> None:
    """Ends this process when the supervisor ends, however it does: then the pipe to it closes."""

    def watch() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=watch, name="pyggml-supervisor", daemon=True).start()
