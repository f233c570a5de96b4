"""``/v1/embeddings``: convert texts to vectors."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel
from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml.server.http.large_responses import large_json_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.embedding_vectors import NO_TRUNCATION, Vectors, truncate_dimensions
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import Texts, as_list
from pyggml.server.protocols.openai.errors import invalid


class EmbeddingsRequest(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        input: one text or several, each a string or token IDs.
        encoding_format: "float", or "base64" of little-endian 32-bit floats.
        dimensions: return only the first dimensions, scaled to length 1 again: for models trained for it.
    """

    terms: ClassVar[Mapping[str, str]] = {"texts[": "input[", **NO_TRUNCATION}

    model: str = DEFAULT
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, BodyField(ge=1)] | None = None


class Embedding(BaseModel):
    """A text's vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class PromptUsage(BaseModel):
    """Numbers of tokens of requests that generate none."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsResponse(BaseModel):
    """The vectors."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


async def embed(request: ServerRequest, body: EmbeddingsRequest) -> Response:
    """Convert texts to vectors of length 1."""
    model = await request.lease_model(body.model)
    width = model.llm.model.n_embd_out
    if body.dimensions is not None and body.dimensions > width:
        raise invalid("dimensions", f"it is {body.dimensions}, and the model's vectors have {width} numbers")
    token_ids = await request.run_in_thread(_token_ids, model, as_list(body.input))
    vectors = await request.await_outside_engine_queue(model.llm.aembed, token_ids, normalize=True)
    return await request.run_in_thread(_response, model, body, vectors, sum(map(len, token_ids)))


def _token_ids(model: LoadedModel, texts: list[str | list[int]]) -> list[list[int]]:
    require_fitting(model.llm.n_ctx, texts)
    return [model.llm.tokenizer.encode(each) if isinstance(each, str) else each for each in texts]


def _response(model: LoadedModel, body: EmbeddingsRequest, vectors: Vectors, n_tokens: int) -> Response:
    rows = truncate_dimensions(vectors, body.dimensions)
    data = (
        [{"object": "embedding", "index": index, "embedding": _encode(row, body.encoding_format)}]
        for index, row in enumerate(rows)
    )
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return large_json_response("data", data, object="list", model=model.name, usage=usage)


def _encode(vector: Vectors, encoding: str | None) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers


EMBEDDINGS = (Endpoint("POST", "/v1/embeddings", embed, EmbeddingsResponse),)
