"""``/v1/embeddings``: convert texts to vectors, with the fields that Jina, Voyage and vLLM add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator
from pydantic import Field as BodyField
from starlette.responses import Response

from pyggml.server.http.large_responses import large_json_response
from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.embedding_vectors import TERMS, TYPES, Vectors, encode, numbers_of, purpose_options
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import Texts, as_list
from pyggml.server.protocols.openai.errors import invalid


def _plain_texts(texts: Any) -> Any:
    """Replace objects with a text, as Jina's clients send them, by the text."""
    if isinstance(texts, list) and any(isinstance(each, dict) for each in texts):
        return [each["text"] if isinstance(each, dict) and set(each) == {"text"} else each for each in texts]
    return texts


class EmbeddingsRequest(Body):
    """Texts to convert to vectors.

    Attributes:
        model: name of the model.
        input: one text or several, each a string, token IDs or an object with a text.
        encoding_format: "float", or "base64" of little-endian numbers.
        dimensions: return only the first dimensions, scaled to length 1 again: for models trained for it.
        input_type: what the texts are for: "query", "document", or the name of a prompt of the model.
        prompt_name: name of a prompt of the model to put before each text.
        embedding_type: type of the numbers: "float"; "int8", each vector scaled so that its largest number is 127;
            "uint8", the same plus 128; "ubinary", a bit for each dimension, eight in a number; "binary", the same minus
            128; "base64": floats in base64.
        truncate: cut off texts that are too long, instead of an error.
        truncate_prompt_tokens: cut off texts after this many tokens; -1: after as many as the model reads.
        normalize: scale vectors to length 1.
    """

    terms: ClassVar[Mapping[str, str]] = {"texts[": "input[", **TERMS}

    model: str = DEFAULT
    input: Annotated[Texts, BeforeValidator(_plain_texts)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, BodyField(ge=1)] | None = BodyField(
        None, validation_alias=AliasChoices("dimensions", "output_dimension")
    )
    input_type: str | None = BodyField(None, validation_alias=AliasChoices("input_type", "task"))
    prompt_name: str | None = None
    embedding_type: Literal["float", "base64", "int8", "uint8", "binary", "ubinary"] | None = BodyField(
        None, validation_alias=AliasChoices("embedding_type", "output_dtype")
    )
    truncate: bool | None = BodyField(None, validation_alias=AliasChoices("truncate", "truncation"))
    truncate_prompt_tokens: Annotated[int, BodyField(ge=-1)] | None = None
    normalize: bool | None = BodyField(None, validation_alias=AliasChoices("normalize", "normalized"))


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
    model = await request.lease_model(body.model, takes_adapter=True)
    width = model.llm.n_dimensions
    if body.dimensions is not None and body.dimensions > width:
        raise invalid("dimensions", f"it is {body.dimensions}, and the model's vectors have {width} numbers")
    texts = as_list(body.input)
    require_fitting(model.llm.n_ctx, texts)
    options = {**_options(model, body), "adapter": request.adapter}
    embedding = await request.run_for_if_long("texts", model.llm.embedding_request, texts, **options)
    request.count_tokens(embedding.n_tokens)
    vectors = await request.await_outside_engine_queue(embedding.arun)
    usage = {"prompt_tokens": embedding.n_tokens, "total_tokens": embedding.n_tokens}
    return await request.run_for_if_long("responses", _response, model, body, vectors, usage)


def _options(model: LoadedModel, body: EmbeddingsRequest) -> dict[str, Any]:
    dtype = TYPES[body.embedding_type or "float"]
    n_tokens = body.truncate_prompt_tokens
    return {
        "dimensions": body.dimensions,
        "dtype": dtype,
        "normalize": (body.normalize is not False) if dtype == "float32" else None,
        "truncate": bool(body.truncate) or n_tokens is not None,
        "max_tokens": None if n_tokens in (None, -1) else n_tokens,
        **purpose_options(model.llm, body.input_type, body.prompt_name),
    }


def _response(model: LoadedModel, body: EmbeddingsRequest, vectors: Vectors, usage: dict[str, int]) -> Response:
    type_name, as_base64 = body.embedding_type or "float", "base64" in (body.encoding_format, body.embedding_type)
    encoded = (encode(numbers_of(row, type_name), as_base64) for row in vectors)
    data = ([{"object": "embedding", "index": index, "embedding": each}] for index, each in enumerate(encoded))
    return large_json_response("data", data, object="list", model=model.name, usage=usage)


# The second path is for clients whose base URL has no /v1.
EMBEDDINGS = tuple(Endpoint("POST", path, embed, EmbeddingsResponse) for path in ("/v1/embeddings", "/embeddings"))
