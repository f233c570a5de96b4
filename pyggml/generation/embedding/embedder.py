"""A call that embeds texts or scores pairs, from its arguments to its result."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from pyggml._core.cached_property import cached_property
from pyggml._core.checks import choice, flag, integer
from pyggml._native.model import Model
from pyggml._native.token_batch import Ids, TokenBatch
from pyggml.errors import ClosedError, InvalidParameterError, UnsupportedArchitectureError
from pyggml.families import SOFTMAX_HEADS
from pyggml.generation.adapters import Adapters
from pyggml.generation.embedding.encoder import BatchEncoder, Kind
from pyggml.generation.embedding.job import Job
from pyggml.generation.embedding.layer_states import LayerStates, checked_layers
from pyggml.generation.embedding.pairs import Document, LongDocuments, PairReader
from pyggml.generation.embedding.pass_queue import PassQueue
from pyggml.generation.embedding.pass_texts import Floats
from pyggml.generation.embedding.texts import ReadTexts, Text, TextReader
from pyggml.generation.embedding.vectors import DenseLayers, DType, VectorForm, Vectors, similarity
from pyggml.gguf import GGUFReader
from pyggml.options.adapter_choice import AdapterChoice
from pyggml.options.embedding_profile import POOLINGS, Pooling, Similarity, read_profile
from pyggml.tokenizer import Tokenizer
from pyggml.types import RankedDocument

TokenPooling = Literal["none"]
#: What texts are for: a model may have prompts, or other special treatment, for queries and for documents.
Role = Literal["query", "document"]
T = TypeVar("T")

# sentence-transformers' names of the prompts for each role, the first one that a model has.
_PROMPT_NAMES: dict[str, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}
# From this many characters, texts or numbers on, work would block an event loop for more than about a millisecond.
_LONG_CHARS, _MANY_TEXTS, _MANY_NUMBERS = 4096, 64, 65_536


class Embedder:
    """Embeds and reranks with one model. Thread-safe. Contexts are created on first use.

    Attributes:
        profile: settings of the model's authors.
        queue: the texts of all callers.
        adapters: those that calls can name: its own, which it closes, unless they are replaced.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, n_ctx: int, make_encoder: Callable[[Kind], BatchEncoder]
    ) -> None:
        """Create it without allocating anything, for texts of at most ``n_ctx`` tokens; the caller owns the model."""
        self._model = model
        self.profile = read_profile(model.metadata)
        self._texts = TextReader(model, tokenizer, n_ctx, self.profile)
        self._pair_reader = PairReader(model, tokenizer, self._texts, self.profile.second_text_ids)
        self.queue = PassQueue(make_encoder("none"), make_encoder("rank"))
        self.adapters = Adapters(model)
        self._layer_states = LayerStates(model, make_encoder("none"))

    # --- embeddings -------------------------------------------------------------------------------------------

    def embed(self, texts: str | Iterable[Text], **options: Any) -> Vectors | list[Vectors]:
        """See :meth:`LLM.embed <pyggml.llm.LLM.embed>`; ``options`` as for :meth:`prepare`."""
        return self.prepare(texts, **options).run()

    async def aembed(self, texts: str | Iterable[Text], **options: Any) -> Vectors | list[Vectors]:
        """As :meth:`embed`, for coroutines."""
        request = await in_thread(is_long(texts), functools.partial(self.prepare, texts, **options))
        return await request.arun()

    def embed_layers(
        self,
        texts: str | Iterable[Text],
        layers: object,
        *,
        pooling: Pooling | TokenPooling | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        adapter: AdapterChoice | None = None,
        cancelled: threading.Event | None = None,
        **options: Any,
    ) -> Vectors | list[Vectors]:
        """See :meth:`LLM.embed <pyggml.llm.LLM.embed>` with ``layers``; ``cancelled`` as for LayerStates."""
        self._require_single_stack()
        if dimensions is not None or dtype != "float32":
            raise InvalidParameterError("dimensions and dtype do not work with layers: leave them out")
        numbers = checked_layers(self._model, layers)
        kinds, adapters = self._pooling(pooling), self.adapters.of_choice(adapter)
        is_scaled = normalize is not None and flag("normalize", normalize)
        read = self._texts.read(texts, **options)
        found: list[Any] = self._layer_states.compute(
            read.tokens, numbers, kinds, read.n_prompt_tokens, adapters, cancelled or threading.Event()
        )
        if is_scaled:
            found = [rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in found]
        if isinstance(texts, str):
            first: Vectors = found[0]
            return first
        return np.stack(found) if kinds and found else found

    async def aembed_layers(
        self, texts: str | Iterable[Text], layers: object, **options: Any
    ) -> Vectors | list[Vectors]:
        """As :meth:`embed_layers`, for coroutines."""
        cancelled = threading.Event()
        compute = functools.partial(self.embed_layers, texts, layers, cancelled=cancelled, **options)
        try:
            return await in_thread(True, compute)
        finally:
            cancelled.set()

    def prepare(  # noqa: D417
        self,
        texts: str | Iterable[Text],
        *,
        role: Role | None = None,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        adapter: AdapterChoice | None = None,
        parse_special: bool = True,
    ) -> EmbeddingRequest:
        """Check the arguments of a call and tokenize its texts.

        Args:
            texts: as for :meth:`LLM.embed <pyggml.llm.LLM.embed>`, like all options except ``role``.
            role: what the texts are for; None: the same for both.
        """
        self._require_single_stack()
        kinds = self._pooling(pooling)
        form = VectorForm.checked(self.profile, self._width(kinds), dimensions, normalize, dtype)
        read = self._texts.read(
            texts,
            prompt_name=self._prompt_name(role) if prompt_name is None else prompt_name,
            truncate=truncate,
            max_tokens=max_tokens,
            parse_special=parse_special,
        )
        tokens = self._expanded(read.tokens) if role == "query" and not kinds else read.tokens
        n_columns, adapters = self._model.n_embd_out, self.adapters.of_choice(adapter)
        job = Job("pooled", tokens, n_columns * len(kinds), kinds, read.n_prompt_tokens, adapters)
        if not kinds:
            job = Job("tokens", tokens, n_columns, adapters=adapters)
        skipped = self.profile.skipped_tokens if role == "document" else ()
        return EmbeddingRequest(self.queue, job, read, form, self._dense(kinds), isinstance(texts, str), skipped)

    def width(self) -> int:
        """Return the number of dimensions of the vectors that :meth:`embed` returns by default."""
        return self._width(self._pooling(None))

    def similarity(self, a: Any, b: Any) -> Floats:
        """See :meth:`LLM.similarity <pyggml.llm.LLM.similarity>`."""
        return similarity(a, b, self.similarity_kind)

    @property
    def similarity_kind(self) -> Similarity:
        """The model's similarity: of its file, or "cosine"."""
        return self.profile.similarity or ("maxsim" if self.profile.is_multi_vector else "cosine")

    # --- reranking --------------------------------------------------------------------------------------------

    def rerank(self, query: str, documents: Iterable[Document], **options: Any) -> Floats | list[RankedDocument]:
        """See :meth:`LLM.rerank <pyggml.llm.LLM.rerank>`; ``options`` as for :meth:`prepare_pairs`."""
        return self.prepare_pairs(query, documents, **options).run()

    async def arerank(self, query: str, documents: Iterable[Document], **options: Any) -> Floats | list[RankedDocument]:
        """As :meth:`rerank`, for coroutines."""
        any_long = is_long([query]) or is_long(documents)
        request = await in_thread(any_long, functools.partial(self.prepare_pairs, query, documents, **options))
        return await request.arun()

    def prepare_pairs(
        self,
        query: str,
        documents: Iterable[Document],
        *,
        normalize: bool | None = None,
        top_n: int | None = None,
        long_documents: LongDocuments = "refuse",
        adapter: AdapterChoice | None = None,
    ) -> RerankRequest:
        """Check the arguments of a call and tokenize its pairs; they are as for :meth:`LLM.rerank`."""
        self._require_single_stack()
        if normalize is None:
            normalize = self.profile.score_activation == "sigmoid" and self._model.n_cls_out == 1
        normalize = flag("normalize", normalize)
        self._require_head(normalize)
        n_top = None if top_n is None else integer("top_n", top_n, 1, 2**31 - 1)
        choice("long_documents", long_documents, get_args(LongDocuments))
        documents = documents if isinstance(documents, str) or not isinstance(documents, Iterable) else list(documents)
        pairs, n_windows = self._pair_reader.read(query, documents, long_documents)
        job = Job("scores", pairs, self._model.n_cls_out, adapters=self.adapters.of_choice(adapter))
        return RerankRequest(
            self.queue, job, [documents] if isinstance(documents, str) else documents, n_windows, normalize, n_top
        )

    def prepare_labels(
        self,
        texts: str | Iterable[Text],
        truncate: bool,
        max_tokens: int | None,
        parse_special: bool,
        adapter: AdapterChoice | None,
    ) -> tuple[tuple[str, ...], Job]:
        """Check the arguments of :meth:`LLM.classify <pyggml.llm.LLM.classify>` and tokenize its texts.

        Returns:
            The labels of the head's outputs, and the job that computes these.
        """
        self._require_single_stack()
        self._require_head(normalize=False)
        read = self._texts.read(texts, truncate=truncate, max_tokens=max_tokens, parse_special=parse_special)
        adapters = self.adapters.of_choice(adapter)
        return self._labels, Job("scores", read.tokens, self._model.n_cls_out, adapters=adapters)

    @property
    def computes_softmax(self) -> bool:
        """True if the engine's graph ends the head's outputs with a softmax."""
        return self._model.arch in SOFTMAX_HEADS

    def pairs(self, query: str, documents: Iterable[Document]) -> list[list[int]]:
        """See :meth:`LLM.rerank_ids <pyggml.llm.LLM.rerank_ids>`."""
        self._require_head(normalize=False)
        pairs, _ = self._pair_reader.read(query, documents, "refuse")
        return [pair.tolist() for pair in pairs.split()]

    def close(self) -> None:
        """Free the contexts once a running forward pass ends, and close the adapters. Safe to call again."""
        self.queue.close()
        self.adapters.close()
        self._layer_states.close()

    # --- inside -----------------------------------------------------------------------------------------------

    def _pooling(self, given: Pooling | TokenPooling | None) -> tuple[str, ...]:
        """Return the kinds of pooling, whose results are concatenated; () for token vectors."""
        if given is not None:
            name = choice("pooling", given, (*POOLINGS, "none"))
            return () if name == "none" else (name,)
        return () if self.profile.is_multi_vector else self.profile.pooling or ("mean",)

    def _width(self, kinds: tuple[str, ...]) -> int:
        layers = self._layers_after(kinds)
        return layers[-1][0].n_out if layers else self._model.n_embd_out * max(1, len(kinds))

    def _dense(self, kinds: tuple[str, ...]) -> DenseLayers:
        return DenseLayers(self._layers_after(kinds))

    def _layers_after(self, kinds: tuple[str, ...]) -> list[Any]:
        """Return the dense layers that follow this pooling: not those after a pooling if there is none."""
        return self._layers if bool(kinds) != self.profile.is_multi_vector else []

    @cached_property
    def _layers(self) -> list[Any]:
        if not self.profile.dense:
            return []
        with GGUFReader(self._model.path) as reader:
            arrays = reader.metadata
            return [
                (
                    layer,
                    np.asarray(arrays[layer.weight_key], np.float32).reshape(layer.n_out, layer.n_in),
                    np.asarray(arrays[layer.bias_key], np.float32) if layer.has_bias else None,
                )
                for layer in self.profile.dense
            ]

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        """The names of the head's outputs: those of the file, or transformers' names of outputs without one."""
        n = self._model.n_cls_out
        with GGUFReader(self._model.path) as reader:
            given = reader.metadata.get(f"{self._model.arch}.classifier.output_labels", ())
        labels = tuple(map(str, given)) if isinstance(given, (tuple, list)) else ()
        return labels if len(labels) == n == len(set(labels)) else tuple(f"LABEL_{i}" for i in range(n))

    def _prompt_name(self, role: Role | None) -> str | None:
        names = () if role is None else _PROMPT_NAMES[choice("role", role, _PROMPT_NAMES)]
        return next((name for name in names if name in self.profile.prompts), None)

    def _expanded(self, tokens: TokenBatch) -> TokenBatch:
        """Fill up queries with a multi-vector model's expansion token."""
        length, token = self.profile.query_tokens, self.profile.expansion_token
        if length is None or token is None:
            return tokens
        return TokenBatch.join(_filled_up(ids, length, token) for ids in tokens.split())

    def _require_single_stack(self) -> None:
        if self._model.has_encoder and self._model.has_decoder:
            raise UnsupportedArchitectureError(
                f"{self._model.arch} models have an encoder and a decoder, and embed() and rerank() do not support "
                "them. Use Context.encode() for their encoder's output"
            )

    def _require_head(self, normalize: bool) -> None:
        if self._model.n_cls_out == 0:
            raise InvalidParameterError(
                f"{self._model.desc} ({self._model.path}) has no classifier head (its {self._model.arch}.pooling_type "
                "is not rank), so it can neither rerank nor classify: load a reranker or a classifier, or compare "
                "embeddings from embed()"
            )
        if normalize and self._model.n_cls_out > 1:
            raise InvalidParameterError(
                f"normalize needs a head with a single score; this model's has {self._model.n_cls_out} outputs. Pass "
                "normalize=False"
            )


