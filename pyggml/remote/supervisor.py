"""The server that exports this machine's devices: it authenticates clients and starts a worker for each."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pyggml._core.platforms import require_inherited_sockets
from pyggml.child_process import child_command
from pyggml.errors import DeviceError
from pyggml.remote.address import Address
from pyggml.remote.exported_devices import ExportedDevices
from pyggml.remote.handshake import HandshakeError, Wire, WrongKeyError, authenticate_as_server, reject

_HANDSHAKE_S = 10.0
_MAX_UNAUTHENTICATED = 16  # connections
_BACKLOG = 64

# Delay before a wrong key is rejected. It doubles with each wrong key from the same address.
_MIN_DELAY_S = 0.25
_MAX_DELAY_S = 8.0
_MAX_FAILED_HOSTS = 1024


class Supervisor(contextlib.AbstractContextManager["Supervisor"]):
    """Exports devices until it is closed. A context manager. It listens on ``address``."""

    def __init__(
        self,
        address: Address,
        exported: ExportedDevices,
        key: bytes,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Listen; :meth:`run` accepts clients.

        Args:
            address: address to listen on; port 0: any free port.
            exported: the devices to export.
            key: the key that clients need.
            report: called with a line about each event, from any thread.

        Raises:
            OSError: it cannot listen on the address.
            InvalidParameterError: the system is Windows.
        """
        require_inherited_sockets("pyggml rpc-serve")
        self._exported, self._key, self._report = exported, key, report
        self._unauthenticated = threading.BoundedSemaphore(_MAX_UNAUTHENTICATED)
        self._failures = _FailedAttempts()
        self._lock = threading.Lock()
        self._workers: set[subprocess.Popen[bytes]] = set()
        self._closing = threading.Event()
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
        self.address = Address(*self._socket.getsockname()[:2])

    def run(self) -> None:
        """Accept clients until :meth:`close`, which another thread or a signal handler may call."""
        while not self._closing.is_set():
            try:
                connection, peer = self._socket.accept()
            except OSError:
                if not self._closing.wait(0.1):  # perhaps there are too many open files
                    continue
                return
            client = Address(*peer[:2])
            if not self._unauthenticated.acquire(blocking=False):
                connection.close()
                self._report(f"{client}: rejected, {_MAX_UNAUTHENTICATED} others are being authenticated")
                continue
            threading.Thread(target=self._serve, args=(connection, client), daemon=True).start()

    def close(self) -> None:
        """Stop listening and end the workers. Safe to call again."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()
        with self._lock:
            workers = [*self._workers]
        for worker in workers:
            worker.kill()  # it has nothing to save
        for worker in workers:
            worker.wait()

    def _serve(self, connection: socket.socket, client: Address) -> None:
        with connection:
            try:
                authenticate_as_server(Wire(connection, _HANDSHAKE_S), self._key)
            except WrongKeyError as error:
                self._report(f"{client}: rejected: {error}")
                self._closing.wait(self._failures.add(client.host))
                reject(connection)
                return
            except HandshakeError as error:
                self._report(f"{client}: rejected: {error}")
                return
            finally:
                self._unauthenticated.release()
            self._failures.clear(client.host)
            worker = self._start_worker(connection, client)
        if worker is not None:
            self._wait_for(worker, client)

    def _start_worker(self, connection: socket.socket, client: Address) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closing.is_set():
                return None
            task = {**asdict(self._exported), "socket": connection.fileno(), "client": str(client)}
            try:
                # In a session of its own, so that a terminal's Ctrl-C reaches only the supervisor.
                worker = subprocess.Popen(
                    _command(task),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[connection.fileno()],
                    start_new_session=True,
                )
            except OSError as error:  # too many processes or files, or out of memory
                self._report(f"{client}: no worker could be started: {error}")
                return None
            self._workers.add(worker)
        self._report(f"{client}: connected, worker {worker.pid}")
        return worker

    def _wait_for(self, worker: subprocess.Popen[bytes], client: Address) -> None:
        assert worker.stdin is not None
        assert worker.stderr is not None
        last = ""
        with worker.stdin, worker.stderr:
            for line in worker.stderr:
                last = line.decode(errors="replace").strip() or last
        status = worker.wait()
        with self._lock:
            self._workers.discard(worker)
        if not self._closing.is_set():
            reason = "" if status == 0 else f", worker ended with {status}: {last}"
            self._report(f"{client}: disconnected{reason}")

    def __exit__(self, *_: object) -> None:
        self.close()


class _FailedAttempts:
    """Number of recent wrong keys from each host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, int] = OrderedDict()

    def add(self, host: str) -> float:
        """Count a wrong key; return the delay before it is rejected, in seconds."""
        with self._lock:
            count = self._counts.pop(host, 0)
            self._counts[host] = count + 1
            if len(self._counts) > _MAX_FAILED_HOSTS:
                self._counts.popitem(last=False)
        return min(_MIN_DELAY_S * 2.0 ** min(count, 10), _MAX_DELAY_S)

    def clear(self, host: str) -> None:
        with self._lock:
            self._counts.pop(host, None)


def list_exported_devices(exported: ExportedDevices) -> list[dict[str, Any]]:
    """List the devices that a worker would export, with the fields of :class:`pyggml.Device`.

    A separate process queries the devices, because a GPU's driver reserves memory for every process that does.

    Args:
        exported: the devices.

    Raises:
        DeviceError: there is no such device.
    """
    task = {**asdict(exported), "socket": None, "client": ""}
    done = subprocess.run(_command(task), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DeviceError(done.stderr.strip().rpartition("\n")[2] or f"a worker ended with {done.returncode}")
    devices: list[dict[str, Any]] = json.loads(done.stdout)
    return devices


def _command(task: dict[str, Any]) -> list[str]:
    return child_command("pyggml.remote.worker", json.dumps(task))
