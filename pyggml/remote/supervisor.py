"""The server that lends this machine's devices: it listens, asks for the key, and starts a worker for each client."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyggml.child_process import child_command
from pyggml.errors import DeviceError
from pyggml.remote.address import Address
from pyggml.remote.exported_devices import Loan
from pyggml.remote.handshake import HandshakeError, Wire, WrongKeyError, prove_as_server, refuse

if TYPE_CHECKING:
    from typing_extensions import Self

_HANDSHAKE_S = 10.0
_MAX_STRANGERS = 16  # connections that have not proved anything yet
_BACKLOG = 64

# The wait before a wrong key is refused, which grows with each one that comes from the same address.
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 8.0
_MAX_REMEMBERED = 1024


def _say_nothing(line: str) -> None:
    del line


class Supervisor:
    """Listens as long as it is open. A context manager.

    Attributes:
        address: where it listens.
    """

    def __init__(self, address: Address, loan: Loan, key: bytes, say: Callable[[str], None] = _say_nothing) -> None:
        """Starts to listen; :meth:`run` answers.

        Args:
            address: where to listen; port 0 takes any that is free.
            loan: what to lend.
            key: what clients have to know.
            say: called with a line about each event, from any thread.

        Raises:
            DeviceError: there is no such device.
            OSError: the address cannot be listened on.
        """
        self._loan, self._key, self._say = loan, key, say
        self._strangers = threading.BoundedSemaphore(_MAX_STRANGERS)
        self._failures = _Failures()
        self._lock = threading.Lock()
        self._workers: set[subprocess.Popen[bytes]] = set()
        self._closing = threading.Event()
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
        self.address = Address(*self._socket.getsockname()[:2])

    def run(self) -> None:
        """Answers clients until :meth:`close`, which another thread or a signal's handler may call."""
        while not self._closing.is_set():
            try:
                connection, peer = self._socket.accept()
            except OSError:
                if not self._closing.wait(0.1):  # perhaps there are too many open files
                    continue
                return
            client = Address(*peer[:2])
            if not self._strangers.acquire(blocking=False):
                connection.close()
                self._say(f"{client}: turned away, {_MAX_STRANGERS} others are being asked for the key")
                continue
            threading.Thread(target=self._answer, args=(connection, client), daemon=True).start()

    def close(self) -> None:
        """Stops to listen and ends the workers. Can be called repeatedly."""
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

    def _answer(self, connection: socket.socket, client: Address) -> None:
        with connection:
            try:
                prove_as_server(Wire(connection, _HANDSHAKE_S), self._key)
            except WrongKeyError as error:
                self._say(f"{client}: refused: {error}")
                self._closing.wait(self._failures.wait_after(client.host))
                refuse(connection)
                return
            except HandshakeError as error:
                self._say(f"{client}: refused: {error}")
                return
            finally:
                self._strangers.release()
            self._failures.forget(client.host)
            worker = self._start(connection, client)
        if worker is not None:
            self._see_off(worker, client)

    def _start(self, connection: socket.socket, client: Address) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closing.is_set():
                return None
            task = {**asdict(self._loan), "socket": connection.fileno(), "client": str(client)}
            try:
                # In a session of its own, a terminal's Ctrl-C does not reach it before us.
                worker = subprocess.Popen(
                    _command(task),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    pass_fds=[connection.fileno()],
                    start_new_session=True,
                )
            except OSError as error:  # too many processes or files, or no memory
                self._say(f"{client}: no worker could be started: {error}")
                return None
            self._workers.add(worker)
        self._say(f"{client}: connected, worker {worker.pid}")
        return worker

    def _see_off(self, worker: subprocess.Popen[bytes], client: Address) -> None:
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
            how = "" if status == 0 else f", worker ended with {status}: {last}"
            self._say(f"{client}: gone{how}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Failures:
    """How many wrong keys came from each address lately."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, int] = OrderedDict()

    def wait_after(self, host: str) -> float:
        """Notes one more; returns how long to wait before answering, in seconds."""
        with self._lock:
            count = self._counts.pop(host, 0)
            self._counts[host] = count + 1
            if len(self._counts) > _MAX_REMEMBERED:
                self._counts.popitem(last=False)
        return min(_FIRST_WAIT_S * 2.0 ** min(count, 10), _LONGEST_WAIT_S)

    def forget(self, host: str) -> None:
        with self._lock:
            self._counts.pop(host, None)


def lent_by(loan: Loan) -> list[dict[str, Any]]:
    """The devices that a worker would lend, as :class:`pyggml.Device` has them.

    A process of its own asks: a GPU's driver keeps some of its memory for whoever has asked, and the supervisor lives
    long.

    Raises:
        DeviceError: there is no such device.
    """
    task = {**asdict(loan), "socket": None, "client": ""}
    answer = subprocess.run(_command(task), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise DeviceError(answer.stderr.strip().rpartition("\n")[2] or f"a worker ended with {answer.returncode}")
    devices: list[dict[str, Any]] = json.loads(answer.stdout)
    return devices


def _command(task: dict[str, Any]) -> list[str]:
    return child_command("pyggml.remote.worker", json.dumps(task))
