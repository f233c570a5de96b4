"""Running batches: each row is a request to the server's own application, without a network."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message

from pyggml.server.http.errors import Failure, RequestError
from pyggml.server.observability.logs import logger
from pyggml.server.protocols.batches.file_store import FileStore, StoredFile

Json = dict[str, Any]

#: Seconds within which batches end; rows that the server has been too busy for by then fail.
WINDOW_S = 24 * 3600

# Rows of one batch that are computed at the same time, if the limit for all batches allows it.
_N_CONCURRENT = 8
# Batches that may run or wait at the same time, all and those of one API key, and finished ones that are remembered.
_MAX_RUNNING, _MAX_RUNNING_OF_KEY, _MAX_REMEMBERED = 64, 16, 1000
# Statuses of a server that is busy, and of one that cannot compute the row now, which may be for good.
_BUSY, _UNAVAILABLE = 429, 503
_MAX_UNAVAILABLE = 10
_MAX_WAIT_S = 60.0
# Bytes of a result, at least.
_RESULT_BYTES = 256


@dataclass(frozen=True)
class BatchRow:
    """A request of a batch."""

    custom_id: str
    url: str
    body: Json


@dataclass(frozen=True)
class RowResult:
    """The response to a row.

    Attributes:
        status: its status.
        request_id: ID of the request.
        body: its body.
        retry_after_s: seconds after which the server expects to be able to compute the row; None: unknown.
    """

    status: int
    request_id: str
    body: Json
    retry_after_s: float | None = None

    @property
    def is_ok(self) -> bool:
        """True if the request succeeded."""
        return self.status < 400


@dataclass(eq=False)
class Batch:
    """Requests that the server computes between others.

    Attributes:
        owner: whose batch it is.
        rows: the requests; empty once the results are stored.
        details: fields of the protocol.
        id: its ID.
        results: the response to each request so far; None: not computed.
        created: time of its creation, in seconds since 1970.
        cancelled: time of the request to cancel it; None: there was none.
        ended: time at which its results were stored; None: it is running.
        error: why it failed; "": it did not.
        counts: numbers of all rows, of those completed, and of those failed.
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

    def start(self) -> None:
        """Begin without results."""
        self.results = [None] * len(self.rows)
        self.counts = {"total": len(self.rows), "completed": 0, "failed": 0}

    def cancel(self) -> None:
        """Compute no further rows."""
        if self.ended is None and self.cancelled is None:
            self.cancelled = time.time()

    def record(self, index: int, result: RowResult) -> None:
        """Add the response to a row, and count it."""
        self.results[index] = result
        self.counts["completed" if result.is_ok else "failed"] += 1


#: Encodes the results of a batch as files, by the fields of ``Batch.details`` that hold their IDs. Runs in a thread.
Encode = Callable[[Batch], Mapping[str, StoredFile]]


class Batches:
    """The batches of all API keys, and their files. Used in the event loop only."""

    def __init__(self, max_bytes: int, n_concurrent: int) -> None:
        """Keep at most ``max_bytes`` of files, and compute at most ``n_concurrent`` rows at the same time."""
        self.files = FileStore(max_bytes)
        self._n_concurrent = n_concurrent
        self._slots = asyncio.Semaphore(n_concurrent)
        self._batches: dict[tuple[str, str], Batch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, batch: Batch, app: ASGIApp, headers: Headers, encode: Encode) -> None:
        """Start to compute a batch.

        Args:
            batch: the batch.
            app: the server's application.
            headers: those of the request that created it, with its API key.
            encode: encodes the results.

        Raises:
            RequestError: 413, there is no space for the results; 429, too many batches are running.
        """
        running = [owner for (owner, _), each in self._batches.items() if each.ended is None]
        if len(running) >= _MAX_RUNNING or (batch.owner and running.count(batch.owner) >= _MAX_RUNNING_OF_KEY):
            message = f"{len(running)} batches are running or waiting: wait until one of them has ended"
            raise RequestError(Failure(429, "overloaded", message, "too_many_batches", retry_after_s=60))
        self.files.require_space(batch.owner, _RESULT_BYTES * len(batch.rows))
        ended = [name for name, each in self._batches.items() if each.ended is not None]
        for name in ended[: max(0, len(ended) - _MAX_REMEMBERED)]:
            del self._batches[name]
        if not self._tasks:  # the event loop may be another one than before
            self._slots = asyncio.Semaphore(self._n_concurrent)
        batch.start()
        self._batches[batch.owner, batch.id] = batch
        key = [(name, value) for name, value in headers.raw if name in (b"authorization", b"x-api-key")]
        task = asyncio.get_running_loop().create_task(self._run(batch, app, key, encode))
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
        """Drop a batch that has ended."""
        del self._batches[batch.owner, batch.id]

    async def aclose(self) -> None:
        """Stop all batches."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, batch: Batch, app: ASGIApp, key: list[tuple[bytes, bytes]], encode: Encode) -> None:
        """Compute all rows, and store the results."""
        try:
            await self._compute_all(batch, app, key)
            for name, file in (await asyncio.to_thread(encode, batch)).items():
                self.files.add(batch.owner, file)
                batch.details[name] = file.id
        except RequestError as error:
            batch.error = str(error)
        except Exception as error:
            logger.exception("batch %s failed", batch.id)
            batch.error = f"the server failed: {type(error).__name__}"
        finally:
            batch.rows, batch.results = (), []
            batch.ended = time.time()

    async def _compute_all(self, batch: Batch, app: ASGIApp, key: list[tuple[bytes, bytes]]) -> None:
        rows = iter(enumerate(batch.rows))
        n_tasks = min(_N_CONCURRENT, len(batch.rows))
        tasks = [asyncio.ensure_future(self._compute(batch, rows, app, key)) for _ in range(n_tasks)]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _compute(
        self, batch: Batch, rows: Iterator[tuple[int, BatchRow]], app: ASGIApp, key: list[tuple[bytes, bytes]]
    ) -> None:
        """Compute rows until there are no more."""
        for index, row in rows:
            wait_s, n_unavailable = 0.1, 0
            while batch.cancelled is None:
                async with self._slots:
                    result = await _respond(app, row, key)
                n_unavailable += result.status == _UNAVAILABLE
                is_late = time.time() > batch.created + WINDOW_S
                if result.status not in (_BUSY, _UNAVAILABLE) or n_unavailable >= _MAX_UNAVAILABLE or is_late:
                    batch.record(index, result)
                    break
                await asyncio.sleep(min(_MAX_WAIT_S, max(wait_s, result.retry_after_s or 0.0)))
                wait_s *= 2


def new_id(kind: str) -> str:
    """Return a new ID."""
    return f"{kind}{uuid.uuid4().hex}"


async def _respond(app: ASGIApp, row: BatchRow, key: list[tuple[bytes, bytes]]) -> RowResult:
    """Return the application's response to a row; a failure of the application is a 500."""
    try:
        return await _post(app, row, key)
    except Exception:
        logger.exception("a row of a batch failed")
        error = {"type": "server_error", "message": "the server failed: its log has the reason", "code": None}
        return RowResult(500, "", {"type": "error", "error": error})


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
    retry_after = response.get("retry-after", "")
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    parsed = await asyncio.to_thread(json.loads, content)
    return RowResult(start["status"], response.get("x-request-id", ""), parsed, retry_after_s)
