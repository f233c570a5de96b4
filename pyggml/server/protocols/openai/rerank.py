"""``/v1/rerank``: sorts documents by how well they answer a query, as Jina, Cohere and llama-server have it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, model_validator
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import Call
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import MAX_TEXTS
from pyggml.server.protocols.openai.embeddings import PromptUsage
from pyggml.server.protocols.openai.generation_request import ModelName


class Document(Body):
    """A document in an object, as Cohere and Jina take it, too."""

    text: str


_Documents = Annotated[list[str | Document], BodyField(min_length=1, max_length=MAX_TEXTS)]


class Rerank(Body):
    """Documents to sort.

    Attributes:
        model: name of the model.
        query: what is asked.
        documents: what may answer it.
        texts: the same, as Hugging Face's server takes it; the answer then has its form.
        top_n: return only so many.
        return_documents: repeat the documents in the answer.
        return_text: the same for ``texts``.
        raw_scores: return what the model says, and not a number from 0 to 1.
    """

    model: ModelName = DEFAULT
    query: str
    documents: _Documents | None = None
    texts: _Documents | None = None
    top_n: Annotated[int, BodyField(ge=1)] | None = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None

    @model_validator(mode="after")
    def _has_documents(self) -> Rerank:
        if self.documents is None and self.texts is None:
            raise ValueError("documents is missing: what should be sorted?")
        return self

    @property
    def contents(self) -> list[str]:
        """The documents as texts."""
        return [each if isinstance(each, str) else each.text for each in self.documents or self.texts or ()]


class Ranked(BaseModel):
    """A document's place."""

    index: int
    relevance_score: float
    document: Document | None = None


class Ranking(BaseModel):
    """The documents, the best first."""

    object: Literal["list"]
    model: str
    results: list[Ranked]
    usage: PromptUsage


async def rerank(call: Call, body: Rerank) -> Response:
    """Sorts documents by how well they answer a query."""
    served = await call.model(body.model)
    documents, llm = body.contents, served.llm
    require_fitting(llm.n_ctx, [body.query, *documents])
    # Heads with several outputs have turned them into probabilities already.
    normalize = not body.raw_scores and llm.model.n_cls_out == 1
    scores = await call.beside(llm.arerank, body.query, documents, normalize=normalize)
    n_tokens = sum(map(len, await call.aside(llm.rerank_ids, body.query, documents)))
    best = [(int(index), float(scores[index])) for index in (-scores).argsort(kind="stable")[: body.top_n]]
    if body.documents is None:
        found = [_as_hugging_face(index, score, documents, body) for index, score in best]
        return await call.prepared(JSONResponse, found)
    results = [_result(index, score, documents, body) for index, score in best]
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    answer = {"object": "list", "model": served.name, "results": results, "usage": usage}
    return await call.prepared(JSONResponse, answer)


def _result(index: int, score: float, documents: list[str], body: Rerank) -> dict[str, Any]:
    document = {"document": {"text": documents[index]}} if body.return_documents else {}
    return {"index": index, "relevance_score": score, **document}


def _as_hugging_face(index: int, score: float, documents: list[str], body: Rerank) -> dict[str, Any]:
    text = {"text": documents[index]} if body.return_text else {}
    return {"index": index, "score": score, **text}


# Jina's, llama-server's and Cohere's paths.
RERANK = tuple(
    Endpoint("POST", path, rerank, "Sort documents by how well they answer a query", Rerank, Ranking)
    for path in ("/v1/rerank", "/rerank", "/v2/rerank")
)
