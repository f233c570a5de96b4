"""``/api/embed``, and the older ``/api/embeddings``: vectors of texts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

import pyggml
from pyggml.server.http.large_responses import long_answer
from pyggml.server.http.request import Call
from pyggml.server.http.request_body import Body
from pyggml.server.protocols.embedding_vectors import Vectors, shortened
from pyggml.server.protocols.ollama.requests import KeepAlive


class Embed(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        input: one text or several. None at all loads the model.
        truncate: cut off the end of texts that are longer than the context.
        dimensions: keep the first numbers of each vector, scaled to length 1 again.
        keep_alive: ignored: models stay loaded until their memory is needed.
    """

    model: str
    input: str | list[str] = ""
    truncate: bool | None = None
    dimensions: Annotated[int, Field(ge=0)] | None = None
    keep_alive: KeepAlive = None


class Embeddings(BaseModel):
    """The vectors, of length 1. Durations are in nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class EmbedOne(Body):
    """A text to convert to a vector. An empty one loads the model."""

    model: str
    prompt: str = ""
    keep_alive: KeepAlive = None


class Embedding(BaseModel):
    """Its vector, as the model computes it."""

    embedding: list[float]


async def embed(call: Call, body: Embed) -> Response:
    """Converts texts to vectors of length 1."""
    began = time.monotonic_ns()
    llm = (await call.model(body.model)).llm
    loaded = time.monotonic_ns()
    texts = [body.input] if isinstance(body.input, str) else body.input
    token_ids = await call.aside(_encoded, llm, texts if body.input else [], body.truncate is not False)
    vectors = await call.beside(llm.aembed, token_ids, normalize=True) if token_ids else None
    others = {
        "model": body.model,
        "total_duration": time.monotonic_ns() - began,
        "load_duration": loaded - began,
        "prompt_eval_count": sum(map(len, token_ids)),
    }
    rows = iter(()) if vectors is None else _rows(vectors, body.dimensions)
    return await call.aside(long_answer, "embeddings", rows, **others)


async def embed_one(call: Call, body: EmbedOne) -> Response:
    """Converts a text to a vector."""
    llm = (await call.model(body.model)).llm
    vector = (await call.beside(llm.aembed, body.prompt)).tolist() if body.prompt else []
    return JSONResponse({"embedding": vector})


def _encoded(llm: pyggml.LLM, texts: list[str], truncates: bool) -> list[list[int]]:
    return [_cut(llm, llm.tokenize(text)) if truncates else llm.tokenize(text) for text in texts]


def _cut(llm: pyggml.LLM, token_ids: list[int]) -> list[int]:
    """The tokens of a text without those for which there is no room, but with those that end every text."""
    if len(token_ids) <= llm.n_ctx:
        return token_ids
    end = token_ids[llm.model.vocab.inside(token_ids).stop :]
    return token_ids[: llm.n_ctx - len(end)] + end


def _rows(vectors: Vectors, dimensions: int | None) -> Iterator[list[Any]]:
    width = vectors.shape[1]
    for row in shortened(vectors, min(dimensions or width, width)):
        yield [row.tolist()]
