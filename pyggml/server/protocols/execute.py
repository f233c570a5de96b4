"""The server's own API: ``/execute``, ``/cancel``, ``/health``, ``/ready`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml import Chunk, Completion
from pyggml.server.http.errors import Failure
from pyggml.server.http.generation import Generation, submit_prompts
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.http.sse import EVENTS, Event
from pyggml.server.http.streaming import stream_events
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import Endpoint, Protocol
from pyggml.server.protocols.sampling_fields import Sampling, sampling_overrides


class Execute(Sampling):
    """A text to continue.

    Attributes:
        job_id: ID of the job for ``/cancel``; None: a new one.
        model: name of the model.
        prompt: the text, or token IDs.
    """

    job_id: Annotated[str, BodyField(min_length=1, max_length=200)] | None = None
    model: str = DEFAULT
    prompt: str | list[int]


class Cancel(Body):
    """A job to cancel."""

    job_id: str


class Cancelled(BaseModel):
    """Result of ``/cancel``; ``cancelled`` is false if there was no such job."""

    job_id: str
    cancelled: bool


class Health(BaseModel):
    """Status of the server and of its first model."""

    status: str
    model: str | None
    architecture: str | None
    model_size_bytes: int | None


class Ready(BaseModel):
    """Readiness of the server, and why it is not ready."""

    ready: bool
    reason: str | None = None


async def execute(request: ServerRequest, body: Execute) -> Response:
    """Continue a text, as a stream of events."""
    job_id = body.job_id or request.id
    request.register_job(job_id)  # before the lease, so that a job can be cancelled while its model is loaded
    model = await request.lease_model(body.model, generates=True)
    generation = await submit_prompts(request, model, [body.prompt], sampling_overrides(body))
    return stream_events(request, _events(job_id, generation))


async def cancel(request: ServerRequest, body: Cancel) -> Response:
    """Cancel a job of the same API key; its stream then ends with the reason "cancelled"."""
    job = request.job(body.job_id)
    if job is not None:
        job.cancel()
    return JSONResponse({"job_id": body.job_id, "cancelled": job is not None}, 404 if job is None else 200)


async def health(request: ServerRequest) -> Response:
    """Report that the server is running, and its first model."""
    first = await request.worker.models.info()
    return JSONResponse(
        {
            "status": "ok",
            "model": first.name,
            "architecture": first.architecture,
            "model_size_bytes": first.size_bytes,
        }
    )


async def ready(request: ServerRequest) -> Response:
    """Report readiness: 503 if the first model is not loaded or its queue is full."""
    reason = request.worker.not_ready_reason()
    return JSONResponse({"ready": reason is None, "reason": reason}, 200 if reason is None else 503)


async def metrics(request: ServerRequest) -> Response:
    """Return all metrics, in the format of Prometheus that the client prefers."""
    accept = request.http.headers.get("accept", "")
    text, content_type = await request.run_for("responses", request.worker.metrics.exposition, accept)
    return Response(text, headers={"Content-Type": content_type})


async def _events(job_id: str, generation: Generation[Chunk, Completion]) -> AsyncIterator[Event]:
    yield _event("started", job_id=job_id, model=generation.model.name)
    index = 0
    async for _, chunk in generation:
        for position, token_id in enumerate(chunk.token_ids):
            # Several tokens may form one character: the text comes with the last one.
            text = chunk.text if position == len(chunk.token_ids) - 1 else ""
            yield _event("token", text=text, id=token_id, index=index)
            index += 1
        if chunk.text and not chunk.token_ids:
            yield _event("token", text=chunk.text, id=None, index=None)
    done = generation.completions[0]
    yield _event(
        "end",
        job_id=job_id,
        reason=done.finish_reason,
        stop_reason=done.stop_reason,
        prompt_tokens=done.prompt_tokens,
        cached_tokens=done.cached_tokens,
        generated_tokens=len(done.token_ids),
        timings=done.timings.to_dict(),
    )


def _event(name: str, **data: Any) -> Event:
    return Event.of(data, name)


def _error_body(failure: Failure) -> dict[str, Any]:
    error: dict[str, Any] = {"status": failure.status, "code": failure.code or failure.kind, "message": failure.message}
    if failure.problems:
        error["fields"] = [{"field": each.field, "message": each.message} for each in failure.problems]
    return {"error": error}


EXECUTE = Protocol(
    "execute",
    (
        Endpoint("POST", "/execute", execute, stream_type=EVENTS),
        Endpoint("POST", "/cancel", cancel, Cancelled, other_statuses=(404,), is_uncounted=True),
        Endpoint("GET", "/health", health, Health, is_open=True, is_probe=True),
        Endpoint("GET", "/ready", ready, Ready, other_statuses=(503,), is_open=True, is_probe=True),
    ),
    _error_body,
)

METRICS = Protocol(
    "metrics", (Endpoint("GET", "/metrics", metrics, stream_type="text/plain", is_probe=True),), _error_body
)
