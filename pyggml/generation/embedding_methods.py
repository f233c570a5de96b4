"""The methods of LLM that embed and rerank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import overload

import numpy as np
import numpy.typing as npt

from pyggml._core.hints import with_hints
from pyggml.generation.embedding import Embedder, Pooling, Text, TokenPooling


class EmbeddingMethods:
    """The methods of :class:`pyggml.LLM` that embed and rerank."""

    _embedder: Embedder

    @overload
    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        pooling: Pooling | None = None,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def embed(  # type: ignore[overload-overlap]
        self,
        texts: str,
        *,
        pooling: TokenPooling,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    def embed(
        self,
        texts: Iterable[Text],
        *,
        pooling: TokenPooling,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> list[npt.NDArray[np.float32]]: ...

    @with_hints("embedding")
    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = False,
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32] | list[npt.NDArray[np.float32]]:
        """Embed texts in batches, in a separate context, so that generation continues meanwhile.

        Concurrent calls run one after the other.

        Args:
            texts: one text or an iterable of texts: str (encoded with ``add_special``) or token ids.
            normalize: scale each vector to length 1, so that dot products are cosines.
            pooling: how to combine the embeddings of a text's tokens: their "mean", the first ("cls") or the "last";
                "none": return those of all tokens. None: the file's ``<arch>.pooling_type``, or "mean".
            truncate: cut off the end of a text that is too long, before the special tokens that follow it; otherwise it
                is refused.
            max_tokens: length of the longest text in tokens, special ones included; None: ``n_ctx``.
            parse_special: as for :meth:`LLM.generate`.

        Returns:
            float32, (n_texts, model.n_embd_out), in the order of ``texts``; for a single str, (model.n_embd_out,). With
            ``pooling="none"`` a list of float32, (n_tokens, model.n_embd_out); for a single str, one of them.

        Raises:
            EmptyPromptError: a text has no tokens.
            ContextOverflowError: a text is longer than ``max_tokens``, without ``truncate``; names its index and both
                lengths.
            InvalidParameterError: an argument is invalid, or a token id is outside the vocabulary.
            UnsupportedArchitectureError: the model has an encoder and a decoder.
            OutOfMemoryError: the context does not fit.
            ClosedError: the model was closed.
        """
        return self._embedder.embed(
            texts,
            normalize=normalize,
            pooling=pooling,
            truncate=truncate,
            max_tokens=max_tokens,
            parse_special=parse_special,
        )

    @overload
    async def aembed(
        self,
        texts: str | Iterable[Text],
        *,
        pooling: Pooling | None = None,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    async def aembed(  # type: ignore[overload-overlap]
        self,
        texts: str,
        *,
        pooling: TokenPooling,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32]: ...

    @overload
    async def aembed(
        self,
        texts: Iterable[Text],
        *,
        pooling: TokenPooling,
        normalize: bool = False,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> list[npt.NDArray[np.float32]]: ...

    @with_hints("embedding")
    async def aembed(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = False,
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
    ) -> npt.NDArray[np.float32] | list[npt.NDArray[np.float32]]:
        """As :meth:`embed`, for coroutines. Cancelling the task stops the work after the current forward pass."""
        embedder = self._embedder
        return await embedder.in_background(
            embedder.embed,
            texts,
            normalize=normalize,
            pooling=pooling,
            truncate=truncate,
            max_tokens=max_tokens,
            parse_special=parse_special,
        )

    @with_hints("reranking")
    def rerank(self, query: str, documents: Iterable[str], *, normalize: bool = False) -> npt.NDArray[np.float32]:
        """Score how well each document answers a query, using the model's classifier head; higher is better.

        Each pair is formatted by the model's "rerank" template. Without one, it is ``BOS query EOS SEP document EOS``,
        with only those special tokens that the vocabulary adds to texts. Special tokens within query or documents are
        plain text, as in a chat.

        Args:
            query: the question.
            documents: the texts to score.
            normalize: return the sigmoid of each score, 0 to 1; for heads with one output.

        Returns:
            float32, (n_documents,), in the order of ``documents``: the head's first output.

        Raises:
            InvalidParameterError: the model has no classifier head, or an argument is invalid.
            InferError: as :meth:`embed`; the length limit applies to query and document together.
        """
        return self._embedder.rerank(query, documents, normalize=normalize)

    @with_hints("reranking")
    async def arerank(
        self, query: str, documents: Iterable[str], *, normalize: bool = False
    ) -> npt.NDArray[np.float32]:
        """As :meth:`rerank`, for coroutines. Cancelling the task stops the work after the current forward pass."""
        embedder = self._embedder
        return await embedder.in_background(embedder.rerank, query, documents, normalize=normalize)

    @with_hints("reranking")
    def rerank_ids(self, query: str, documents: Iterable[str]) -> list[list[int]]:
        """The token ids that :meth:`rerank` reads for each document, in their order. Errors as :meth:`rerank`.

        Args:
            query: as for :meth:`rerank`.
            documents: as for :meth:`rerank`.
        """
        return self._embedder.pairs(query, documents)
