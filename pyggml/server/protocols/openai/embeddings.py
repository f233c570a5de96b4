"""``/v1/embeddings``: converts texts to vectors."""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import BaseModel
from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml.server.http.large_responses import long_answer
from pyggml.server.http.request import Call
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT, Served
from pyggml.server.protocols.embedding_vectors import Vectors, shortened
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import Texts, as_list
from pyggml.server.protocols.openai.errors import invalid
from pyggml.server.protocols.openai.generation_request import ModelName


class Embed(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        input: one text or several, each a string or token ids.
        encoding_format: "float", or "base64" of little-endian 32-bit floats.
        dimensions: keep the first numbers of each vector, scaled to length 1 again: for models that were trained so.
    """

    model: ModelName = DEFAULT
    input: Texts
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, BodyField(ge=1)] | None = None


class Embedding(BaseModel):
    """A text's vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class PromptUsage(BaseModel):
    """Numbers of tokens where none are generated."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    """The vectors."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: PromptUsage


async def embed(call: Call, body: Embed) -> Response:
    """Converts texts to vectors of length 1."""
    served = await call.model(body.model)
    width = served.llm.model.n_embd_out
    if body.dimensions is not None and body.dimensions > width:
        raise invalid("dimensions", f"it is {body.dimensions}, and the model's vectors have {width} numbers")
    token_ids = await call.aside(_token_ids, served, as_list(body.input))
    vectors = await call.beside(served.llm.aembed, token_ids, normalize=True)
    return await call.aside(_answer, served, body, vectors, sum(map(len, token_ids)))


def _token_ids(served: Served, texts: list[str | list[int]]) -> list[list[int]]:
    require_fitting(served.llm.n_ctx, texts)
    return [served.llm.tokenizer.encode(each) if isinstance(each, str) else each for each in texts]


def _answer(served: Served, body: Embed, vectors: Vectors, n_tokens: int) -> Response:
    rows = shortened(vectors, body.dimensions)
    data = (
        [{"object": "embedding", "index": index, "embedding": _encoded(row, body.encoding_format)}]
        for index, row in enumerate(rows)
    )
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return long_answer("data", data, object="list", model=served.name, usage=usage)


def _encoded(vector: Vectors, form: str | None) -> str | list[float]:
    if form == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers


EMBEDDINGS = (Endpoint("POST", "/v1/embeddings", embed, "Convert texts to vectors", Embed, Embeddings),)