class EmbeddingRequest:
    """Texts that are tokenized and checked; see :meth:`LLM.embedding_request <pyggml.LLM.embedding_request>`.

    Attributes:
        n_tokens: number of tokens of all texts.
        n_truncated: number of texts that were cut off.
    """

    def __init__(
        self,
        queue: PassQueue,
        job: Job,
        read: ReadTexts,
        form: VectorForm,
        dense: DenseLayers,
        is_single: bool,
        skipped: tuple[int, ...] = (),
    ) -> None:
        self.job, self._queue, self._form, self._dense, self._is_single = job, queue, form, dense, is_single
        self.n_tokens, self.n_truncated = len(read.tokens.ids), read.n_truncated
        self._ids = read.tokens.split() if skipped else []
        self._skipped = np.array(skipped, np.int32)

    def run(self) -> Vectors | list[Vectors]:
        """Compute the vectors. Run it once; errors as :meth:`LLM.embed <pyggml.LLM.embed>`."""
        self._queue.run(self.job)
        return self.result()

    async def arun(self) -> Vectors | list[Vectors]:
        """As :meth:`run`, for coroutines."""
        await self._queue.arun(self.job)
        n_numbers = self.n_tokens * self._form.n_columns if self.job.kind == "tokens" else np.size(self.job.results)
        return await in_thread(n_numbers > _MANY_NUMBERS, self.result)

    def result(self, dtype: DType | None = None) -> Vectors | list[Vectors]:
        """Return the vectors once they are computed, in the request's type or another.

        Args:
            dtype: as for :meth:`LLM.embed <pyggml.LLM.embed>`; None: the request's.
        """
        form = self._form if dtype is None else self._form.of_type(dtype)
        found = self.job.results
        if isinstance(found, list):
            if self._ids:
                found = [_without(rows, ids, self._skipped) for rows, ids in zip(found, self._ids, strict=True)]
            vectors: Any = [form(self._dense(rows)) for rows in found]
        else:
            vectors = form(self._dense(found))
        result: Vectors | list[Vectors] = vectors[0] if self._is_single else vectors
        return result


