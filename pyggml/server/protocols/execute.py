"""The worker's own protocol: a prompt in, events out; and whether the worker is well."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import BaseModel
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml import Chunk, Completion
from pyggml.server.http.errors import Failure
from pyggml.server.http.generation import Generation
from pyggml.server.http.request import Call
from pyggml.server.http.request_body import Body
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import EVENTS, Endpoint, Event, Protocol
from pyggml.server.protocols.sampling_fields import Sampling, given

Stop = str | list[str]


class Execute(Sampling):
    """A text to continue.

    Attributes:
        job_id: names the job for ``/cancel``; a new one if it is left out.
        model: name of the model.
        prompt: the text, or token ids.
        max_tokens: maximum number of tokens to generate; None: what the context has room for.
        stop: strings that end the generation.
        grammar: GBNF grammar that the output must match.
        json_schema: JSON schema that the output must match.
        timeout_s: seconds after which the generation ends with what it has.
    """

    job_id: Annotated[str, BodyField(min_length=1, max_length=200)] | None = None
    model: str = DEFAULT
    prompt: str | list[int]
    max_tokens: Annotated[int, BodyField(ge=0)] | None = None
    stop: Stop | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    timeout_s: Annotated[float, BodyField(ge=0)] | None = None


class Cancel(Body):
    """A job to end."""

    job_id: str


class Cancelled(BaseModel):
    """Whether there was such a job."""

    job_id: str
    cancelled: bool


class Health(BaseModel):
    """That the server is alive, and what it serves."""

    status: str
    model: str | None
    architecture: str | None
    model_size_bytes: int | None


class Ready(BaseModel):
    """Whether it takes requests."""

    ready: bool
    reason: str | None = None


async def execute(call: Call, body: Execute) -> Response:
    """Continues a text, in events."""
    job_id = call.named(body.job_id or call.id)  # who waits for a model can be cancelled, too
    served = await call.model(body.model)
    sampling = given(
        body,
        max_tokens=body.max_tokens,
        stop=body.stop,
        grammar=body.grammar,
        json_schema=body.json_schema,
        timeout_s=body.timeout_s,
    )
    generation = await call.complete(served, [body.prompt], sampling)
    return call.events(_events(job_id, generation))


async def cancel(call: Call, body: Cancel) -> Response:
    """Ends a job soon; its stream then ends as cancelled."""
    found = call.worker.jobs.cancel(body.job_id)
    return JSONResponse({"job_id": body.job_id, "cancelled": found}, 200 if found else 404)


async def health(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says that the server is alive, and which model is the first."""
    first = await call.worker.models.info()
    about = {
        "status": "ok",
        "model": first.name,
        "architecture": first.architecture,
        "model_size_bytes": first.size_bytes,
    }
    return JSONResponse(about)


async def ready(call: Call, body: None) -> Response:  # noqa: ARG001
    """Says whether the first model is loaded and its queue has room; 503 if not."""
    reason = call.worker.why_not_ready()
    return JSONResponse({"ready": reason is None, "reason": reason}, 200 if reason is None else 503)


async def _events(job_id: str, generation: Generation[Chunk, Completion]) -> AsyncIterator[Event]:
    yield _event("started", job_id=job_id, model=generation.served.name)
    index = 0
    async for _, chunk in generation:
        for position, token_id in enumerate(chunk.token_ids):
            # Several tokens may make one character: the text comes with the last of them.
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
        Endpoint("POST", "/execute", execute, "Continue a text", Execute, None, EVENTS),
        Endpoint("POST", "/cancel", cancel, "End a job", Cancel, Cancelled, also=(404,)),
        Endpoint("GET", "/health", health, "Whether the server is alive", None, Health, is_open=True, is_probe=True),
        Endpoint(
            "GET",
            "/ready",
            ready,
            "Whether the server takes requests",
            None,
            Ready,
            also=(503,),
            is_open=True,
            is_probe=True,
        ),
    ),
    _error_body,
)
