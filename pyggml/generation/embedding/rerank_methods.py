"""The methods of LLM that rerank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pyggml._core.hints import with_hints
from pyggml.generation.embedding.embedder import Embedder, RerankRequest
from pyggml.generation.embedding.pairs import Document, LongDocuments
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.types import RankedDocument


class RerankMethods:
    """The methods of :class:`pyggml.LLM` that rerank."""

    _embedder: Embedder

    if TYPE_CHECKING:

        @overload
        def rerank(
            self,
            query: str,
            documents: Iterable[Document],
            *,
            normalize: bool | None = None,
            top_n: None = None,
            long_documents: LongDocuments = "refuse",
            adapter: AdapterChoice | None = None,
        ) -> npt.NDArray[np.float32]: ...

        @overload
        def rerank(
            self,
            query: str,
            documents: Iterable[Document],
            *,
            normalize: bool | None = None,
            top_n: int,
            long_documents: LongDocuments = "refuse",
            adapter: AdapterChoice | None = None,
        ) -> list[RankedDocument]: ...

    @with_hints("reranking")
    def rerank(
        self,
        query: str,
        documents: Iterable[Document],
        *,
        normalize: bool | None = None,
        top_n: int | None = None,
        long_documents: LongDocuments = "refuse",
        adapter: AdapterChoice | None = None,
    ) -> npt.NDArray[np.float32] | list[RankedDocument]:
        """Score how well each document answers a query, using the model's classifier head; higher is better.

        Each pair is formatted by the model's "rerank" template. Without one, it is ``BOS query EOS SEP document EOS``,
        with only those special tokens that the vocabulary adds to texts. Special tokens within query or documents are
        plain text, as in a chat. Concurrent calls share passes, as for :meth:`embed <pyggml.LLM.embed>`.

        Args:
            query: the question.
            documents: the texts to score, or mappings with a text under "text".
            normalize: True: return the sigmoid of each score, 0 to 1; for heads with one output. None: as the model's
                file says, or False.
            top_n: return this many documents, the best first, instead of the scores of all.
            long_documents: how to score a document that is too long with the query: "refuse": raise an error;
                "truncate": by its beginning; "windows": by the best of overlapping parts.
            adapter: the LoRA adapters, as in SamplingParams: None means the defaults.

        Returns:
            float32, (n_documents,), in the order of ``documents``: the head's first output, or its sigmoid. With
            ``top_n``, the best documents with their index and score, sorted.

        Raises:
            InvalidParameterError: the model has no classifier head, or an argument is invalid.
            InferError: as :meth:`embed <pyggml.LLM.embed>`; the length limit applies to query and document together.
        """
        options: dict[str, Any] = {"normalize": normalize, "top_n": top_n, "long_documents": long_documents}
        return self._embedder.rerank(query, documents, **options, adapter=adapter)

    if TYPE_CHECKING:

        @overload
        async def arerank(
            self,
            query: str,
            documents: Iterable[Document],
            *,
            normalize: bool | None = None,
            top_n: None = None,
            long_documents: LongDocuments = "refuse",
            adapter: AdapterChoice | None = None,
        ) -> npt.NDArray[np.float32]: ...

        @overload
        async def arerank(
            self,
            query: str,
            documents: Iterable[Document],
            *,
            normalize: bool | None = None,
            top_n: int,
            long_documents: LongDocuments = "refuse",
            adapter: AdapterChoice | None = None,
        ) -> list[RankedDocument]: ...

    @with_hints("reranking")
    async def arerank(
        self,
        query: str,
        documents: Iterable[Document],
        *,
        normalize: bool | None = None,
        top_n: int | None = None,
        long_documents: LongDocuments = "refuse",
        adapter: AdapterChoice | None = None,
    ) -> npt.NDArray[np.float32] | list[RankedDocument]:
        """As :meth:`rerank`, for coroutines. Cancelling the task gives up the pairs that are in no pass yet."""
        options: dict[str, Any] = {"normalize": normalize, "top_n": top_n, "long_documents": long_documents}
        return await self._embedder.arerank(query, documents, **options, adapter=adapter)

    @with_hints("reranking")
    def rerank_ids(self, query: str, documents: Iterable[Document]) -> list[list[int]]:
        """The token ids that :meth:`rerank` reads for each document, in their order. Errors as :meth:`rerank`.

        Args:
            query: as for :meth:`rerank`.
            documents: as for :meth:`rerank`.
        """
        return self._embedder.pairs(query, documents)

    def rerank_request(
        self,
        query: str,
        documents: Iterable[Document],
        *,
        normalize: bool | None = None,
        top_n: int | None = None,
        long_documents: LongDocuments = "refuse",
        adapter: AdapterChoice | None = None,
    ) -> RerankRequest:
        """Tokenize and check pairs, to compute their scores later with ``request.run()`` or ``await request.arun()``.

        Args:
            query: as for :meth:`rerank`.
            documents: as for :meth:`rerank`.
            normalize: as for :meth:`rerank`.
            top_n: as for :meth:`rerank`.
            long_documents: as for :meth:`rerank`.
            adapter: as for :meth:`rerank`.

        Raises:
            InferError: as :meth:`rerank`.
        """
        options: dict[str, Any] = {"normalize": normalize, "top_n": top_n, "long_documents": long_documents}
        return self._embedder.prepare_pairs(query, documents, **options, adapter=adapter)
