"""``/v1/messages/batches``: Anthropic's batches of messages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from pyggml.server.http import errors
from pyggml.server.http.errors import RequestError
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.batches.file_store import StoredFile
from pyggml.server.protocols.batches.runner import WINDOW_S, Batch, BatchRow, RowResult, new_id
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.pages import page
from pyggml.server.protocols.timestamps import rfc3339

Json = dict[str, Any]

_KIND = "msgbatch_"
_MESSAGES = "/v1/messages"


class BatchRequest(Body):
    """A request of a batch, with the fields of ``/v1/messages``."""

    custom_id: Annotated[str, Field(min_length=1, max_length=64)]
    params: Json


class CreateMessageBatch(Body):
    """Requests to compute."""

    requests: Annotated[list[BatchRequest], Field(min_length=1, max_length=100_000)]


class MessageBatch(BaseModel):
    """A batch and its progress."""

    id: str
    type: Literal["message_batch"]
    processing_status: Literal["in_progress", "canceling", "ended"]
    request_counts: dict[str, int]
    created_at: str
    expires_at: str
    ended_at: str | None
    cancel_initiated_at: str | None
    archived_at: str | None
    results_url: str | None


class MessageBatchList(BaseModel):
    """Batches, the newest first."""

    data: list[MessageBatch]
    has_more: bool
    first_id: str | None
    last_id: str | None


class DeletedMessageBatch(BaseModel):
    """A batch that is deleted."""

    id: str
    type: Literal["message_batch_deleted"]


async def create(request: ServerRequest, body: CreateMessageBatch) -> Response:
    """Start to compute requests."""
    names = [each.custom_id for each in body.requests]
    if len({*names}) < len(names):
        raise errors.invalid("every request of a batch needs a custom_id of its own", "requests")
    if streamed := [each.custom_id for each in body.requests if each.params.get("stream")]:
        raise errors.invalid(f"batches cannot stream: leave out stream of {streamed[0]!r}", "requests")
    rows = [BatchRow(each.custom_id, _MESSAGES, each.params) for each in body.requests]
    batch = Batch(request.owner, rows, {}, new_id(_KIND))
    request.worker.batches.start(batch, request.http.app, request.http.headers, _encode)
    return JSONResponse(_to_dict(batch))


async def list_batches(request: ServerRequest) -> Response:
    """List the batches."""
    items = [_to_dict(each) for each in request.worker.batches.all(request.owner, _KIND)]
    return JSONResponse(page(items, request.http.query_params, "after_id"))


async def retrieve(request: ServerRequest) -> Response:
    """Return a batch and its progress."""
    return JSONResponse(_to_dict(_find(request)))


async def cancel(request: ServerRequest) -> Response:
    """Cancel a batch: running requests finish, the others are not computed."""
    batch = _find(request)
    batch.cancel()
    return JSONResponse(_to_dict(batch))


async def results(request: ServerRequest) -> Response:
    """Return the results of a batch that has ended, one JSON object per line."""
    batch = _find(request)
    if "results" not in batch.details:
        reason = batch.error or "it is still being computed"
        raise errors.invalid(f"the batch {batch.id} has no results: {reason}")
    file = request.worker.batches.files.find(batch.owner, batch.details["results"])
    return Response(file.content, media_type="application/x-jsonl")


async def delete(request: ServerRequest) -> Response:
    """Delete a batch that has ended, with its results."""
    batch = _find(request)
    if batch.ended is None:
        raise errors.invalid(f"the batch {batch.id} is still being computed: cancel it first")
    if "results" in batch.details:
        with contextlib.suppress(RequestError):  # they may have expired
            request.worker.batches.files.remove(batch.owner, batch.details["results"])
    request.worker.batches.remove(batch)
    return JSONResponse({"id": batch.id, "type": "message_batch_deleted"})


def _find(request: ServerRequest) -> Batch:
    return request.worker.batches.find(request.owner, request.http.path_params["id"], _KIND)


def _encode(batch: Batch) -> Mapping[str, StoredFile]:
    return {"results": StoredFile(f"{batch.id}.jsonl", "message_batch", "".join(_results(batch)).encode())}


def _results(batch: Batch) -> Iterator[str]:
    for row, result in zip(batch.rows, batch.results, strict=True):
        yield f"{json.dumps({'custom_id': row.custom_id, 'result': _result(result)})}\n"


def _result(result: RowResult | None) -> Json:
    if result is None:
        return {"type": "canceled"}
    return {"type": "succeeded", "message": result.body} if result.is_ok else {"type": "errored", "error": result.body}


def _to_dict(batch: Batch) -> Json:
    n_ok, n_failed = batch.counts["completed"], batch.counts["failed"]
    n_left = batch.counts["total"] - n_ok - n_failed
    has_ended = batch.ended is not None
    status = "ended" if has_ended else "in_progress" if batch.cancelled is None else "canceling"
    counts = {"succeeded": n_ok, "errored": n_failed, "expired": 0}
    counts |= {"canceled": n_left, "processing": 0} if has_ended else {"canceled": 0, "processing": n_left}
    url = f"/v1/messages/batches/{batch.id}/results"  # clients know the scheme and host, behind a proxy only they do
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": status,
        "request_counts": counts,
        "created_at": rfc3339(batch.created),
        "expires_at": rfc3339(batch.created + WINDOW_S),
        "ended_at": None if batch.ended is None else rfc3339(batch.ended),
        "cancel_initiated_at": None if batch.cancelled is None else rfc3339(batch.cancelled),
        "archived_at": None,
        "results_url": url if "results" in batch.details else None,
    }


ENDPOINTS = (
    Endpoint("POST", "/v1/messages/batches", create, MessageBatch),
    Endpoint("GET", "/v1/messages/batches", list_batches, MessageBatchList),
    Endpoint("GET", "/v1/messages/batches/{id}", retrieve, MessageBatch),
    Endpoint("POST", "/v1/messages/batches/{id}/cancel", cancel, MessageBatch),
    Endpoint("GET", "/v1/messages/batches/{id}/results", results, stream_type="application/x-jsonl"),
    Endpoint("DELETE", "/v1/messages/batches/{id}", delete, DeletedMessageBatch),
)
