"""The forward passes of an Embedder: separate contexts over a model's weights, in which each text is a sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from pyggml._native.batch_invariance import require_batch_invariance
from pyggml._native.context import Context
from pyggml._native.context_options import ContextOptions
from pyggml._native.model import Model
from pyggml.errors import EngineError, OutOfMemoryError

Kind = Literal["none", "rank"]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]

# Tokens per forward pass, unless a text that cannot be split is longer. More would not be faster, and each needs
# n_vocab floats of scratch memory.
_PASS_TOKENS = 512
_CELL_PAD = 256  # contexts round their number of cells up to a multiple of this
# Texts per pass. A recurrent model allocates a state for every possible sequence, so it gets only one.
_PASS_TEXTS = 32


class Passes(ABC):
    """Forward passes over several texts each. Not thread-safe."""

    def __init__(self, n_texts: int) -> None:
        """Computes at most ``n_texts`` in a pass."""
        self._n_texts = n_texts

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

    @abstractmethod
    def of_tokens(self, texts: Sequence[Ids]) -> list[Floats]:
        """The embeddings of each text's tokens: float32, (n_tokens, n_embd_out)."""

    @abstractmethod
    def of_sequences(self, texts: Sequence[Ids]) -> Floats:
        """The head's output for each text: float32, (n_texts, n_cls_out)."""

    @abstractmethod
    def close(self) -> None:
        """Frees what it holds; the next call would take it again."""


def passes_of(
    model: Model, n_ctx: int, n_threads: int | None = None, *, deterministic: bool = False
) -> Callable[[Kind], GrowingContext]:
    """Factory of the contexts of an :class:`~pyggml.generation.embedding.Embedder`; arguments as for GrowingContext."""
    return lambda kind: GrowingContext(model, kind, n_ctx, n_threads, deterministic=deterministic)


class GrowingContext(Passes):
    """A context that is created on first use, and recreated for longer texts. Not thread-safe."""

    def __init__(
        self,
        model: Model,
        pooling: Kind,
        n_ctx: int,
        n_threads: int | None,
        *,
        deterministic: bool,
    ) -> None:
        """Creates it without allocating anything.

        Args:
            model: the model, which the caller keeps open.
            pooling: "none" for the vectors of tokens, "rank" for the scores of the model's head.
            n_ctx: most tokens of one text.
            n_threads: compute threads; None: one per core.
            deterministic: refuse unless each text gets the bits that it gets alone.
        """
        super().__init__(n_texts(model))
        self._model = model
        self._pooling = pooling
        self._n_ctx = n_ctx
        self._n_threads = n_threads
        self._deterministic = deterministic
        self._context: Context | None = None

    def of_tokens(self, texts: Sequence[Ids]) -> list[Floats]:
        """As the base class."""
        lengths = [len(text) for text in texts]
        context = self._cleared(sum(lengths))
        ids, seq_ids = np.concatenate(texts), np.repeat(np.arange(len(texts), dtype=np.int32), lengths)
        rows = []
        for first in range(0, len(ids), context.n_batch):
            part = slice(first, first + context.n_batch)
            self._compute(context, ids[part], seq_ids[part])
            rows.append(context.embeddings())
        return np.split(np.concatenate(rows), np.cumsum(lengths)[:-1])

    def of_sequences(self, texts: Sequence[Ids]) -> Floats:
        """As the base class."""
        lengths = [len(text) for text in texts]
        context = self._cleared(sum(lengths))
        self._compute(context, np.concatenate(texts), np.repeat(np.arange(len(texts), dtype=np.int32), lengths))
        return np.stack([context.embeddings_seq(seq_id) for seq_id in range(len(texts))])

    def close(self) -> None:
        """Frees the context; the next call would create another."""
        context = self._context  # a signal's handler may close this between any two lines
        if context is not None:
            context.close()
            self._context = None

    def _compute(self, context: Context, ids: Ids, seq_ids: Ids) -> None:
        try:
            if self._model.has_encoder:
                context.encode(ids, seq_id=seq_ids)
            else:
                context.decode(ids, seq_id=seq_ids, output="all")
        except (EngineError, OutOfMemoryError):
            self.close()  # what failed may have left it unusable
            raise

    def _cleared(self, n_tokens: int) -> Context:
        """An empty context with room for a pass of ``n_tokens`` tokens."""
        context = self._context  # as in close()
        if context is None or context.n_ctx < n_tokens:
            self.close()
            context = self._context = self._make(n_tokens)
        if context.has_memory:
            context.memory_clear(data=False)
        return context

    def _make(self, n_tokens: int) -> Context:
        options = context_options(self._model, self._pooling, self._n_ctx, n_tokens, self._n_threads)
        context = Context(self._model, **vars(options))
        try:
            if self._deterministic:
                require_batch_invariance(context)
        except BaseException:
            context.close()
            raise
        return context


def context_options(
    model: Model, pooling: Kind, n_ctx: int, n_tokens: int, n_threads: int | None = None
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
        n_seq_max=n_texts(model),
        n_threads=n_threads,
        embeddings=True,
        pooling=pooling,
    )


def _is_whole(model: Model, pooling: Kind) -> bool:
    """Whether a text must be computed in one pass: if tokens see later ones, or if the graph itself pools."""
    return pooling == "rank" or not model.is_causal or model.has_encoder


def n_texts(model: Model) -> int:
    """How many texts a pass computes."""
    return 1 if model.is_recurrent or model.is_hybrid else _PASS_TEXTS
