"""Importance matrices: how much each column of each weight matrix matters, by the activations that met it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Importance:
    """What was seen of one tensor.

    Attributes:
        sums: of the squares of the activations of each column, (n_matrices, n_columns) float32; one matrix, or one for
            each expert.
        counts: how many rows of activations that were, (n_matrices,) int64; 0 for an expert that was never asked.
        activation_sums: of the activations themselves, as ``sums``; None where the file has none.
    """

    sums: Floats
    counts: npt.NDArray[np.int64]
    activation_sums: Floats | None = None


@dataclass(frozen=True)
class ImportanceMatrix:
    """The importances of a model's tensors, as :func:`pyggml.quantize` and ``llama-quantize`` use them.

    Attributes:
        entries: tensor name -> what was seen of it.
        datasets: names of the texts it was computed from, where known.
        chunk_size: tokens of a chunk of them.
        n_chunks: how many.
    """

    entries: Mapping[str, Importance]
    datasets: tuple[str, ...]
    chunk_size: int
    n_chunks: int

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ImportanceMatrix:
        """Reads a file, in upstream's GGUF format or the older one (``.dat``)."""
        raise NotImplementedError

    @classmethod
    def merged(cls, matrices: Iterable[ImportanceMatrix]) -> ImportanceMatrix:
        """One of several, as if it had been computed from all their texts."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a GGUF file that ``llama-quantize`` and ``llama-imatrix`` read too."""
        raise NotImplementedError

    def weights(self, name: str) -> Floats | None:
        """The mean square of each column's activations, (n_matrices, n_columns); None for a tensor it has not."""
        raise NotImplementedError
