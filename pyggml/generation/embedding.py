"""Embeddings of texts, and scores of pairs of texts.

Texts are computed in batches (:mod:`pyggml.generation.embedding_batches`). Token embeddings are pooled here, so that
one context serves all kinds of pooling and texts longer than a batch; scores come from the model's own head.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.cached_property import cached_property
from pyggml._core.checks import choice, flag, integer, items, shown
from pyggml._core.locks import NonReentrantLock
from pyggml._native.model import Model
from pyggml.errors import (
    ClosedError,
    ContextOverflowError,
    EmptyPromptError,
    InvalidParameterError,
    UnsupportedArchitectureError,
)
from pyggml.generation.embedding_batches import BatchEncoder, Floats, Ids, Kind
from pyggml.tokenizer import Tokenizer

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Pooling = Literal["mean", "cls", "last"]
TokenPooling = Literal["none"]
Text = str | Sequence[int] | npt.NDArray[np.integer[Any]]
T = TypeVar("T")

_POOL: dict[str, Callable[[Floats], Floats]] = {
    "mean": lambda rows: rows.mean(axis=0, dtype=np.float64).astype(np.float32),
    "cls": lambda rows: rows[0],
    "last": lambda rows: rows[-1],
}
_NO_ROWS = np.zeros((0, 0), np.float32)
# The metadata's numbers, from upstream's enum llama_pooling_type.
_POOLING_OF_FILE = {"1": "mean", "2": "cls", "3": "last"}


class Embedder:
    """Embeds and reranks with one model, one batch at a time. Thread-safe. Contexts are created on first use."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, n_ctx: int, make_encoder: Callable[[Kind], BatchEncoder]
    ) -> None:
        """Create it without allocating anything, for texts of at most ``n_ctx`` tokens; the caller owns the model."""
        self._model = model
        self._tokenizer = tokenizer
        self._n_ctx = n_ctx
        self._compute_lock = NonReentrantLock("embed() or rerank()")
        # Never held during a forward pass, since event loops take it.
        self._executor_lock = NonReentrantLock("aembed() or arerank()")
        self._token_encoder = make_encoder("none")
        self._head_encoder = make_encoder("rank")
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def embed(
        self,
        texts: str | Iterable[Text],
        *,
        normalize: bool = False,
        pooling: Pooling | TokenPooling | None = None,
        truncate: bool = False,
        max_tokens: int | None = None,
        parse_special: bool = True,
        cancelled: threading.Event | None = None,
    ) -> Floats | list[Floats]:
        """See :meth:`LLM.embed <pyggml.llm.LLM.embed>`. Stops early once ``cancelled`` is set."""
        self._require_single_stack()
        normalize, truncate = flag("normalize", normalize), flag("truncate", truncate)
        limit = self._n_ctx if max_tokens is None else integer("max_tokens", max_tokens, 1, self._n_ctx)
        name = self._pooling if pooling is None else choice("pooling", pooling, (*_POOL, "none"))
        rows = [self._ids(*each, parse_special, limit, truncate) for each in enumerate(_as_list("texts", texts))]
        found: Floats | list[Floats] = (
            [_NO_ROWS] * len(rows) if name == "none" else np.zeros((len(rows), self._model.n_embd_out), np.float32)
        )
        encoder = self._token_encoder
        for indices, matrices in self._computed(encoder, encoder.token_embeddings, rows, cancelled):
            for index, matrix in zip(indices, matrices, strict=True):
                vectors = matrix.copy() if name == "none" else _POOL[name](matrix)
                found[index] = _unit(vectors) if normalize else vectors
        return found[0] if isinstance(texts, str) else found

    def rerank(
        self, query: str, documents: Iterable[str], *, normalize: bool, cancelled: threading.Event | None = None
    ) -> Floats:
        """See :meth:`LLM.rerank <pyggml.llm.LLM.rerank>`. Stops early once ``cancelled`` is set."""
        self._require_single_stack()
        normalize = flag("normalize", normalize)
        self._require_head(normalize)
        rows = self._pairs(query, documents)
        scores = np.zeros(len(rows), np.float32)
        encoder = self._head_encoder
        for indices, outputs in self._computed(encoder, encoder.head_outputs, rows, cancelled):
            scores[indices] = outputs[:, 0]
        return _sigmoid(scores) if normalize else scores

    def pairs(self, query: str, documents: Iterable[str]) -> list[list[int]]:
        """See :meth:`LLM.rerank_ids <pyggml.llm.LLM.rerank_ids>`."""
        self._require_head(normalize=False)
        return [pair.tolist() for pair in self._pairs(query, documents)]

    async def in_background(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run :meth:`embed` or :meth:`rerank` on another thread; cancelling the task stops it early."""
        import asyncio
        from concurrent.futures import ThreadPoolExecutor

        cancelled = threading.Event()
        call = functools.partial(work, *args, cancelled=cancelled, **kwargs)
        with self._executor_lock.hold():
            self._require_open()
            self._executor = self._executor or ThreadPoolExecutor(1, "pyggml-embed")
            try:
                result = asyncio.get_running_loop().run_in_executor(self._executor, call)
            except RuntimeError:  # the interpreter is shutting down, or a signal handler has just closed the model
                raise ClosedError("the model was closed, or the interpreter is shutting down") from None
        try:
            return await result
        finally:
            cancelled.set()

    def close(self) -> None:
        """Free the contexts once a running forward pass ends. Safe to call again."""
        with self._executor_lock.hold_reentrant():
            self._closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False)  # queued calls still run, and raise ClosedError
        with self._compute_lock.hold_reentrant():
            self._token_encoder.close()
            self._head_encoder.close()

    # --- inside -------------------------------------------------------------------------------------------

    def _computed(
        self,
        encoder: BatchEncoder,
        compute: Callable[[list[Ids]], T],
        rows: list[Ids],
        cancelled: threading.Event | None,
    ) -> Iterator[tuple[list[int], T]]:
        """Yield the indices of the texts of each batch, and its results. Stop early once ``cancelled`` is set."""
        for indices in encoder.batches([len(ids) for ids in rows]):
            if cancelled is not None and cancelled.is_set():
                return
            with self._compute_lock.hold():
                self._require_open()
                results = compute([rows[index] for index in indices])
            yield indices, results

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

    @cached_property
    def _pooling(self) -> str:
        """The kind of pooling in the file's metadata, or "mean"."""
        return _POOLING_OF_FILE.get(self._model.metadata.get(f"{self._model.arch}.pooling_type", ""), "mean")

    def _ids(self, index: int, text: Text, parse_special: bool, limit: int, truncate: bool) -> Ids:
        ids = self._tokenizer.encode(text, parse_special=parse_special) if isinstance(text, str) else text
        if isinstance(ids, (bytes, Mapping)) or not isinstance(ids, Sized):
            way_out = "; for one text of token ids, write [[1, 2, 3]]" if isinstance(ids, Integral) else ""
            raise InvalidParameterError(
                f"texts[{index}] must be text or a list of token ids, not {shown(ids)}{way_out}"
            )
        ids = int32_array(f"texts[{index}]", ids)
        return self._checked(f"texts[{index}]", self._truncated(ids, limit) if truncate else ids, limit)

    def _truncated(self, ids: Ids, limit: int) -> Ids:
        """Drop the end of a text that is too long, but keep the special tokens after it, which models rely on."""
        if len(ids) <= limit:
            return ids
        n_end = len(ids) - self._model.vocab.inside(ids).stop
        return np.concatenate([ids[: max(0, limit - n_end)], ids[len(ids) - n_end :]])[:limit]

    def _checked(self, name: str, ids: Ids, limit: int | None = None) -> Ids:
        if len(ids) == 0:
            raise EmptyPromptError(f"{name} has no tokens; pass some text or token ids")
        if limit is not None and limit < min(self._n_ctx, len(ids)):
            raise ContextOverflowError(
                f"{name} has {len(ids)} tokens, more than max_tokens={limit}: shorten it, or pass truncate=True"
            )
        if len(ids) > self._n_ctx:
            raise ContextOverflowError(
                f"{name} has {len(ids)} tokens, but the context holds only {self._n_ctx}: " + self._shorter(limit)
            )
        outside = np.flatnonzero((ids < 0) | (ids >= self._model.vocab.n_tokens))
        if len(outside) > 0:
            raise InvalidParameterError(
                f"token id {ids[outside[0]]} at index {outside[0]} of {name} is outside the vocabulary, 0 to "
                f"{self._model.vocab.n_tokens - 1}"
            )
        return ids

    def _shorter(self, limit: int | None) -> str:
        ways = ["shorten it"]
        ways += ["pass truncate=True"] * (limit is not None)
        ways += ["load with a larger n_ctx"] * (self._n_ctx < self._model.n_ctx_train)
        return ", or ".join([", ".join(ways[:-1]), ways[-1]] if len(ways) > 1 else ways)

    def _pairs(self, query: str, documents: Iterable[str]) -> list[Ids]:
        texts = _as_list("documents", documents)
        template = self._model.chat_template("rerank")
        pairs = []
        for index, document in enumerate(texts):
            values = {"{query}": query, "{document}": document}
            ids = self._join(query, document) if template is None else self._fill(template, values)
            pairs.append(self._checked(f"the query with document {index}", int32_array("the pair", ids)))
        return pairs

    def _join(self, query: str, document: str) -> list[int]:
        """Return BOS query EOS SEP document EOS, without tokens that the vocabulary does not add.

        BERT's vocabulary has no EOS but ends a text with SEP, so that a single SEP separates the two.
        """
        vocab = self._model.vocab
        around = self._tokenizer.encode("")
        bos = around[:1] if vocab.add_bos else []
        end = around[len(bos) :]
        ends_with_sep = vocab.eos is None and end == [vocab.sep]
        sep = [vocab.sep] if vocab.add_sep and vocab.sep is not None and not ends_with_sep else []
        return [*bos, *self._plain(query), *end, *sep, *self._plain(document), *end]

    def _fill(self, template: str, values: dict[str, str]) -> list[int]:
        """Fill the template, whose special tokens are interpreted, with the caller's texts, whose are not."""
        vocab = self._model.vocab
        template_ids = self._tokenizer.encode(template, add_special=False, parse_special=True)
        special = {vocab.text(token_id): token_id for token_id in template_ids if vocab.is_control(token_id)}
        ids = [vocab.bos] if vocab.add_bos and vocab.bos is not None and template_ids[:1] != [vocab.bos] else []
        longest_first = sorted(special, key=len, reverse=True)
        for part in re.split("(" + "|".join(map(re.escape, longest_first)) + ")", template) if special else [template]:
            if part in special:
                ids.append(special[part])
            elif part:
                text = re.sub("|".join(map(re.escape, values)), lambda found: values[found[0]], part)
                ids += self._plain(text)
        return ids

    def _plain(self, text: str) -> list[int]:
        """Encode a caller's text without interpreting special tokens."""
        return self._tokenizer.encode(text, add_special=False, parse_special=False)


def _as_list(name: str, texts: str | Iterable[T]) -> list[Any]:
    return [texts] if isinstance(texts, str) else items(name, texts, "a text or a list of texts")


def _unit(vectors: Floats) -> Floats:
    """Scale a vector, or each row, to length 1; zero vectors stay unchanged."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), np.float32)


def _sigmoid(scores: Floats) -> Floats:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * scores)), np.float32)
