"""``/v2/embed`` and ``/v1/embed``: convert texts to vectors, in Cohere's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.embedding_vectors import TYPES, encode, numbers_of, purpose_options
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import MAX_TEXTS
from pyggml.server.protocols.openai.errors import invalid

_Type = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]


class EmbedRequest(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        texts: the texts.
        input_type: what they are for, such as "search_query" and "search_document".
        embedding_types: types of the vectors, as in /v1/embeddings.
        output_dimension: return only the first dimensions, scaled to length 1 again.
        truncate: "END": cut off texts that are too long; "NONE": refuse them.
    """

    terms: ClassVar[Mapping[str, str]] = {"pass truncate=True": 'send "truncate": "END"'}

    model: str = DEFAULT
    texts: Annotated[list[str], BodyField(min_length=1, max_length=MAX_TEXTS)]
    input_type: str | None = None
    embedding_types: Annotated[list[_Type], BodyField(min_length=1)] | None = None
    output_dimension: Annotated[int, BodyField(ge=1)] | None = None
    truncate: Literal["NONE", "START", "END"] | None = None


class EmbedResponse(BaseModel):
    """The vectors by type; in version 1, without ``embedding_types``, only the floats."""

    id: str
    response_type: str
    embeddings: dict[str, list[list[float] | str]] | list[list[float]]
    texts: list[str]
    meta: dict[str, Any]


async def embed_v2(request: ServerRequest, body: EmbedRequest) -> Response:
    """Convert texts to vectors of length 1, in Cohere's format."""
    return await _embed(request, body, body.embedding_types or ["float"], "2")


async def embed_v1(request: ServerRequest, body: EmbedRequest) -> Response:
    """Convert texts to vectors of length 1, in the first version of Cohere's format."""
    return await _embed(request, body, body.embedding_types, "1")


async def _embed(request: ServerRequest, body: EmbedRequest, types: list[_Type] | None, version: str) -> Response:
    model = await request.lease_model(body.model)
    if body.truncate == "START":
        raise invalid("truncate", "the beginning of texts cannot be cut off: send END or NONE")
    require_fitting(model.llm.n_ctx, body.texts)
    purpose = purpose_options(model.llm, body.input_type, None)
    options = {"normalize": True, "dimensions": body.output_dimension, "truncate": body.truncate != "NONE", **purpose}
    embedding = await request.run_for_if_long("texts", model.llm.embedding_request, body.texts, **options)
    request.count_tokens(embedding.n_tokens)
    await request.await_outside_engine_queue(embedding.arun)

    def respond() -> Response:
        def of_type(name: str) -> list[Any]:
            vectors = embedding.result(TYPES[name])
            return [encode(numbers_of(row, name), name == "base64") for row in vectors]

        found = of_type("float") if types is None else {name: of_type(name) for name in types}
        units = {"input_tokens": embedding.n_tokens}
        return JSONResponse(
            {
                "id": request.id,
                "response_type": "embeddings_floats" if types is None else "embeddings_by_type",
                "embeddings": found,
                "texts": body.texts,
                "meta": {"api_version": {"version": version}, "billed_units": units},
            }
        )

    return await request.run_for_if_long("responses", respond)


COHERE_EMBED = (
    Endpoint("POST", "/v2/embed", embed_v2, EmbedResponse),
    Endpoint("POST", "/v1/embed", embed_v1, EmbedResponse),
)
