"""Which columns of the weights matter: the squares of the activations that meet them while a text is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyggml.imatrix import ImportanceMatrix
from pyggml.importer.convert import Progress
from pyggml.llm import LLM
from pyggml.source import Source

#: A text, the path of a file that holds one, or token ids.
Text = str | os.PathLike[str] | Sequence[int] | npt.NDArray[np.integer[Any]]


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
        progress: called with the part that is done, 0 to 1; returning False stops.

    Raises:
        As :func:`pyggml.load`, and
        InvalidParameterError: the text has too few tokens, or an argument cannot be.
        EngineError: ``progress`` stopped, or an activation was no number.
    """
    raise NotImplementedError
