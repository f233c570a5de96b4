"""Forward passes of texts, in separate contexts in which each text is a sequence."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from pyggml._core.fields import shared
from pyggml._native.adapter import Adapter
from pyggml._native.batch_invariance import require_batch_invariance
from pyggml._native.context import Context
from pyggml._native.context_options import ContextOptions
from pyggml._native.model import Model
from pyggml._native.pooling import pooled
from pyggml._native.rope_options import RopeOptions
from pyggml._native.thread_tuner import ThreadTuner
from pyggml._native.token_batch import Ids, TokenBatch
from pyggml.errors import EngineError, OutOfMemoryError
from pyggml.generation.embedding.pass_texts import Floats, PassTexts

Kind = Literal["none", "rank"]

#: Tokens per pass, unless a text is longer. More would not be faster, and each needs n_vocab floats of scratch memory.
BATCH_TOKENS = 512
_CELL_PAD = 256  # contexts round their number of cells up to a multiple of this
# Texts per pass. A recurrent model allocates a state for every possible sequence, so it gets only one.
_BATCH_TEXTS = 64


class BatchEncoder(ABC):
    """Computes passes. Not thread-safe.

    Attributes:
        n_texts: the most texts of a pass.
    """

    def __init__(self, n_texts: int) -> None:
        """Compute at most ``n_texts`` in a pass."""
        self.n_texts = n_texts

    @abstractmethod
    def outputs(self, parts: Sequence[PassTexts], adapters: Mapping[Adapter, float]) -> list[Floats]:
        """Compute a pass of texts that all have one kind of results.

        Args:
            parts: the texts.
            adapters: LoRA adapters to compute all of them with, and their scales.

        Returns:
            The results of each part: float32, (n_texts, n_columns), or for "tokens" (n_tokens, n_embd_out).
        """

    @abstractmethod
    def close(self) -> None:
        """Free the context, if any; the next call would create another."""


class GrowingContext(BatchEncoder):
    """A context that is created on first use, and recreated for longer texts. Not thread-safe."""

    def __init__(
        self, model: Model, pooling: Kind, n_ctx: int, n_threads: int | None, deterministic: bool, rope: RopeOptions
    ) -> None:
        """Create it without allocating anything.

        Args:
            model: the model, which the caller keeps open.
            pooling: "none" for token embeddings, "rank" for the scores of the model's head.
            n_ctx: maximum number of tokens of one text.
            n_threads: compute threads; None: as many as are fastest while other programs run.
            deterministic: refuse unless each text gets the same bits in a batch as alone.
            rope: the context's options for RoPE.
        """
        super().__init__(n_texts(model))
        self._model = model
        self._pooling = pooling
        self._n_ctx = n_ctx
        self._n_threads = n_threads
        self._deterministic = deterministic
        self._rope = rope
        self._context: Context | None = None
        self._adapters: Mapping[Adapter, float] = {}  # of the pass
        self._kept: tuple[int, ...] = ()  # layers whose hidden states the context keeps
        self._tuner: ThreadTuner | None = None  # unless results would depend on the number of threads

    def outputs(self, parts: Sequence[PassTexts], adapters: Mapping[Adapter, float]) -> list[Floats]:
        """As the base class."""
        self._adapters = adapters
        texts = TokenBatch(
            np.concatenate([part.texts.ids for part in parts]), np.concatenate([part.texts.lengths for part in parts])
        )
        if self._pooling == "rank":
            scores = self._head_outputs(texts)
            return np.split(scores, np.cumsum([part.n_rows for part in parts])[:-1])
        rows = np.split(self._token_embeddings(texts), np.cumsum([len(part.texts.ids) for part in parts])[:-1])
        return [_result(part, vectors) for part, vectors in zip(parts, rows, strict=True)]

    def close(self) -> None:
        """As the base class."""
        context = self._context  # a signal handler may close this between any two lines
        if context is not None:
            context.close()
            self._context = None

    def layer_states(self, ids: Ids, layers: Sequence[int], adapters: Mapping[Adapter, float]) -> Floats:
        """Compute the hidden states of a text: float32, (n_layers, n_tokens, n_embd).

        Args:
            ids: token ids.
            layers: numbers of layers, 0 to n_layer; the last is the model's output.
            adapters: LoRA adapters to compute it with, and their scales.

        Raises:
            UnsupportedArchitectureError: the engine does not expose the states of this architecture.
        """
        self._adapters = adapters
        kept = tuple(sorted({layer for layer in layers if layer < self._model.n_layer}))
        if kept != self._kept:
            self.close()
            self._kept = kept
        context = self._cleared(len(ids))
        parts = []
        for first in range(0, len(ids), context.n_batch):
            part = ids[first : first + context.n_batch]
            self._compute(context, part, np.zeros(len(part), np.int32))
            parts.append(np.stack([context.layer(i) if i in kept else context.embeddings() for i in layers]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _token_embeddings(self, texts: TokenBatch) -> Floats:
        """Compute the vectors of all tokens: float32, (n_tokens, n_embd_out)."""
        seq_ids, context = _seq_ids(texts), self._cleared(len(texts.ids))
        rows = []
        for first in range(0, len(seq_ids), context.n_batch):
            part = slice(first, first + context.n_batch)
            self._compute(context, texts.ids[part], seq_ids[part])
            rows.append(context.embeddings())
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def _head_outputs(self, texts: TokenBatch) -> Floats:
        """Compute the head's outputs: float32, (n_texts, n_cls_out)."""
        context = self._cleared(len(texts.ids))
        self._compute(context, texts.ids, _seq_ids(texts))
        return np.stack([context.embeddings_seq(seq_id) for seq_id in range(len(texts.lengths))])

    def _compute(self, context: Context, ids: Ids, seq_ids: Ids) -> None:
        try:
            tuned = self._tuner.tuned(context, len(ids)) if self._tuner else contextlib.nullcontext()
            with context.adapted(self._adapters), tuned:
                if self._model.has_encoder:
                    context.encode(ids, seq_id=seq_ids)
                else:
                    context.decode(ids, seq_id=seq_ids, output="all")
        except (EngineError, OutOfMemoryError):
            self.close()  # the error may have left it unusable
            raise

    def _cleared(self, n_tokens: int) -> Context:
        """Return an empty context for a batch of ``n_tokens`` tokens."""
        context = self._context  # as in close()
        if context is None or context.n_ctx < n_tokens:
            self.close()
            context = self._context = self._make(n_tokens)
        if context.has_memory:
            context.memory_clear(data=False)
        return context

    def _make(self, n_tokens: int) -> Context:
        options = context_options(self._model, self._pooling, self._n_ctx, n_tokens, self._rope, self._n_threads)
        context = Context(self._model, **vars(options))
        try:
            if self._kept:
                context.keep_layers(self._kept)
            if self._deterministic:
                require_batch_invariance(context)
            if self._n_threads is None and not context.not_batch_invariant():
                self._tuner = self._tuner or ThreadTuner()
        except BaseException:
            context.close()
            raise
        return context


