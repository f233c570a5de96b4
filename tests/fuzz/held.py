"""Resources that a server holds: the same after a case as before."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pyggml import lib
from pyggml.server.worker import Worker

PATIENCE_S = 20.0
# The loop's pool of threads and sockets of its own grow as they are needed, up to a number.
SLACK_THREADS, SLACK_DESCRIPTORS = 40, 4


@dataclass(frozen=True)
class Held:
    """The resources held at one moment.

    Attributes:
        busy: calls and requests that are not over, which there must be none of.
        handles: native objects, of each kind.
        threads: of the process.
        descriptors: open files and sockets.
    """

    busy: int
    handles: dict[int, int]
    threads: int
    descriptors: int


def now(worker: Worker) -> Held:
    """Return the resources that a server holds now."""
    stats = [each.llm.stats() for each in worker.models.loaded]
    return Held(
        len(worker.running_requests) + sum(each.n_running + each.n_queued for each in stats),
        {kind: lib.pyg_live_handles(kind) for kind in range(lib.PYG_HANDLE_KINDS)},
        threading.active_count(),
        len(list(Path("/proc/self/fd").iterdir())),
    )


def why_not_back(found: Held, start: Held) -> str | None:
    """Describe the resources that were not released; None if there are none."""
    if found.busy:
        return f"{found.busy} calls or requests are not over"
    if left := {kind: n - start.handles[kind] for kind, n in found.handles.items() if n > start.handles[kind]}:
        return f"native handles are left: {left}"
    if found.threads > start.threads + SLACK_THREADS:
        return f"{found.threads - start.threads} more threads"
    if found.descriptors > start.descriptors + SLACK_DESCRIPTORS:
        return f"{found.descriptors - start.descriptors} more descriptors"
    return None


async def require_back(worker: Worker, start: Held) -> None:
    """Waits until a server holds what it held at the start: what clients left behind takes a moment to end."""
    end = time.monotonic() + PATIENCE_S
    while (why := why_not_back(now(worker), start)) is not None:
        assert time.monotonic() < end, why
        await asyncio.sleep(0.01)
        gc.collect()  # an exception and its frames hold each other


class Log(logging.Handler):
    """Has every line written, and keeps what those are about that say that the server failed.

    Attributes:
        errors: these.
    """

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Takes a line."""
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self.errors.append(error or AssertionError(text))

    def raise_first(self) -> None:
        """Raises what the server failed with, if it has."""
        if self.errors:
            raise self.errors[0]
