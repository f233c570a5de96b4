"""Servers that lend this machine's CPU over the loopback, started by the tests that use them."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyggml.remote import Address, ExportedDevices, Supervisor

KEY = b"the key of these tests, 32 bytes"


class Server:
    """A server in a thread of this process. Its workers are processes of their own.

    Attributes:
        address: where it listens.
        lines: what it has said.
    """

    def __init__(self, supervisor: Supervisor, lines: list[str]) -> None:
        self._supervisor = supervisor
        self.address = str(supervisor.address)
        self.lines = lines

    @property
    def workers(self) -> list[int]:
        """The process ids of all workers so far, the latest at the end."""
        return [int(line.rpartition(" ")[2]) for line in self.lines if re.search(r"worker \d+$", line)]

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the latest worker."""
        os.kill(self.workers[-1], number)

    def said(self, pattern: str) -> bool:
        """Return True if a matching line has been printed, or is within a few seconds."""
        return until(lambda: any(re.search(pattern, line) for line in self.lines))

    def close(self) -> None:
        self._supervisor.close()


def until(is_so: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Waits for a condition; returns whether it came true."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


@contextmanager
def server(loan: ExportedDevices | None = None) -> Iterator[Server]:
    """A running server that lends the CPU, with one compute thread."""
    lines: list[str] = []
    lent = loan or ExportedDevices(("cpu",), n_threads=1)
    with Supervisor(Address("127.0.0.1", 0), lent, KEY, lines.append) as supervisor:
        thread = threading.Thread(target=supervisor.run)
        thread.start()
        try:
            yield Server(supervisor, lines)
        finally:
            supervisor.close()
            thread.join()


def is_alive(pid: int) -> bool:
    """Return True if a process still runs (a zombie does not)."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
