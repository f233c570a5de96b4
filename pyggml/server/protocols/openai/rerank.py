"""``/v1/rerank``: sort documents by relevance to a query, as in the APIs of Jina, Cohere and llama-server."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, model_validator
from pydantic import Field as BodyField
from starlette.responses import JSONResponse, Response

from pyggml.server.http.request import ServerRequest
from pyggml.server.http.request_body import Body, require_fitting
from pyggml.server.models.pool import DEFAULT
from pyggml.server.protocols.endpoint import Endpoint
from pyggml.server.protocols.openai.completions import MAX_TEXTS
from pyggml.server.protocols.openai.embeddings import PromptUsage


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
    """

    model: str = DEFAULT
    query: str
    documents: _Documents | None = None
    texts: _Documents | None = None
    top_n: Annotated[int, BodyField(ge=1)] | None = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None

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
    model: str
    results: list[Ranked]
    usage: PromptUsage


async def rerank(request: ServerRequest, body: RerankRequest) -> Response:
    """Sort documents by relevance to a query."""
    model = await request.lease_model(body.model)
    documents, llm = body.contents, model.llm
    require_fitting(llm.n_ctx, [body.query, *documents])
    # Classification heads with several outputs return probabilities already.
    normalize = not body.raw_scores and llm.model.n_cls_out == 1
    scores = await request.await_outside_engine_queue(llm.arerank, body.query, documents, normalize=normalize)
    n_tokens = sum(map(len, await request.run_in_thread(llm.rerank_ids, body.query, documents)))
    best = [(int(index), float(scores[index])) for index in (-scores).argsort(kind="stable")[: body.top_n]]
    response: Any
    if body.documents is None:
        response = [{"index": index, "score": score} for index, score in best]
        for each in response if body.return_text else ():
            each["text"] = documents[each["index"]]
    else:
        results: list[dict[str, Any]] = [{"index": index, "relevance_score": score} for index, score in best]
        for each in results if body.return_documents else ():
            each["document"] = {"text": documents[each["index"]]}
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        response = {"object": "list", "model": model.name, "results": results, "usage": usage}
    return await request.run_in_thread_if_long(JSONResponse, response)


# Jina's, llama-server's and Cohere's paths.
RERANK = tuple(Endpoint("POST", path, rerank, Ranking) for path in ("/v1/rerank", "/rerank", "/v2/rerank"))
