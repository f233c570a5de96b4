"""``/v1/batches``: OpenAI's batches, whose requests and responses are files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.batches.file_store import StoredFile
from pyggml.server.protocols.batches.runner import WINDOW_S, Batch, BatchRow, RowResult, new_id
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.pages import page

Json = dict[str, Any]

_KIND = "batch_"
_URLS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/rerank",
    "/v1/score",
)


class CreateBatch(Body):
    """A batch to compute.

    Attributes:
        input_file_id: the file of requests, one JSON object per line: "custom_id", "method", "url" and "body".
        endpoint: the path of all requests.
        completion_window: "24h"; the server starts at once, and gives up rows that it has been too busy for by then.
        metadata: returned unchanged.
    """

    input_file_id: str
    endpoint: Literal[_URLS]  # type: ignore[valid-type]
    completion_window: Literal["24h"] = "24h"
    metadata: Json | None = None


class BatchObject(BaseModel):
    """A batch and its progress."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["batch"]
    endpoint: str
    status: str
    input_file_id: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    request_counts: dict[str, int]


class BatchList(BaseModel):
    """Batches, the newest first."""

    object: Literal["list"]
    data: list[BatchObject]
    has_more: bool


async def create(request: ServerRequest, body: CreateBatch) -> Response:
    """Start to compute the requests in a file."""
    owner, batches = request.owner, request.worker.batches
    file = batches.files.find(owner, body.input_file_id)
    rows, problems = await request.run_in_thread(_rows, file.content, body.endpoint)
    details = {"endpoint": body.endpoint, "input_file_id": file.id, "metadata": body.metadata, "errors": problems}
    batch = Batch(owner, rows, details, new_id(_KIND))
    if problems:
        batch.rows, batch.error = (), "the input file is invalid"
    batches.start(batch, request.http.app, request.http.headers, _encode)
    return JSONResponse(_to_dict(batch))


async def list_batches(request: ServerRequest) -> Response:
    """List the batches."""
    batches = request.worker.batches.all(request.owner, _KIND)
    items = [_to_dict(batch) for batch in batches]
    return JSONResponse({"object": "list", **page(items, request.http.query_params, "after")})


async def retrieve(request: ServerRequest) -> Response:
    """Return a batch and its progress."""
    return JSONResponse(_to_dict(_find(request)))


async def cancel(request: ServerRequest) -> Response:
    """Cancel a batch: running requests finish, the others are not computed."""
    batch = _find(request)
    batch.cancel()
    return JSONResponse(_to_dict(batch))


def _find(request: ServerRequest) -> Batch:
    return request.worker.batches.find(request.owner, request.http.path_params["id"], _KIND)


def _rows(content: bytes, endpoint: str) -> tuple[Sequence[BatchRow], Json | None]:
    """Parse a file of requests, and return its rows, or OpenAI's list of errors."""
    rows: list[BatchRow] = []
    problems: list[Json] = []
    names: set[str] = set()
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        if len(rows) == _MAX_ROWS:
            message = f"the file has more than {_MAX_ROWS} requests: split it"
            problems.append({"code": "too_many_requests", "line": number, "message": message, "param": None})
            break
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            row, message = None, f"the line is not JSON: {error}"
        else:
            message = _problem(row, endpoint, names)
        if message:
            problems.append({"code": "invalid_line", "line": number, "message": message, "param": None})
        else:
            names.add(row["custom_id"])
            rows.append(BatchRow(row["custom_id"], endpoint, row["body"]))
    if not rows and not problems:
        problems.append({"code": "empty_file", "line": None, "message": "the file has no requests", "param": None})
    return rows, {"object": "list", "data": problems[:_MAX_PROBLEMS]} if problems else None


_MAX_PROBLEMS = 100
_MAX_ROWS = 50_000


def _problem(row: Any, endpoint: str, names: set[str]) -> str:
    if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
        return "the line must be an object with a custom_id that is a string"
    if row["custom_id"] in names:
        return f"custom_id {row['custom_id']!r:.100} is not unique"
    if row.get("method", "POST") != "POST" or row.get("url", endpoint) != endpoint:
        return f"the line must have the method POST and the url {endpoint}, as the batch"
    if not isinstance(row.get("body"), dict):
        return "body must be an object"
    return "batches cannot stream: leave out stream" if row["body"].get("stream") else ""


def _encode(batch: Batch) -> Mapping[str, StoredFile]:
    """Return the responses of a batch as files: those of successful requests, and the errors."""
    files = {}
    pairs = [(row, result) for row, result in zip(batch.rows, batch.results, strict=True) if result is not None]
    for field, is_ok in (("output_file_id", True), ("error_file_id", False)):
        lines = [_line(row, result) for row, result in pairs if result.is_ok is is_ok]
        if lines:
            name = f"{batch.id}_{field.removesuffix('_file_id')}.jsonl"
            files[field] = StoredFile(name, "batch_output", "".join(lines).encode())
    return files


def _line(row: BatchRow, result: RowResult) -> str:
    response = {"status_code": result.status, "request_id": result.request_id, "body": result.body}
    line = {"id": new_id("batch_req_"), "custom_id": row.custom_id, "response": response, "error": None}
    return f"{json.dumps(line)}\n"


def _to_dict(batch: Batch) -> Json:
    ended = None if batch.ended is None else int(batch.ended)
    status = "in_progress" if batch.cancelled is None else "cancelling"
    if ended is not None:
        status = "completed" if batch.cancelled is None else "cancelled"
    if batch.error:
        status = "failed"
    errors_found = batch.details["errors"]
    if batch.error and errors_found is None:
        problem = {"code": "failed", "line": None, "message": batch.error, "param": None}
        errors_found = {"object": "list", "data": [problem]}
    return {
        "id": batch.id,
        "object": "batch",
        "endpoint": batch.details["endpoint"],
        "errors": errors_found,
        "input_file_id": batch.details["input_file_id"],
        "completion_window": "24h",
        "status": status,
        "output_file_id": batch.details.get("output_file_id"),
        "error_file_id": batch.details.get("error_file_id"),
        "created_at": int(batch.created),
        "in_progress_at": int(batch.created),
        "expires_at": int(batch.created) + WINDOW_S,
        "finalizing_at": ended,
        "completed_at": ended if status == "completed" else None,
        "failed_at": ended if status == "failed" else None,
        "expired_at": None,
        "cancelling_at": None if batch.cancelled is None else int(batch.cancelled),
        "cancelled_at": ended if status == "cancelled" else None,
        "request_counts": batch.counts,
        "metadata": batch.details["metadata"],
    }


ENDPOINTS = (
    Endpoint("POST", "/v1/batches", create, BatchObject),
    Endpoint("GET", "/v1/batches", list_batches, BatchList),
    Endpoint("GET", "/v1/batches/{id}", retrieve, BatchObject),
    Endpoint("POST", "/v1/batches/{id}/cancel", cancel, BatchObject),
)
