"""The methods of LLM that embed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from pyggml._core.hints import require_parameters, with_hints
from pyggml.generation.batch_generation import ItemProgress
from pyggml.generation.embedding.embedder import Embedder, EmbeddingRequest, Role, TokenPooling
from pyggml.generation.embedding.iteration import EmbeddingStream
from pyggml.generation.embedding.texts import Text
from pyggml.generation.embedding.vectors import DType, Vectors
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.options.embedding_profile import EmbeddingProfile, Pooling
from pyggml.types import EmbeddingStats

if TYPE_CHECKING:
    from typing_extensions import TypedDict, Unpack

    class TextOptions(TypedDict, total=False):
        """Options of :meth:`EmbeddingMethods.embed_query` and :meth:`EmbeddingMethods.embed_documents`."""

        dimensions: int | None
        normalize: bool | None
        dtype: DType
        truncate: bool
        max_tokens: int | None
        adapter: AdapterChoice | None
        parse_special: bool

    class VectorOptions(TextOptions, total=False):
        """Options of :meth:`EmbeddingMethods.embed_iter`."""

        prompt_name: str | None

    class LayerOptions(VectorOptions, total=False):
        """Options of :meth:`EmbeddingMethods.embed` besides ``pooling``."""

        layers: Sequence[int] | None

    class EmbedOptions(VectorOptions, total=False):
        """Options of :meth:`EmbeddingMethods.embedding_request`."""

        pooling: Pooling | TokenPooling | None


T = TypeVar("T")
#: Texts in a chunk of :meth:`EmbeddingMethods.embed_iter`.
CHUNK_SIZE = 1024


class EmbeddingMethods:
    """The methods of :class:`pyggml.LLM` that embed."""

    _embedder: Embedder

    if TYPE_CHECKING:

        @overload
        def embed(
            self, texts: str | Iterable[Text], *, pooling: Pooling | None = None, **options: Unpack[LayerOptions]
        ) -> Vectors: ...

        @overload
        def embed(  # type: ignore[overload-overlap]
            self, texts: str, *, pooling: TokenPooling, **options: Unpack[LayerOptions]
        ) -> Vectors: ...

        @overload
        def embed(
            self, texts: Iterable[Text], *, pooling: TokenPooling, **options: Unpack[LayerOptions]
        ) -> list[Vectors]: ...

    @with_hints("embedding")
    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        adapter: AdapterChoice | None = None,
        parse_special: bool = True,
        layers: Sequence[int] | None = None,
    ) -> Vectors | list[Vectors]:
        """Embed texts, in a separate context, so that generation continues meanwhile.

        Concurrent calls share forward passes. A call with few texts waits for one pass at most, whatever others embed.
        A text's vector does not depend on other texts; with pyggml's kernels, to the bit.

        Args:
            texts: one text or an iterable of texts: str (encoded with ``add_special``) or token ids.
            prompt_name: name of the prompt to put before each text: one of ``llm.embedding_profile.prompts``. None: the
                model's default prompt, or none.
            dimensions: return only the first dimensions, for models that are trained for it (Matryoshka).
            normalize: True: scale each vector to length 1, so that dot products are cosines. None: as the model's file
                says, or False.
            dtype: "float32"; "float16"; "int8": each vector scaled so that its largest number is 127; "binary": a bit
                for each dimension, 1 for positive numbers, eight in a uint8, the first in the highest bit.
            pooling: how to combine the embeddings of a text's tokens: "mean", "cls" (the first), "last", "max",
                "mean_sqrt_len" or "weighted_mean"; "none": return those of all tokens. None: as the model's file says,
                or "mean".
            truncate: cut off the end of a text that is too long, before the special tokens that follow it; otherwise it
                is refused.
            max_tokens: length of the longest text in tokens, special ones included. None: as the model's file says, or
                ``n_ctx``.
            adapter: the LoRA adapters, as in SamplingParams: None means the defaults. Texts with the same ones share
                passes.
            parse_special: as for :meth:`LLM.generate`.
            layers: return the hidden states after so many layers, of each number, instead of the model's output: 0 is
                the embeddings of the tokens, ``llm.model.n_layer`` or -1 the output. They are not scaled unless
                ``normalize`` says so, and the model's dense layers are left out. The texts are computed one by one.
                None: the model's output.

        Returns:
            An array of ``dtype``, (n_texts, n_dimensions), in the order of ``texts``; for a single str,
            (n_dimensions,). With ``pooling="none"``, and for models that embed tokens, a list of arrays, (n_tokens,
            n_dimensions); for a single str, one of them. "binary": uint8, with an eighth of the columns. With
            ``layers``, float32, (n_texts, n_layers, n_embd), or of each text (n_layers, n_tokens, n_embd).

        Raises:
            EmptyPromptError: a text has no tokens.
            ContextOverflowError: a text is longer than ``max_tokens``, without ``truncate``; names its index and both
                lengths.
            InvalidParameterError: an argument is invalid, there is no such adapter, or a token id is outside the
                vocabulary.
            UnsupportedArchitectureError: the model has an encoder and a decoder, or ``layers`` is not possible with its
                architecture.
            OutOfMemoryError: the context does not fit.
            ClosedError: the model or an adapter was closed.
        """
        options: dict[str, Any] = {
            "prompt_name": prompt_name,
            "dimensions": dimensions,
            "normalize": normalize,
            "dtype": dtype,
            "pooling": pooling,
            "truncate": truncate,
            "max_tokens": max_tokens,
            "adapter": adapter,
            "parse_special": parse_special,
        }
        if layers is not None:
            return self._embedder.embed_layers(texts, layers, **options)
        return self._embedder.embed(texts, **options)

    if TYPE_CHECKING:

        @overload
        async def aembed(
            self, texts: str | Iterable[Text], *, pooling: Pooling | None = None, **options: Unpack[LayerOptions]
        ) -> Vectors: ...

        @overload
        async def aembed(  # type: ignore[overload-overlap]
            self, texts: str, *, pooling: TokenPooling, **options: Unpack[LayerOptions]
        ) -> Vectors: ...

        @overload
        async def aembed(
            self, texts: Iterable[Text], *, pooling: TokenPooling, **options: Unpack[LayerOptions]
        ) -> list[Vectors]: ...

    @with_hints("embedding")
    async def aembed(
        self,
        texts: str | Iterable[Text],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        adapter: AdapterChoice | None = None,
        parse_special: bool = True,
        layers: Sequence[int] | None = None,
    ) -> Vectors | list[Vectors]:
        """As :meth:`embed`, for coroutines. Cancelling the task gives up the texts that are in no pass yet."""
        options: dict[str, Any] = {
            "prompt_name": prompt_name,
            "dimensions": dimensions,
            "normalize": normalize,
            "dtype": dtype,
            "pooling": pooling,
            "truncate": truncate,
            "max_tokens": max_tokens,
            "adapter": adapter,
            "parse_special": parse_special,
        }
        if layers is not None:
            return await self._embedder.aembed_layers(texts, layers, **options)
        return await self._embedder.aembed(texts, **options)

    def embed_query(self, texts: str | Iterable[str], **options: Unpack[TextOptions]) -> Vectors:
        """Embed queries, with the model's prompt for queries.

        It is the prompt named "query"; without one, this is :meth:`embed`.

        Args:
            texts: one query or an iterable of them.
            **options: as for :meth:`embed`.
        """
        _require_options(options)
        return self._embedder.embed(texts, role="query", **options)  # type: ignore[return-value]

    async def aembed_query(self, texts: str | Iterable[str], **options: Unpack[TextOptions]) -> Vectors:
        """As :meth:`embed_query`, for coroutines."""
        _require_options(options)
        return await self._embedder.aembed(texts, role="query", **options)  # type: ignore[return-value]

    def embed_documents(self, texts: str | Iterable[str], **options: Unpack[TextOptions]) -> Vectors:
        """Embed documents, with the model's prompt for documents.

        It is the prompt named "document", "passage" or "corpus"; without one, this is :meth:`embed`.

        Args:
            texts: one document or an iterable of them.
            **options: as for :meth:`embed`.
        """
        _require_options(options)
        return self._embedder.embed(texts, role="document", **options)  # type: ignore[return-value]

    async def aembed_documents(self, texts: str | Iterable[str], **options: Unpack[TextOptions]) -> Vectors:
        """As :meth:`embed_documents`, for coroutines."""
        _require_options(options)
        return await self._embedder.aembed(texts, role="document", **options)  # type: ignore[return-value]

    def embedding_request(
        self, texts: str | Iterable[Text], *, role: Role | None = None, **options: Unpack[EmbedOptions]
    ) -> EmbeddingRequest:
        """Tokenize and check texts, to compute their vectors later.

        For programs that need the number of tokens, or vectors of several types: ``request.run()`` or ``await
        request.arun()`` is :meth:`embed`.

        Args:
            texts: as for :meth:`embed`.
            role: "query" or "document": as for :meth:`embed_query` and :meth:`embed_documents`.
            **options: as for :meth:`embed`.

        Raises:
            InferError: as :meth:`embed`.
        """
        _require_options(options)
        return self._embedder.prepare(texts, role=role, **options)

    @with_hints("embedding_stream")
    def embed_iter(
        self,
        texts: Iterable[T],
        *,
        key: Callable[[T], str] | None = None,
        chunk_size: int = CHUNK_SIZE,
        progress: ItemProgress | None = None,
        **options: Unpack[VectorOptions],
    ) -> Generator[tuple[list[T], Vectors]]:
        """Embed a stream of texts, of any length, with a bounded number of them in memory.

        While you use a chunk, the next one is computed. An error, of a text or of the iterable, is raised after the
        chunks before it.

        Args:
            texts: an iterable of texts, or with ``key`` of anything. It is read on the thread that iterates.
            key: returns an item's text.
            chunk_size: number of texts in a chunk; at most two chunks are in memory.
            progress: called with the number of embedded texts and of all texts, which is None if ``texts`` has no
                length. None: a bar in a notebook; False: no bar.
            **options: as for :meth:`embed`.

        Yields:
            A list of the next items of ``texts``, and their vectors, as from :meth:`embed`.

        Raises:
            InferError: as :meth:`embed`; with several chunks, the index of a text is that within its chunk.
        """
        _require_options(options)
        stream = EmbeddingStream[T](self._embedder, chunk_size=chunk_size, key=key, progress=progress, **options)
        return stream.run(texts)

    @with_hints("embedding_stream")
    def aembed_iter(
        self,
        texts: Iterable[T] | AsyncIterable[T],
        *,
        key: Callable[[T], str] | None = None,
        chunk_size: int = CHUNK_SIZE,
        progress: ItemProgress | None = None,
        **options: Unpack[VectorOptions],
    ) -> AsyncGenerator[tuple[list[T], Vectors]]:
        """As :meth:`embed_iter`, for coroutines; ``texts`` may also be an asynchronous iterable."""
        _require_options(options)
        stream = EmbeddingStream[T](self._embedder, chunk_size=chunk_size, key=key, progress=progress, **options)
        return stream.arun(texts)

    def similarity(self, a: npt.ArrayLike | list[Any], b: npt.ArrayLike | list[Any]) -> npt.NDArray[np.float32]:
        """Compare vectors as the model's authors do; higher is more similar.

        Args:
            a: a vector, or vectors in rows, of any ``dtype`` of :meth:`embed`; token vectors for a model that embeds
                tokens.
            b: likewise.

        Returns:
            float32, (len(a), len(b)), without the axis of a single vector: the cosine; or the dot product, or the
            negative Euclidean or Manhattan distance, if the model's file says so
            (``llm.embedding_profile.similarity``). For token vectors, the sum over the tokens of ``a`` of the largest
            dot product with a token of ``b``. Bits are compared as numbers -1 and 1.

        Raises:
            InvalidParameterError: they are not vectors, or of different width.
        """
        return self._embedder.similarity(a, b)

    @property
    def embedding_profile(self) -> EmbeddingProfile:
        """Settings with which the model's authors embed: prompts, pooling, normalisation, dimensions and more."""
        return self._embedder.profile

    def embedding_stats(self) -> EmbeddingStats:
        """Return the number of texts that wait, and the counters of passes. Never waits for a forward pass."""
        return self._embedder.queue.stats()

    @property
    def n_dimensions(self) -> int:
        """Width of the vectors of :meth:`embed`: ``model.n_embd_out``, unless the model has layers after pooling."""
        return self._embedder.width()


def _require_options(given: Iterable[str]) -> None:
    """Reject options that :meth:`EmbeddingMethods.embed` does not have."""
    require_parameters(given, EmbeddingMethods.embed, "embedding")
