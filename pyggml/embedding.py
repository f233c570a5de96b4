"""Converts texts to vectors, and pairs of texts to scores, in separate contexts over a model's weights.

A forward pass computes several texts, one sequence each. Token embeddings are pooled here, so that one context serves
all kinds of pooling and texts longer than a pass; scores come from the model's own head.
"""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml._checks import flag, items
from pyggml._context_options import ContextOptions
from pyggml._native import choice, int32_array
from pyggml.context import Context
from pyggml.determinism import require_determinism
from pyggml.errors import (
    ClosedError,
    ContextOverflowError,
    EmptyPromptError,
    InvalidParameterError,
    UnsupportedArchitectureError,
)
from pyggml.model import Model
from pyggml.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Pooling = Literal["mean", "cls", "last"]
Text = str | Sequence[int] | npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.int32]
T = TypeVar("T")

# Tokens per forward pass, unless a text that cannot be split is longer. More would not be faster, and each needs
# n_vocab floats of scratch memory.
_PASS_TOKENS = 512
_CELL_PAD = 256  # contexts round their number of cells up to a multiple of this
# Texts per pass. A recurrent model allocates a state for every possible sequence, so it gets only one.
_PASS_TEXTS = 32

_POOL: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda rows: rows.mean(axis=0, dtype=np.float64).astype(np.float32),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}
# The metadata's numbers, from upstream's enum llama_pooling_type.
_POOLING_OF_FILE = {"1": "mean", "2": "cls", "3": "last"}


