"""``/v1/rerank``: sort documents by relevance to a query, as in the APIs of Jina, Cohere, Voyage and llama-server.

``/v1/score``: score pairs of texts, as in the API of vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AliasChoices, BaseModel, model_validator
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT, LoadedModel
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import MAX_TEXTS
from pyggml.server.protocols.openai.embeddings import PromptUsage
from pyggml.server.protocols.openai.errors import invalid

_TERMS: Mapping[str, str] = {'pass long_documents="windows" or "truncate"': 'send "long_documents": "windows"'}


class Document(Body):
    """A document as an object, as Cohere and Jina accept it."""

    text: str


_Documents = Annotated[list[str | Document], BodyField(min_length=1, max_length=MAX_TEXTS)]


class RerankRequest(Body):
    """Documents to sort.

    Attributes:
        model: name of the model.
        query: the query.
        documents: the documents.
        texts: the documents in the API of Hugging Face's server; the response then has its format.
        top_n: number of results; None: all.
        return_documents: include the documents in the response.
        return_text: the same for ``texts``.
        raw_scores: return the model's scores without normalizing them to 0 ... 1.
        long_documents: how to score documents that are too long: "refuse": an error; "truncate": by their beginning;
            "windows": by the best of overlapping parts.
        truncate: True: the same as ``long_documents="truncate"``.
    """

    terms: ClassVar[Mapping[str, str]] = _TERMS

    model: str = DEFAULT
    query: str
    documents: _Documents | None = None
    texts: _Documents | None = None
    top_n: Annotated[int, BodyField(ge=1)] | None = BodyField(None, validation_alias=AliasChoices("top_n", "top_k"))
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None
    long_documents: Literal["refuse", "truncate", "windows"] | None = None
    truncate: bool | None = BodyField(None, validation_alias=AliasChoices("truncate", "truncation"))

    @model_validator(mode="after")
    def _require_documents(self) -> RerankRequest:
        if self.documents is None and self.texts is None:
            raise ValueError("the field 'documents' is missing")
        return self

    @property
    def contents(self) -> list[str]:
        """The documents as texts."""
        return [each if isinstance(each, str) else each.text for each in self.documents or self.texts or ()]


class Ranked(BaseModel):
    """A document's rank."""

    index: int
    relevance_score: float
    document: Document | None = None


class Ranking(BaseModel):
    """The documents, the most relevant first."""

    object: Literal["list"]
    id: str
    model: str
    results: list[Ranked]
    usage: PromptUsage


class ScoreRequest(Body):
    """Pairs of texts to score.

    Attributes:
        model: name of the model.
        text_1: a text, such as a query, or several.
        text_2: a text, such as a document, or several: for one ``text_1`` each is scored with it; else as many.
        raw_scores: return a reranker's scores without normalizing them to 0 ... 1.
    """

    terms: ClassVar[Mapping[str, str]] = {**_TERMS, 'send "long_documents": "windows"': "send less"}

    model: str = DEFAULT
    text_1: _ScoredTexts = BodyField(validation_alias=AliasChoices("text_1", "queries", "data_1"))
    text_2: _ScoredTexts = BodyField(validation_alias=AliasChoices("text_2", "documents", "items", "data_2"))
    raw_scores: bool | None = None


class Score(BaseModel):
    """A pair's score."""

    object: Literal["score"]
    index: int
    score: float


class Scores(BaseModel):
    """The scores, in the order of the pairs."""

    object: Literal["list"]
    id: str
    data: list[Score]
    model: str
    usage: PromptUsage


_ScoredTexts = str | Annotated[list[str], BodyField(min_length=1, max_length=MAX_TEXTS)]
ScoreRequest.model_rebuild()


