"""Which columns of the weights matter: the squares of the activations that meet them while a text is read."""

from __future__ import annotations

import os

from pyggml._collector import Collector
from pyggml.context import Context
from pyggml.imatrix import Importance, ImportanceMatrix
from pyggml.llm import LLM
from pyggml.model import Progress
from pyggml.quantization.reading import PASS_TOKENS, Text, chunks_of, n_together, opened, passes
from pyggml.source import Source


def compute_imatrix(
    source: Source | LLM,
    text: Text,
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    process_output: bool = False,
    device: str = "auto",
    n_threads: int | None = None,
    progress: Progress | None = None,
) -> ImportanceMatrix:
    """Reads a text with a model and adds up what meets each column of its weights, as ``llama-imatrix`` does.

    Args:
        source: as for :func:`pyggml.load`; or a loaded model.
        text: what to read, at least ``n_ctx`` tokens; a path (not a str) means the file.
        n_ctx: tokens of a chunk.
        n_chunks: chunks to read; None: all.
        process_output: also for the output matrix, which most mixtures leave at a type that needs none.
        device: as for :func:`pyggml.load`; a loaded model stays where it is.
        n_threads: that compute; None: one for each core.
        progress: called with the part that is done, 0 to 1, and before that while a model is downloaded or imported;
            returning False stops.

    Raises:
        As :func:`pyggml.load`, and
        InvalidParameterError: the text has too few tokens, or an argument cannot be.
        EngineError: ``progress`` stopped, or an activation was no number.
    """
    collector = Collector(process_output=process_output)
    with opened(source, device, progress) as (model, tokenizer):
        chunks = chunks_of(text, model, tokenizer, n_ctx, n_chunks)
        # All tokens are output: what the last layer and the output meet is left out for others.
        with Context(
            model,
            n_ctx=n_together(chunks) * chunks.shape[1],
            n_batch=PASS_TOKENS,
            n_seq_max=n_together(chunks),
            n_threads=n_threads,
            collector=collector,
        ) as context:
            for each in passes(chunks, progress, "computing an importance matrix"):
                if each.is_first:
                    context.memory_clear(data=False)
                context.decode(each.token_ids.reshape(-1), seq_id=each.seq_ids, output="all")
    entries = {
        name: Importance(squares, counts, activations)
        for name, (squares, activations, counts) in collector.sums().items()
    }
    datasets = (os.fsdecode(text),) if isinstance(text, os.PathLike) else ()
    return ImportanceMatrix(entries, datasets, chunks.shape[1], len(chunks))