class Embedder:
    """Embeds and reranks with one model. Thread-safe: calls take turns, one forward pass at a time.

    Contexts are created on first use.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        n_ctx: int,
        n_threads: int | None = None,
        deterministic: bool = False,
    ) -> None:
        """Creates it without allocating anything.

        Args:
            model: the model, which the caller keeps open.
            tokenizer: the model's tokenizer.
            n_ctx: most tokens of one text.
            n_threads: compute threads; None: one per core.
            deterministic: refuse unless each text gets the bits that it gets alone.
        """
        self._model = model
        self._tokenizer = tokenizer
        self._n_ctx = n_ctx
        self._lock = threading.Lock()  # held during a forward pass; _door never is, so an event loop may take it
        self._door = threading.Lock()
        self._tokens = _GrowingContext(model, "none", n_ctx, n_threads, deterministic=deterministic)
        self._head = _GrowingContext(model, "rank", n_ctx, n_threads, deterministic=deterministic)
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def embed(
        self,
        texts: str | Sequence[Text],
        *,
        normalize: bool,
        pooling: Pooling | None,
        parse_special: bool,
        given_up: threading.Event | None = None,
    ) -> Floats:
        """See :meth:`LLM.embed <pyggml.llm.LLM.embed>`. Stops early once ``given_up`` is set."""
        self._require_single_stack()
        normalize = flag("normalize", normalize)
        pool = _POOL[self._pooling if pooling is None else _checked_pooling(pooling)]
        rows = [self._ids(index, text, parse_special) for index, text in enumerate(_as_list("texts", texts))]
        vectors = np.zeros((len(rows), self._model.n_embd_out), np.float32)
        for indices in self._tokens.passes([len(ids) for ids in rows]):
            if given_up is not None and given_up.is_set():
                break
            with self._turn():
                tokens = self._tokens.of_tokens([rows[index] for index in indices])
            for index, matrix in zip(indices, tokens, strict=True):
                vectors[index] = pool(matrix)
        found = _unit(vectors) if normalize else vectors
        return found[0] if isinstance(texts, str) else found

    def rerank(
        self, query: str, documents: Sequence[str], *, normalize: bool, given_up: threading.Event | None = None
    ) -> Floats:
        """See :meth:`LLM.rerank <pyggml.llm.LLM.rerank>`. Stops early once ``given_up`` is set."""
        self._require_single_stack()
        normalize = flag("normalize", normalize)
        self._require_head(normalize)
        rows = self._pairs(query, documents)
        scores = np.zeros(len(rows), np.float32)
        for indices in self._head.passes([len(ids) for ids in rows]):
            if given_up is not None and given_up.is_set():
                break
            with self._turn():
                scores[indices] = self._head.of_sequences([rows[index] for index in indices])[:, 0]
        return _sigmoid(scores) if normalize else scores

    def pairs(self, query: str, documents: Sequence[str]) -> list[list[int]]:
        """See :meth:`LLM.rerank_ids <pyggml.llm.LLM.rerank_ids>`."""
        self._require_head(normalize=False)
        return [pair.tolist() for pair in self._pairs(query, documents)]

    async def in_background(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Runs :meth:`embed` or :meth:`rerank` on another thread; cancelling the task stops it early."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        given_up = threading.Event()
        call = functools.partial(work, *args, given_up=given_up, **kwargs)
        with self._door:
            self._require_open()
            self._executor = self._executor or ThreadPoolExecutor(1, "pyggml-embed")
            result = asyncio.get_running_loop().run_in_executor(self._executor, call)
        try:
            return await result
        finally:
            given_up.set()

    def close(self) -> None:
        """Frees its contexts once a running forward pass ends. Can be called repeatedly."""
        with self._door:
            self._closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False)  # queued calls still run, and raise ClosedError
        with self._lock:
            self._tokens.close()
            self._head.close()

    # --- inside -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            self._require_open()
            yield

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError("the model was closed")

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
                "is not rank), so it cannot rerank: load a reranker, or compare embeddings from embed()"
            )
        if normalize and self._model.n_cls_out > 1:
            raise InvalidParameterError(
                f"normalize needs a head with a single score; this model's has {self._model.n_cls_out} outputs. Pass "
                "normalize=False"
            )

    @functools.cached_property
    def _pooling(self) -> str:
        """The file's kind of pooling, "mean" if it has none."""
        return _POOLING_OF_FILE.get(self._model.metadata.get(f"{self._model.arch}.pooling_type", ""), "mean")

    def _ids(self, index: int, text: Text, parse_special: bool) -> _Ids:
        ids = self._tokenizer.encode(text, parse_special=parse_special) if isinstance(text, str) else text
        return self._checked(f"text {index}", int32_array(f"text {index}", ids))

    def _checked(self, name: str, ids: _Ids) -> _Ids:
        if len(ids) == 0:
            raise EmptyPromptError(f"{name} has no tokens; pass some text or token ids")
        if len(ids) > self._n_ctx:
            raise ContextOverflowError(
                f"{name} has {len(ids)} tokens, but the context holds only {self._n_ctx}: shorten it"
                + (" or load with a larger n_ctx" if self._n_ctx < self._model.n_ctx_train else "")
            )
        outside = np.flatnonzero((ids < 0) | (ids >= self._model.vocab.n_tokens))
        if len(outside) > 0:
            raise InvalidParameterError(
                f"token id {ids[outside[0]]} at index {outside[0]} of {name} is outside the vocabulary, 0 to "
                f"{self._model.vocab.n_tokens - 1}"
            )
        return ids

    def _pairs(self, query: str, documents: Sequence[str]) -> list[_Ids]:
        texts = _as_list("documents", documents)
        return [self._pair(index, query, document) for index, document in enumerate(texts)]

    def _pair(self, index: int, query: str, document: str) -> _Ids:
        template = self._model.chat_template("rerank")
        if template is not None:
            ids = self._filled(template, {"{query}": query, "{document}": document})
        else:
            ids = self._joined(query, document)
        return self._checked(f"the query with document {index}", int32_array("the pair", ids))

    def _joined(self, query: str, document: str) -> list[int]:
        """BOS query EOS SEP document EOS, without tokens that the vocabulary does not add.

        BERT's has no EOS but ends a text with SEP, so that a single SEP goes between the two.
        """
        vocab = self._model.vocab
        around = self._tokenizer.encode("")
        bos = around[:1] if vocab.add_bos else []
        end = around[len(bos) :]
        ends_with_sep = vocab.eos is None and end == [vocab.sep]
        sep = [vocab.sep] if vocab.add_sep and vocab.sep is not None and not ends_with_sep else []
        first, second = (self._plain(text) for text in (query, document))
        return [*bos, *first, *end, *sep, *second, *end]

    def _filled(self, template: str, values: dict[str, str]) -> list[int]:
        """Fills the template; special tokens are read in it, but not in the caller's texts."""
        vocab = self._model.vocab
        pieces = self._tokenizer.encode(template, add_special=False, parse_special=True)
        special = {vocab.text(token_id): token_id for token_id in pieces if vocab.is_control(token_id)}
        ids = [vocab.bos] if vocab.add_bos and vocab.bos is not None and pieces[:1] != [vocab.bos] else []
        longest_first = sorted(special, key=len, reverse=True)
        for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", template) if special else [template]:
            if part in special:
                ids.append(special[part])
            elif part:
                text = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], part)
                ids += self._plain(text)
        return ids

    def _plain(self, text: str) -> list[int]:
        """The ids of a caller's text, in which special tokens are not read."""
        return self._tokenizer.encode(text, add_special=False, parse_special=False)


