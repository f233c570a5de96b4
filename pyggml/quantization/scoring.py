"""How well a model predicts a text."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pyggml.context import Context
from pyggml.llm import LLM
from pyggml.model import Progress
from pyggml.quantization.reading import PASS_TOKENS, Ids, Pass, Text, chunks_of, n_together, opened, passes
from pyggml.source import Source


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text; less is better.

    Attributes:
        value: e to the mean negative log-likelihood of the tokens scored.
        stderr: its standard error.
        n_tokens: scored.
        n_chunks: read.
        n_ctx: tokens of a chunk, of which the second half is scored.
    """

    value: float
    stderr: float
    n_tokens: int
    n_chunks: int
    n_ctx: int


def perplexity(
    source: Source | LLM,
    text: Text,
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    device: str = "auto",
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """How well a model predicts a text, by the definition of ``llama-perplexity``, so that numbers compare.

    The text is read in chunks of ``n_ctx`` tokens, each by itself and, where the vocabulary has it so, with BOS in
    place of its first token; the tokens of its second half are scored.

    Args:
        source: as for :func:`pyggml.load`; or a loaded model.
        text: at least ``n_ctx`` tokens; a path (not a str) means the file.
        n_ctx: tokens of a chunk.
        n_chunks: chunks to read; None: all.
        device: as for :func:`pyggml.load`; a loaded model stays where it is.
        n_threads: that compute; None: one for each core.
        progress: called with the part that is done, 0 to 1, and before that while a model is downloaded or imported;
            returning False stops.

    Raises:
        As :func:`pyggml.load`, and
        InvalidParameterError: the text has too few tokens, or an argument cannot be.
        EngineError: ``progress`` stopped.
    """
    with opened(source, device, progress) as (model, tokenizer):
        chunks = chunks_of(text, model, tokenizer, n_ctx, n_chunks)
        with Context(
            model,
            n_ctx=n_together(chunks) * chunks.shape[1],
            n_batch=PASS_TOKENS,
            n_seq_max=n_together(chunks),
            n_threads=n_threads,
        ) as context:
            logprobs = [_logprobs(context, chunks, each) for each in passes(chunks, progress, "computing a perplexity")]
    return _perplexity(-np.concatenate(logprobs).astype(np.float64), chunks)


def _logprobs(context: Context, chunks: Ids, each: Pass) -> npt.NDArray[np.float32]:
    """Of the tokens that follow those of a pass, as far as they are scored."""
    n_ctx = chunks.shape[1]
    positions = np.arange(each.positions.start, each.positions.stop)
    is_scored = (positions >= n_ctx // 2) & (positions < n_ctx - 1)
    if each.is_first:
        context.memory_clear(data=False)
    context.decode(each.token_ids.reshape(-1), seq_id=each.seq_ids, output=np.tile(is_scored, len(each.token_ids)))
    if not is_scored.any():
        return np.empty(0, np.float32)
    return context.logprobs(chunks[each.chunks][:, positions[is_scored] + 1].reshape(-1))


def _perplexity(losses: npt.NDArray[np.float64], chunks: Ids) -> Perplexity:
    with np.errstate(over="ignore"):  # of a model that is out of its mind: infinite
        value = float(np.exp(losses.mean()))
    stderr = math.sqrt(losses.var() / (len(losses) - 1)) * value if len(losses) > 1 else math.nan
    return Perplexity(value, stderr, len(losses), len(chunks), chunks.shape[1])