class RerankRequest:
    """Pairs that are tokenized and checked; see :meth:`LLM.rerank_request <pyggml.LLM.rerank_request>`.

    Attributes:
        n_tokens: number of tokens of all pairs.
    """

    def __init__(
        self,
        queue: PassQueue,
        job: Job,
        documents: list[Document],
        n_windows: list[int],
        normalize: bool,
        top_n: int | None,
    ) -> None:
        self.job, self._queue, self.n_tokens = job, queue, job.n_waiting_tokens
        self._documents, self._n_windows, self._normalize, self._top_n = documents, n_windows, normalize, top_n

    def run(self) -> Floats | list[RankedDocument]:
        """Compute the scores. Run it once; errors as :meth:`LLM.rerank <pyggml.LLM.rerank>`."""
        self._queue.run(self.job)
        return self._result()

    async def arun(self) -> Floats | list[RankedDocument]:
        """As :meth:`run`, for coroutines."""
        await self._queue.arun(self.job)
        return self._result()

    def _result(self) -> Floats | list[RankedDocument]:
        scores = np.ascontiguousarray(np.asarray(self.job.results, np.float32)[:, 0])
        if len(scores) > len(self._n_windows):
            scores = np.maximum.reduceat(scores, np.cumsum([0, *self._n_windows[:-1]]))
        if self._normalize:
            scores = np.asarray(0.5 * (1 + np.tanh(0.5 * scores)), np.float32)
        if self._top_n is None:
            return scores
        best = np.argsort(-scores, kind="stable")[: self._top_n].tolist()
        return [RankedDocument(index, float(scores[index]), self._documents[index]) for index in best]


async def in_thread(is_long: bool, work: Callable[[], T]) -> T:
    """Run work that takes long on a thread of the event loop's pool, and other work here.

    Raises:
        ClosedError: the interpreter is shutting down.
    """
    if not is_long:
        return work()
    import asyncio  # imported late to keep "import pyggml" fast

    try:
        result = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:
        raise ClosedError("the model was closed, or the interpreter is shutting down") from None
    return await result


def is_long(texts: object) -> bool:
    """Return True for texts that take long to tokenize, or whose length is not known."""
    if isinstance(texts, str):
        return len(texts) > _LONG_CHARS
    if not isinstance(texts, (list, tuple)):
        return not isinstance(texts, (bytes, int))
    if len(texts) > _MANY_TEXTS:
        return True
    return sum(len(text) for text in texts if isinstance(text, (str, list, tuple))) > _LONG_CHARS


def _filled_up(ids: Ids, length: int, token: int) -> Ids:
    return np.concatenate([ids, np.full(max(0, length - len(ids)), token, np.int32)])


def _without(rows: Floats, ids: Ids, skipped: npt.NDArray[np.int32]) -> Floats:
    """Return the vectors of the tokens that are not skipped."""
    return rows[~np.isin(ids, skipped)]
