"""Importance matrices: sums of squared activations for each column of the weights, over a text."""

from __future__ import annotations

import os

from pyggml._native.activation_collector import Collector
from pyggml._native.imatrix import Importance, ImportanceMatrix
from pyggml.llm import LLM
from pyggml.progress import ProgressOption, progress_function, shows_progress
from pyggml.quantization.text_chunks import Text, batch_context, batches, open_model, tokenize_chunks
from pyggml.source import Source


@shows_progress("Computing an importance matrix")
def compute_imatrix(
    source: Source | LLM,
    text: Text,
    *,
    n_ctx: int = 512,
    n_chunks: int | None = None,
    process_output: bool = False,
    device: str = "auto",
    n_threads: int | None = None,
    progress: ProgressOption = None,
) -> ImportanceMatrix:
    """Run a model over a text and sum the squared inputs of each weight column, as ``llama-imatrix`` does.

    Args:
        source: as for :func:`pyggml.load`, or a loaded model.
        text: a text of at least ``n_ctx`` tokens; a path object (not a str) names a file.
        n_ctx: tokens per chunk.
        n_chunks: number of chunks to read; None: all.
        process_output: also collect for the output matrix, for which most quantisation mixes need no importances.
        device: as for :func:`pyggml.load`; ignored for a loaded model.
        n_threads: number of compute threads; None: one per core.
        progress: called with the fraction done, 0 to 1, first while a model is downloaded or imported. It returns False
            to stop. None: a bar in a notebook; False: no bar.

    Raises:
        InferError: as :func:`pyggml.load`.
        InvalidParameterError: the text has too few tokens, or an argument is invalid.
        EngineError: ``progress`` stopped it, or an activation was NaN.
    """
    collector = Collector(process_output=process_output)
    progress = progress_function(progress)
    with open_model(source, device, progress) as (model, tokenizer):
        chunks = tokenize_chunks(text, model, tokenizer, n_ctx, n_chunks)
        # All tokens are outputs, because the engine skips parts of the last layer and the output matrix for others.
        with batch_context(model, chunks, n_threads, collector) as context:
            for batch in batches(chunks, progress, "computing an importance matrix"):
                if batch.is_first:
                    context.memory_clear(data=False)
                context.decode(batch.token_ids.reshape(-1), seq_id=batch.seq_ids, output="all")
    entries = {
        name: Importance(squares, counts, activations)
        for name, (squares, activations, counts) in collector.sums().items()
    }
    datasets = (os.fsdecode(text),) if isinstance(text, os.PathLike) else ()
    return ImportanceMatrix(entries, datasets, chunks.shape[1], len(chunks))
