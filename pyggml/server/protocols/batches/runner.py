"""Running batches: each row is a request to the server's own application, without a network."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.protocols.batches.file_store import FileStore

Json = dict[str, Any]

# Rows of one batch that are computed at the same time; requests of clients share the model fairly with them.
_N_CONCURRENT = 8
# Batches that may run or wait at the same time, and finished ones that are remembered.
_MAX_RUNNING, _MAX_REMEMBERED = 64, 1000
# Statuses of a server that is busy: the row is tried again.
_BUSY = (429, 503)
_MAX_WAIT_S = 5.0

#: Seconds within which batches end, as clients see it; the server has no deadline.
WINDOW_S = 24 * 3600


@dataclass(frozen=True)
class BatchRow:
    """A request of a batch."""

    custom_id: str
    url: str
    body: Json


@dataclass(frozen=True)
class RowResult:
    """The response to a row: its status, the ID of its request, and its body."""

    status: int
    request_id: str
    body: Json

    @property
    def is_ok(self) -> bool:
        """True if the request succeeded."""
        return self.status < 400


@dataclass(eq=False)
class Batch:
    """Requests that the server computes between others.

    Attributes:
        owner: whose batch it is.
        rows: the requests.
        details: fields of the protocol.
        id: its ID.
        results: the response to each request so far; None: not computed.
        created: time of its creation, in seconds since 1970.
        cancelled: time of the request to cancel it; None: there was none.
        ended: time at which the last request ended; None: it is running.
        error: why it failed; "": it did not.
    """

    owner: str
    rows: Sequence[BatchRow]
    details: Json
    id: str
    results: list[RowResult | None] = field(default_factory=list)
    created: float = field(default_factory=time.time)
    cancelled: float | None = None
    ended: float | None = None
    error: str = ""
    counts: dict[str, int] = field(default_factory=dict)

    def cancel(self) -> None:
        """Compute no further rows."""
        if self.ended is None and self.cancelled is None:
            self.cancelled = time.time()

    def count(self) -> None:
        """Count the rows by their state."""
        n_ok = sum(result is not None and result.is_ok for result in self.results)
        n_failed = sum(result is not None and not result.is_ok for result in self.results)
        self.counts = {"total": len(self.rows), "completed": n_ok, "failed": n_failed}


class Batches:
    """The batches of all API keys, and their files. Used in the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        """Keep at most ``max_bytes`` of files."""
        self.files = FileStore(max_bytes)
        self._batches: dict[tuple[str, str], Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, batch: Batch, app: ASGIApp, headers: Headers, finish: Callable[[Batch], None] | None = None
    ) -> None:
        """Start to compute a batch; ``finish`` is called at its end.

        Args:
            batch: the batch.
            app: the server's application.
            headers: those of the request that created it, with its API key.
            finish: stores the results.

        Raises:
            RequestError: 429, too many batches are running.
        """
        if len(self._tasks) >= _MAX_RUNNING:
            message = f"{_MAX_RUNNING} batches are running or waiting: wait until one of them has ended"
            raise RequestError(Failure(429, "overloaded", message, "too_many_batches", retry_after_s=60))
        ended = [name for name, each in self._batches.items() if each.ended is not None]
        for name in ended[: max(0, len(ended) - _MAX_REMEMBERED)]:
            del self._batches[name]
        batch.results = [None] * len(batch.rows)
        batch.count()
        self._batches[batch.owner, batch.id] = batch
        key = [(name, value) for name, value in headers.raw if name in (b"authorization", b"x-api-key")]
        task = asyncio.get_running_loop().create_task(_run(batch, app, key, finish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def find(self, owner: str, id: str, kind: str) -> Batch:
        """Return a batch of an owner, whose ID begins with ``kind``.

        Raises:
            RequestError: 404, there is none.
        """
        batch = self._batches.get((owner, id))
        if batch is None or not id.startswith(kind):
            raise RequestError(Failure(404, "not_found", f"there is no batch {id!r:.200}", "batch_not_found"))
        return batch

    def all(self, owner: str, kind: str) -> list[Batch]:
        """Return an owner's batches whose ID begins with ``kind``, the newest first."""
        found = ((name, batch) for name, batch in reversed(self._batches.items()) if name[0] == owner)
        return [batch for (_, id), batch in found if id.startswith(kind)]

    def remove(self, batch: Batch) -> None:
        """Forget a batch that has ended."""
        del self._batches[batch.owner, batch.id]

    async def aclose(self) -> None:
        """Stop all batches."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def new_id(kind: str) -> str:
    """Return a new ID."""
    return f"{kind}{uuid.uuid4().hex}"


async def _run(
    batch: Batch, app: ASGIApp, key: list[tuple[bytes, bytes]], finish: Callable[[Batch], None] | None
) -> None:
    rows = iter(enumerate(batch.rows))
    try:
        await asyncio.gather(*(_compute(batch, rows, app, key) for _ in range(min(_N_CONCURRENT, len(batch.rows)))))
    finally:
        batch.count()
        batch.ended = time.time()
        try:
            if finish is not None:
                finish(batch)
        except RequestError as error:
            batch.error = str(error)


async def _compute(
    batch: Batch, rows: Iterator[tuple[int, BatchRow]], app: ASGIApp, key: list[tuple[bytes, bytes]]
) -> None:
    for index, row in rows:
        wait_s = 0.1
        while batch.cancelled is None:
            result = await _post(app, row, key)
            if result.status not in _BUSY:
                batch.results[index] = result
                batch.count()
                break
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)


async def _post(app: ASGIApp, row: BatchRow, key: list[tuple[bytes, bytes]]) -> RowResult:
    """Post a row to the application."""
    body = await asyncio.to_thread(lambda: json.dumps({**row.body, "stream": False}).encode())
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), *key]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": row.url,
        "raw_path": row.url.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [*headers, (b"content-length", str(len(body)).encode())],
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
    }
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if parts:
            return parts.pop()
        return await asyncio.Future()  # the client never disconnects

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    start, *chunks = sent
    content = b"".join(chunk.get("body", b"") for chunk in chunks)
    response = Headers(raw=start["headers"])
    return RowResult(start["status"], response.get("x-request-id", ""), await asyncio.to_thread(json.loads, content))
