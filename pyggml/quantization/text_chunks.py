"""Batches of independent chunks of a text."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml._core.c_values import int32_array
from pyggml._core.checks import INT32_MAX, callback, integer
from pyggml._native.activation_collector import Collector
from pyggml._native.context import Context
from pyggml._native.model import Model
from pyggml.errors import EngineError, InvalidParameterError, ModelNotFoundError, UnsupportedArchitectureError
from pyggml.llm import LLM
from pyggml.memory.llm_context import checked_n_ctx, generates
from pyggml.model_loader import model_file
from pyggml.progress import Progress
from pyggml.source import Source
from pyggml.tokenizer import Tokenizer
from pyggml.tokenizer.hugging_face import tokenizer_for

#: A text, the path of a file that holds one, or token ids.
Text = str | os.PathLike[str] | Sequence[int] | npt.NDArray[np.integer[Any]]
Ids = npt.NDArray[np.int32]

#: Tokens per batch. More would not be faster, and each may need n_vocab floats.
BATCH_TOKENS = 512

# Upstream collects no activations from smaller batches.
_MIN_N_CTX = 16


@dataclass(frozen=True)
class Batch:
    """Positions of some chunks that are computed together.

    Attributes:
        chunks: the chunks, as sequences 0, 1, ...
        token_ids: (n_chunks, n_positions).
        is_first: the chunks begin here, so the KV cache must be cleared.
    """

    chunks: slice
    positions: slice
    token_ids: Ids
    is_first: bool

    @property
    def seq_ids(self) -> Ids:
        """The sequence of each token, (n_chunks * n_positions,)."""
        return np.repeat(np.arange(len(self.token_ids), dtype=np.int32), self.token_ids.shape[1])


@contextlib.contextmanager
def open_model(source: Source | LLM, device: str, progress: Progress | None) -> Iterator[tuple[Model, Tokenizer]]:
    """Open a model and its tokenizer. An already loaded model is not closed.

    Raises:
        As :func:`pyggml.load`.
        UnsupportedArchitectureError: the model does not generate text.
    """
    callback("progress", progress)
    if isinstance(source, LLM):
        _require_generating(source.model)
        yield source.model, source.tokenizer
        return
    with Model(model_file(source, progress), device=device) as model:
        _require_generating(model)
        yield model, tokenizer_for(model, None)


def tokenize_chunks(text: Text, model: Model, tokenizer: Tokenizer, n_ctx: int, n_chunks: int | None) -> Ids:
    """Split a text into whole chunks, (n_chunks, n_ctx). BOS replaces each first token if the vocabulary adds BOS.

    Raises:
        InvalidParameterError: the text has fewer than ``n_ctx`` tokens, or an argument is invalid.
        ModelNotFoundError: there is no such file.
    """
    n_ctx = checked_n_ctx(model, integer("n_ctx", n_ctx, _MIN_N_CTX, INT32_MAX))
    limit = INT32_MAX if n_chunks is None else integer("n_chunks", n_chunks, 1, INT32_MAX)
    ids = _token_ids(text, tokenizer)
    if len(ids) < n_ctx:
        raise InvalidParameterError(
            f"the text has {len(ids)} token{'s' * (len(ids) != 1)}, too few for a chunk of n_ctx={n_ctx}: use a longer "
            f"text or a smaller n_ctx (at least {_MIN_N_CTX})"
        )
    n = min(len(ids) // n_ctx, limit)
    chunks: Ids = ids[: n * n_ctx].reshape(n, n_ctx).copy()
    if model.vocab.add_bos and model.vocab.bos is not None:
        chunks[:, 0] = model.vocab.bos
    return chunks


def chunks_per_batch(chunks: Ids) -> int:
    """Return the number of chunks in a batch."""
    return min(max(BATCH_TOKENS // int(chunks.shape[1]), 1), len(chunks))


def batch_context(model: Model, chunks: Ids, n_threads: int | None, collector: Collector | None = None) -> Context:
    """Create a context for batches of chunks."""
    n_seq = chunks_per_batch(chunks)
    sizes = {"n_ctx": n_seq * chunks.shape[1], "n_batch": BATCH_TOKENS, "n_seq_max": n_seq}
    return Context(model, **sizes, n_threads=n_threads, collector=collector)


def batches(chunks: Ids, progress: Progress | None, task: str) -> Iterator[Batch]:
    """Yield all chunks in batches, and report progress after each.

    Raises:
        EngineError: ``progress`` stopped it.
    """
    n_chunks, n_ctx = chunks.shape
    step = chunks_per_batch(chunks)
    for first in range(0, n_chunks, step):
        together = slice(first, min(first + step, n_chunks))
        for start in range(0, n_ctx, BATCH_TOKENS):
            positions = slice(start, min(start + BATCH_TOKENS, n_ctx))
            yield Batch(together, positions, chunks[together, positions], is_first=start == 0)
            done = first * n_ctx + (together.stop - first) * positions.stop
            if progress is not None and progress(done / chunks.size) is False:
                raise EngineError(f"{task} was stopped by its progress callback")


def _require_generating(model: Model) -> None:
    if not generates(model):
        kind = f"a {model.arch} model, which does not predict text token by token"
        raise UnsupportedArchitectureError(f"{model.path} is {kind}")


def _token_ids(text: Text, tokenizer: Tokenizer) -> Ids:
    if isinstance(text, os.PathLike):
        try:
            text = Path(text).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise ModelNotFoundError(f"there is no text file at {Path(text)}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidParameterError(f"{Path(text)} cannot be read as text: {error}") from None
    # As in upstream's programs, special tokens in a corpus are plain text.
    ids = tokenizer.encode(text, parse_special=False) if isinstance(text, str) else text
    return int32_array("the text", ids)