class _GrowingContext:
    """A context that is created on first use, and recreated for longer texts. Not thread-safe."""

    def __init__(
        self,
        model: Model,
        pooling: Literal["none", "rank"],
        n_ctx: int,
        n_threads: int | None,
        *,
        deterministic: bool,
    ) -> None:
        self._model = model
        self._pooling = pooling
        self._n_ctx = n_ctx
        self._n_threads = n_threads
        self._deterministic = deterministic
        self._n_texts = _n_texts(model)
        self._context: Context | None = None

    def passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yields the indices of texts to compute in each pass, grouping similar lengths."""
        batch: list[int] = []
        n_tokens = 0
        for index in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
            if batch and (n_tokens + lengths[index] > _PASS_TOKENS or len(batch) == self._n_texts):
                yield batch
                batch, n_tokens = [], 0
            batch.append(index)
            n_tokens += lengths[index]
        if batch:
            yield batch

    def of_tokens(self, texts: Sequence[_Ids]) -> list[Floats]:
        """The embeddings of each text's tokens: float32, (n_tokens, n_embd_out)."""
        lengths = [len(text) for text in texts]
        context = self._cleared(sum(lengths))
        ids, seq_ids = np.concatenate(texts), np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        rows = []
        for first in range(0, len(ids), context.n_batch):
            part = slice(first, first + context.n_batch)
            self._compute(context, ids[part], seq_ids[part])
            rows.append(context.embeddings())
        return np.split(np.concatenate(rows), np.cumsum(lengths)[:-1])

    def of_sequences(self, texts: Sequence[_Ids]) -> Floats:
        """The head's output for each text: float32, (n_texts, n_cls_out)."""
        lengths = [len(text) for text in texts]
        context = self._cleared(sum(lengths))
        self._compute(context, np.concatenate(texts), np.repeat(np.arange(len(texts), dtype=np.int32), lengths))
        return np.stack([context.embeddings_seq(seq_id) for seq_id in range(len(texts))])

    def close(self) -> None:
        """Frees the context; the next call would create another."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _compute(self, context: Context, ids: _Ids, seq_ids: _Ids) -> None:
        if self._model.has_encoder:
            context.encode(ids, seq_id=seq_ids)
        else:
            context.decode(ids, seq_id=seq_ids, output="all")

    def _cleared(self, n_tokens: int) -> Context:
        """An empty context with room for a pass of ``n_tokens`` tokens."""
        if self._context is None or self._context.n_ctx < n_tokens:
            self.close()
            self._context = self._make(n_tokens)
        if self._context.has_memory:
            self._context.memory_clear(data=False)
        return self._context

    def _make(self, n_tokens: int) -> Context:
        options = context_options(self._model, self._pooling, self._n_ctx, n_tokens, self._n_threads)
        context = Context(self._model, **vars(options))
        try:
            if self._deterministic:
                require_determinism(context)
        except BaseException:
            context.close()
            raise
        return context


def context_options(
    model: Model, pooling: Literal["none", "rank"], n_ctx: int, n_tokens: int, n_threads: int | None = None
) -> ContextOptions:
    """The options of a context for passes of ``n_tokens`` tokens, with texts of at most ``n_ctx``."""
    n_cells = _PASS_TOKENS
    while n_cells < n_tokens:
        n_cells *= 2
    # The bound is rounded up because upstream rounds passes down to a multiple of the number of sequences.
    n_cells = max(min(n_cells, -(-n_ctx // _CELL_PAD) * _CELL_PAD), _PASS_TOKENS)
    n_batch = n_cells if _is_whole(model, pooling) else _PASS_TOKENS
    return ContextOptions(
        n_ctx=n_cells,
        n_batch=n_batch,
        n_ubatch=n_batch,
        n_seq_max=_n_texts(model),
        n_threads=n_threads,
        embeddings=True,
        pooling=pooling,
    )


def _is_whole(model: Model, pooling: Literal["none", "rank"]) -> bool:
    """Whether a text must be computed in one pass: if tokens see later ones, or if the graph itself pools."""
    return pooling == "rank" or not model.is_causal or model.has_encoder


def _n_texts(model: Model) -> int:
    return 1 if model.is_recurrent or model.is_hybrid else _PASS_TEXTS


def _as_list(name: str, texts: str | Sequence[T]) -> list[Any]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, (Sequence, np.ndarray)):
        raise InvalidParameterError(f"{name} must be a text or a sequence of texts, not {type(texts).__name__}")
    return items(name, texts)


def _checked_pooling(pooling: str) -> str:
    choice("pooling", pooling, dict.fromkeys(_POOL, 0))
    return pooling


def _unit(vectors: Floats) -> Floats:
    """Scales each vector to length 1; zero vectors stay unchanged."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def _sigmoid(scores: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)), np.float32)
