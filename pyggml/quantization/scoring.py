"""Perplexities."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyggml._core.html_forms import HTMLReady, Section
from pyggml._core.json_forms import JSONReady
from pyggml._native.context import Context
from pyggml.llm import LLM
from pyggml.progress import ProgressOption, progress_function, shows_progress
from pyggml.quantization.text_chunks import Batch, Ids, Text, batch_context, batches, open_model, tokenize_chunks
from pyggml.source import Source
from pyggml.units import counted


@dataclass(frozen=True)
class Perplexity(HTMLReady, JSONReady):
    """A model's perplexity on a text; lower is better. A notebook shows it with its standard error and the text's size.

    Attributes:
        value: e to the mean negative log-likelihood of the scored tokens.
        stderr: its standard error.
        n_tokens: number of scored tokens.
        n_chunks: number of chunks read.
        n_ctx: tokens per chunk, of which the second half is scored.
    """

    value: float
    stderr: float
    n_tokens: int
    n_chunks: int
    n_ctx: int

    def _html_sections(self) -> Iterator[Section]:
        yield Section(
            rows=(
                ("perplexity", f"{self.value:,.4f} ± {self.stderr:,.4f}"),
                ("text", f"{self.n_tokens:,} tokens scored, {counted(self.n_chunks, 'chunk')} of {self.n_ctx:,} read"),
            )
        )


@shows_progress("Computing a perplexity")
def perplexity(
    source: Source | LLM,
    text: Text,
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    device: str = "auto",
    n_threads: int | None = None,
    progress: ProgressOption = None,
) -> Perplexity:
    """Compute a model's perplexity on a text, defined as in ``llama-perplexity``.

    The text is read in independent chunks of ``n_ctx`` tokens, and the second half of each is scored. If the vocabulary
    adds BOS, it replaces the first token of each chunk.

    Args:
        source: as for :func:`pyggml.load`, or a loaded model.
        text: a text of at least ``n_ctx`` tokens; a path object (not a str) names a file.
        n_ctx: tokens per chunk.
        n_chunks: number of chunks to read; None: all.
        device: as for :func:`pyggml.load`; ignored for a loaded model.
        n_threads: number of compute threads; None: one per core.
        progress: called with the fraction done, 0 to 1, first while a model is downloaded or imported. It returns False
            to stop. None: a bar in a notebook; False: no bar.

    Raises:
        InferError: as :func:`pyggml.load`.
        InvalidParameterError: the text has too few tokens, or an argument is invalid.
        EngineError: ``progress`` stopped it.
    """
    progress = progress_function(progress)
    with open_model(source, device, progress) as (model, tokenizer):
        chunks = tokenize_chunks(text, model, tokenizer, n_ctx, n_chunks)
        with batch_context(model, chunks, n_threads) as context:
            steps = batches(chunks, progress, "computing a perplexity")
            logprobs = [_logprobs(context, chunks, batch) for batch in steps]
    return _perplexity(-np.concatenate(logprobs).astype(np.float64), chunks)


def _logprobs(context: Context, chunks: Ids, batch: Batch) -> npt.NDArray[np.float32]:
    """Return the log probabilities of the scored tokens that follow a batch's tokens."""
    n_ctx = chunks.shape[1]
    positions = np.arange(batch.positions.start, batch.positions.stop)
    is_scored = (positions >= n_ctx // 2) & (positions < n_ctx - 1)
    if batch.is_first:
        context.memory_clear(data=False)
    context.decode(batch.token_ids.reshape(-1), seq_id=batch.seq_ids, output=np.tile(is_scored, len(batch.token_ids)))
    if not is_scored.any():
        return np.empty(0, np.float32)
    return context.logprobs(chunks[batch.chunks][:, positions[is_scored] + 1].reshape(-1))


def _perplexity(losses: npt.NDArray[np.float64], chunks: Ids) -> Perplexity:
    with np.errstate(over="ignore"):  # a broken model's perplexity may be infinite
        value = float(np.exp(losses.mean()))
    stderr = math.sqrt(losses.var() / (len(losses) - 1)) * value if len(losses) > 1 else math.nan
    return Perplexity(value, stderr, len(losses), len(chunks), chunks.shape[1])