async def rerank(request: ServerRequest, body: RerankRequest) -> Response:
    """Sort documents by relevance to a query."""
    model = await request.lease_model(body.model)
    documents, llm = body.contents, model.llm
    require_fitting(llm.n_ctx, [body.query, *documents])
    ranking = await request.run_for_if_long(
        "texts",
        llm.rerank_request,
        body.query,
        documents,
        normalize=_normalizes(model, body.raw_scores),
        top_n=min(body.top_n or len(documents), len(documents)),
        long_documents=body.long_documents or ("truncate" if body.truncate else "refuse"),
    )
    request.count_tokens(ranking.n_tokens)
    best = [(each.index, each.score) for each in await request.await_outside_engine_queue(ranking.arun)]
    response: Any
    if body.documents is None:
        response = [{"index": index, "score": score} for index, score in best]
        for each in response if body.return_text else ():
            each["text"] = documents[each["index"]]
    else:
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": score} for index, score in best]
        for each in results if body.return_documents else ():
            each["document"] = {"text": documents[each["index"]]}
        response = _with_usage(request, model, ranking.n_tokens, results=results)
        response["meta"] = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return await request.run_for_if_long("responses", JSONResponse, response)


async def score(request: ServerRequest, body: ScoreRequest) -> Response:
    """Score pairs of texts: with a reranker by its head, with another model by the cosine of their vectors."""
    model = await request.lease_model(body.model)
    first, second = _pairs(body)
    require_fitting(model.llm.n_ctx, [*first, *second])
    compare = _head_scores if model.llm.model.n_cls_out else _cosines
    scores, n_tokens = await compare(request, model, body, first, second)
    data = [{"object": "score", "index": index, "score": each} for index, each in enumerate(scores)]
    return await request.run_for_if_long("responses", JSONResponse, _with_usage(request, model, n_tokens, data=data))


def _pairs(body: ScoreRequest) -> tuple[list[str], list[str]]:
    first = [body.text_1] if isinstance(body.text_1, str) else body.text_1
    second = [body.text_2] if isinstance(body.text_2, str) else body.text_2
    if len(first) not in (1, len(second)):
        raise invalid(
            "text_2", f"there are {len(first)} texts in text_1 and {len(second)} in text_2: send one, or as many"
        )
    return first, second


async def _head_scores(
    request: ServerRequest, model: LoadedModel, body: ScoreRequest, first: list[str], second: list[str]
) -> tuple[list[float], int]:
    normalize = _normalizes(model, body.raw_scores)
    pairs = (
        [(first[0], second)] if len(first) == 1 else [(one, [other]) for one, other in zip(first, second, strict=True)]
    )

    def prepare() -> list[Any]:
        return [model.llm.rerank_request(query, texts, normalize=normalize) for query, texts in pairs]

    rankings = await request.run_for_if_long("texts", prepare)
    request.count_tokens(sum(each.n_tokens for each in rankings))
    found = await request.await_outside_engine_queue(lambda: asyncio.gather(*(each.arun() for each in rankings)))
    return [float(score) for scores in found for score in scores], sum(each.n_tokens for each in rankings)


async def _cosines(
    request: ServerRequest, model: LoadedModel, _body: ScoreRequest, first: list[str], second: list[str]
) -> tuple[list[float], int]:
    embedding = await request.run_for_if_long("texts", model.llm.embedding_request, [*first, *second], normalize=True)
    request.count_tokens(embedding.n_tokens)
    vectors = np.asarray(await request.await_outside_engine_queue(embedding.arun))
    products = (vectors[: len(first)] * vectors[len(first) :]).sum(axis=1)
    return products.tolist(), embedding.n_tokens


def _normalizes(model: LoadedModel, raw_scores: bool | None) -> bool:
    """Return True for scores that become 0 to 1. Heads with several outputs return probabilities already."""
    return not raw_scores and model.llm.model.n_cls_out == 1


def _with_usage(request: ServerRequest, model: LoadedModel, n_tokens: int, **fields: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "id": request.id, "model": model.name, **fields, "usage": usage}


# Jina's, llama-server's and Cohere's paths.
RERANK = tuple(Endpoint("POST", path, rerank, Ranking) for path in ("/v1/rerank", "/rerank", "/v2/rerank"))
SCORE = tuple(Endpoint("POST", path, score, Scores) for path in ("/v1/score", "/score"))
