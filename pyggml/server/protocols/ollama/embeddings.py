"""``/api/embed``, and the older ``/api/embeddings``: convert texts to vectors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from pyggml.server.http.large_responses import large_json_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.embedding_vectors import NO_TRUNCATION, encode
from pyggml.server.protocols.ollama.keep_alive import keep_loaded
from pyggml.server.protocols.ollama.requests import KeepAlive


class EmbedRequest(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        input: one text or several; none: only load the model.
        truncate: cut off the end of texts that are longer than the context.
        dimensions: return only the first dimensions, scaled to length 1 again.
        keep_alive: time for which the model stays loaded while no request uses it; 0: unload it after this request.
    """

    terms: ClassVar[Mapping[str, str]] = {"texts[": "input[", "pass truncate=True": "leave out truncate"}

    model: str
    input: str | list[str] = ""
    truncate: bool | None = None
    dimensions: Annotated[int, Field(ge=0)] | None = None
    keep_alive: KeepAlive = None


class EmbedResponse(BaseModel):
    """The vectors, of length 1. Durations are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbeddingsRequest(Body):
    """A text to convert to a vector; an empty one only loads the model."""

    terms: ClassVar[Mapping[str, str]] = {"texts[0]": "prompt", **NO_TRUNCATION}

    model: str
    prompt: str = ""
    keep_alive: KeepAlive = None


class EmbeddingsResponse(BaseModel):
    """The vector, as the model computes it."""

    embedding: list[float]


async def embed(request: ServerRequest, body: EmbedRequest) -> Response:
    """Convert texts to vectors of length 1."""
    started = time.monotonic_ns()
    llm = (await request.lease_model(body.model, takes_adapter=True)).llm
    keep_loaded(request, body.model, body.keep_alive)
    loaded = time.monotonic_ns()
    texts = [body.input] if isinstance(body.input, str) else body.input
    options: dict[str, Any] = {
        "normalize": True,
        "truncate": body.truncate is not False,
        "dimensions": min(body.dimensions or llm.n_dimensions, llm.n_dimensions),
        "adapter": request.adapter,
    }
    embedding = await request.run_for_if_long("texts", llm.embedding_request, texts if body.input else [], **options)
    request.count_tokens(embedding.n_tokens)
    vectors = await request.await_outside_engine_queue(embedding.arun)
    others = {
        "model": body.model,
        "total_duration": time.monotonic_ns() - started,
        "load_duration": loaded - started,
        "prompt_eval_count": embedding.n_tokens,
    }
    rows = ([encode(row, as_base64=False)] for row in vectors)
    return await request.run_for_if_long("responses", large_json_response, "embeddings", rows, **others)


async def embed_one(request: ServerRequest, body: EmbeddingsRequest) -> Response:
    """Convert a text to a vector."""
    llm = (await request.lease_model(body.model, takes_adapter=True)).llm
    keep_loaded(request, body.model, body.keep_alive)
    if not body.prompt:
        return JSONResponse({"embedding": []})
    embedding = await request.run_for_if_long("texts", llm.embedding_request, [body.prompt], adapter=request.adapter)
    request.count_tokens(embedding.n_tokens)
    (vector,) = await request.await_outside_engine_queue(embedding.arun)
    return JSONResponse({"embedding": vector.tolist()})
