"""How well a model predicts a text."""

from __future__ import annotations

from dataclasses import dataclass

from pyggml.importer.convert import Progress
from pyggml.llm import LLM
from pyggml.quantization.collecting import Text
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
        text: at least two chunks; a path (not a str) means the file.
        n_ctx: tokens of a chunk.
        n_chunks: chunks to read; None: all.
        device: as for :func:`pyggml.load`; a loaded model stays where it is.
        n_threads: that compute; None: one for each core.
        progress: called with the part that is done, 0 to 1; returning False stops.

    Raises:
        As :func:`pyggml.load`, and
        InvalidParameterError: the text has too few tokens, or an argument cannot be.
        EngineError: ``progress`` stopped.
    """
    raise NotImplementedError