def _seq_ids(texts: TokenBatch) -> Ids:
    """Return the sequence of each token: the index of its text."""
    return np.repeat(np.arange(len(texts.lengths), dtype=np.int32), texts.lengths)


def _result(part: PassTexts, rows: Floats) -> Floats:
    """Return the results for the vectors of the tokens."""
    return rows if part.kind == "tokens" else pooled(rows, part.texts.lengths, part.pooling, part.n_skipped)


def context_options(
    model: Model, pooling: Kind, n_ctx: int, n_tokens: int, rope: RopeOptions, n_threads: int | None = None
) -> ContextOptions:
    """Options of a context for batches of ``n_tokens`` tokens, with texts of at most ``n_ctx``."""
    n_cells = BATCH_TOKENS
    while n_cells < n_tokens:
        n_cells *= 2
    # The bound is rounded up because upstream rounds batches down to a multiple of the number of sequences.
    n_cells = max(min(n_cells, -(-n_ctx // _CELL_PAD) * _CELL_PAD), BATCH_TOKENS)
    # A text cannot be split if its tokens attend to later ones, or the graph itself pools.
    is_split = pooling != "rank" and model.is_causal and not model.has_encoder
    n_batch = BATCH_TOKENS if is_split else n_cells
    return ContextOptions(
        n_ctx=n_cells,
        n_batch=n_batch,
        n_ubatch=n_batch,
        n_seq_max=n_texts(model),
        n_threads=n_threads,
        embeddings=True,
        pooling=pooling,
        **shared(rope, RopeOptions),
    )


def n_texts(model: Model) -> int:
    """Maximum number of texts in a batch."""
    return 1 if model.is_recurrent or model.is_hybrid else _BATCH_TEXTS
